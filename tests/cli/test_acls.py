"""`barnabas acls` and the admin client's ACLs, against a broker with an authorizer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import barnabas.aio
from barnabas.client.admin.results import (
    Acl,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
)
from barnabas.errors import InvalidRequest, SecurityDisabled
from barnabas.testing import Broker
from tests.cli.conftest import Barnabas

READ_ORDERS = Acl("User:ann", AclOperation.READ, AclResourceType.TOPIC, "orders")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:ANONYMOUS",
    ) as running:
        yield running
        assert "Traceback" not in running.log()


@pytest.fixture(autouse=True)
def no_acls(broker: Broker) -> Iterator[None]:
    yield
    with broker.admin() as admin:
        admin.delete_acls(AclFilter())


def test_allow_list_and_remove(ok: Callable[..., str], rows: Callable[..., Any]) -> None:
    assert ok("acls", "allow", "User:ann", "read", "topic", "orders", "--group", "billing") == (
        "User:ann read topic orders: allowed\nUser:ann read group billing: allowed\n"
    )
    assert ok("acls", "deny", "User:*", "write,delete", "topic", "log-", "--prefix", "--host", "::1") == (
        "User:* write topic log- and all names that begin so from 0:0:0:0:0:0:0:1: denied\n"
        "User:* delete topic log- and all names that begin so from 0:0:0:0:0:0:0:1: denied\n"
    )
    ok("acls", "allow", "User:ann", "idempotent_write", "cluster", "--transactional-id", "pay")
    assert len(rows("acls", "list")) == 6
    assert rows("acls", "list", "topic", "log-errors") == [
        {
            "principal": "User:*",
            "permission": "deny",
            "operation": operation,
            "resource_type": "topic",
            "resource": "log-",
            "pattern": "prefixed",
            "host": "0:0:0:0:0:0:0:1",
        }
        for operation in ("write", "delete")
    ]
    assert rows("acls", "list", "topic", "log-errors", "--exact") == []
    assert {each["resource"] for each in rows("acls", "list", "--principal", "User:ann")} == {
        "orders",
        "billing",
        "kafka-cluster",
        "pay",
    }
    assert ok("acls", "remove", "User:ann", "read", "topic", "orders", "--group", "billing", "--yes") == (
        "User:ann read topic orders: allow removed\nUser:ann read group billing: allow removed\n"
    )
    assert len(rows("acls", "remove", "User:ann", "--yes")) == 2
    assert len(rows("acls", "remove", "User:*", "--permission", "deny", "--yes")) == 2
    assert rows("acls", "list") == []


def test_a_removal_is_confirmed(run: Barnabas, ok: Callable[..., str]) -> None:
    ok("acls", "allow", "User:ann", "read", "topic", "orders")
    result = run("acls", "remove", "User:ann")
    assert (result.exit_code, result.stderr) == (
        1,
        "barnabas: Refusing to remove 1 ACL of User:ann without confirmation. Use --yes.\n",
    )
    result = run("acls", "remove", "User:bob", "--yes")
    assert (result.exit_code, result.stderr) == (4, "barnabas: there are no such ACLs\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("allow", "ann", "read", "topic", "orders"), "Did you mean User:ann?"),
        (("allow", "User:ann", "reed", "topic", "orders"), "did you mean read? There are: all, read,"),
        (("allow", "User:ann", "read", "topics", "orders"), "did you mean topic?"),
        (("allow", "User:ann", "read", "topic"), "Specify the topic, or '*' for all."),
        (("allow", "User:ann", "alter", "cluster", "mine"), "The cluster needs no name"),
    ],
)
def test_wrong_arguments(run: Barnabas, arguments: tuple[str, ...], told: str) -> None:
    result = run("acls", *arguments)
    assert result.exit_code == 2
    assert told in result.stderr


def test_the_admin_client(broker: Broker) -> None:
    denied = READ_ORDERS._replace(
        operation=AclOperation.ALL, pattern_type=AclPatternType.PREFIXED, permission=AclPermission.DENY
    )
    with broker.admin() as admin:
        admin.create_acls([READ_ORDERS, denied, READ_ORDERS])
        admin.create_acls(READ_ORDERS)
        assert set(admin.describe_acls()) == {READ_ORDERS, denied}
        matching = AclFilter(
            resource_type=AclResourceType.TOPIC, resource="orders-eu", pattern_type=AclPatternType.MATCH
        )
        assert admin.describe_acls(matching) == [denied]
        with pytest.raises(InvalidRequest, match="Invalid empty resource name"):
            admin.create_acls(READ_ORDERS._replace(resource=""))
        assert admin.delete_acls(AclFilter(permission=AclPermission.DENY)) == [denied]
        assert admin.delete_acls([AclFilter(principal="User:ann"), AclFilter()]) == [READ_ORDERS]
        assert admin.describe_acls() == []


def test_the_admin_client_for_asyncio(broker: Broker) -> None:
    async def scenario() -> list[Acl]:
        async with barnabas.aio.Admin(bootstrap_servers=broker.bootstrap) as admin:
            await admin.create_acls(READ_ORDERS)
            return await admin.describe_acls()

    assert asyncio.run(scenario()) == [READ_ORDERS]


@pytest.mark.slow
def test_a_broker_without_an_authorizer_says_so() -> None:
    with Broker() as running, running.admin() as admin, pytest.raises(SecurityDisabled, match="Authorizer"):
        admin.describe_acls()
