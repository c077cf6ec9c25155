from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.config.definition import InvalidSetting
from barnabas.errors import (
    ClusterAuthorizationFailed,
    InvalidConfig,
    InvalidRequest,
    SecurityDisabled,
)
from barnabas.protocol.messages.describe_acls_request import DescribeAclsRequest
from barnabas.security import acls
from barnabas.security.acls import AclBinding
from tests.broker.acl_requests import (
    ADMIN_HOST,
    CLIENT_HOST,
    STANDARD_AUTHORIZER,
    WITH_AUTHORIZER,
    HostClient,
    allow,
    any_filter,
    bindings_of,
    create,
    delete,
    describe,
    make_admin,
)
from tests.broker.raw_client import RawClient
from tests.broker.running import RunningBroker

READ_ORDERS = allow(acls.READ, acls.TOPIC, "orders", principal="User:ann", host="*")
WRITE_ORDERS = allow(acls.WRITE, acls.TOPIC, "orders", principal="User:ann", host="*")
DENY_PREFIX = allow(
    acls.ALL,
    acls.GROUP,
    "bil",
    pattern_type=acls.PREFIXED,
    principal="User:bob",
    permission=acls.DENY,
    host="10.0.0.1",
)


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path, WITH_AUTHORIZER) as running:
        make_admin(running)
        yield running


@pytest.fixture
def admin(secured: RunningBroker) -> Iterator[HostClient]:
    with HostClient(secured.port, ADMIN_HOST) as connected:
        yield connected


def of_others(client: RawClient) -> set[AclBinding]:
    """All ACLs but the admin's."""
    return {each for each in bindings_of(describe(client)) if each.entry.host != ADMIN_HOST}


def test_acls_are_created_described_and_deleted(admin: HostClient) -> None:
    results = create(admin, READ_ORDERS, WRITE_ORDERS, DENY_PREFIX, READ_ORDERS)
    assert [result.error_code for result in results] == [0, 0, 0, 0]
    assert of_others(admin) == {READ_ORDERS, WRITE_ORDERS, DENY_PREFIX}
    found = describe(
        admin, resource_type_filter=acls.GROUP, resource_name_filter="billing", pattern_type_filter=acls.MATCH
    )
    assert DENY_PREFIX in bindings_of(found)
    reads, groups = delete(
        admin,
        any_filter(resource_type_filter=acls.TOPIC, resource_name_filter="orders", operation=acls.READ),
        any_filter(principal_filter="User:bob"),
    )
    assert [acl.resource_name for acl in reads.matching_acls] == ["orders"]
    assert [acl.resource_name for acl in groups.matching_acls] == ["bil"]
    assert of_others(admin) == {WRITE_ORDERS}


def test_an_acl_that_several_filters_select_is_listed_for_each(admin: HostClient) -> None:
    create(admin, READ_ORDERS)
    results = delete(
        admin, any_filter(principal_filter="User:ann"), any_filter(resource_name_filter="orders")
    )
    assert [len(result.matching_acls) for result in results] == [1, 1]


def test_wrong_acls_are_refused_and_the_others_are_created(admin: HostClient) -> None:
    results = create(
        admin,
        allow(acls.READ, acls.TOPIC, ""),
        allow(acls.ALTER, acls.CLUSTER, "other"),
        allow(acls.READ, acls.ANY, "x"),
        allow(acls.READ, acls.TOPIC, "x", pattern_type=acls.MATCH),
        allow(acls.ANY, acls.TOPIC, "x"),
        allow(acls.READ, acls.TOPIC, "x", permission=acls.ANY),
        allow(acls.READ, acls.TOPIC, "x", principal="ann"),
        allow(acls.READ, acls.GROUP, "a/b"),
        allow(acls.READ, acls.GROUP, ".."),
        allow(99, acls.TOPIC, "x"),
        READ_ORDERS,
    )
    assert [result.error_code for result in results] == [InvalidRequest.code] * 10 + [0]
    assert [result.error_message for result in results[:6]] == [
        "Invalid empty resource name",
        "The only valid name for the CLUSTER resource is kafka-cluster",
        "Invalid resourceType ANY",
        "Invalid patternType MATCH",
        "Invalid operation ANY",
        "Invalid permissionType ANY",
    ]
    assert results[6].error_message.startswith("Could not parse principal from `ann` (no colon is present")
    assert of_others(admin) == {READ_ORDERS}


def test_a_code_of_zero_ends_the_connection(admin: HostClient) -> None:
    request = DescribeAclsRequest(
        resource_type_filter=acls.ANY,
        pattern_type_filter=acls.ANY,
        operation=acls.UNKNOWN,
        permission_type=acls.ANY,
    )
    admin.send("DescribeAcls", 3, request)
    assert admin.is_closed_by_broker()


@pytest.mark.parametrize("version", range(4))
def test_every_version(admin: HostClient, version: int) -> None:
    [created] = create(admin, READ_ORDERS, version=version)
    assert created.error_code == 0
    assert READ_ORDERS in bindings_of(describe(admin, version))
    selecting = any_filter(
        principal_filter="User:ann", **({} if version else {"pattern_type_filter": acls.LITERAL})
    )
    [deleted] = delete(admin, selecting, version=version)
    assert len(deleted.matching_acls) == 1


def test_clients_without_permission_are_refused(secured: RunningBroker) -> None:
    with HostClient(secured.port, CLIENT_HOST) as client:
        assert describe(client).error_code == ClusterAuthorizationFailed.code
        [created] = create(client, READ_ORDERS)
        assert created.error_code == ClusterAuthorizationFailed.code
        assert created.error_message == "Request CreateAcls of User:ANONYMOUS needs ALTER permission."
        [deleted] = delete(client, any_filter())
        assert deleted.error_code == ClusterAuthorizationFailed.code
    with HostClient(secured.port, ADMIN_HOST) as admin:
        assert of_others(admin) == set()


def test_acls_survive_a_restart_in_kafkas_form(tmp_path: Path) -> None:
    with RunningBroker(tmp_path, WITH_AUTHORIZER) as first:
        make_admin(first)
        with HostClient(first.port, ADMIN_HOST) as admin:
            create(admin, READ_ORDERS, DENY_PREFIX)
        store = first.server.broker.acl_writer._store  # type: ignore[union-attr]
        data, _ = first.call(lambda: store.get("/kafka-acl/Topic/orders"))
        assert json.loads(data) == {
            "version": 1,
            "acls": [{"principal": "User:ann", "permissionType": "Allow", "operation": "Read", "host": "*"}],
        }
        data, _ = first.call(lambda: store.get("/kafka-acl-extended/prefixed/Group/bil"))
        assert json.loads(data)["acls"][0]["permissionType"] == "Deny"
        names, _ = first.call(lambda: store.children("/kafka-acl-extended-changes"))
        data, _ = first.call(lambda: store.get(f"/kafka-acl-extended-changes/{names[0]}"))
        assert json.loads(data) == {
            "version": 1,
            "resourceType": "GROUP",
            "name": "bil",
            "patternType": "PREFIXED",
        }
    with (
        RunningBroker(tmp_path, WITH_AUTHORIZER) as second,
        HostClient(second.port, ADMIN_HOST) as admin,
    ):
        assert of_others(admin) == {READ_ORDERS, DENY_PREFIX}


def test_without_an_authorizer_security_is_disabled(broker: RunningBroker, client: RawClient) -> None:
    assert describe(client).error_code == SecurityDisabled.code
    assert [each.error_code for each in create(client, READ_ORDERS)] == [SecurityDisabled.code]
    assert [each.error_code for each in delete(client, any_filter())] == [SecurityDisabled.code]


def test_a_broker_with_an_unknown_authorizer_does_not_start(tmp_path: Path) -> None:
    settings = {"authorizer.class.name": "com.example.MyAuthorizer"}
    with pytest.raises(InvalidSetting, match=STANDARD_AUTHORIZER), RunningBroker(tmp_path, settings):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["super.users", "allow.everyone.if.no.acl.found"])
def test_settings_of_an_authorizer_need_one(tmp_path: Path, name: str) -> None:
    with (
        pytest.raises(InvalidConfig, match=r"authorizer\.class\.name"),
        RunningBroker(tmp_path, {name: "User:x"}),
    ):
        pass


def test_super_users_must_be_principals(tmp_path: Path) -> None:
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "ann"}
    with pytest.raises(InvalidSetting, match="User:ann;User:bob"), RunningBroker(tmp_path, settings):
        pass


def test_the_anonymous_user_may_be_a_super_user(tmp_path: Path) -> None:
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with RunningBroker(tmp_path, settings) as running, running.client() as client:
        assert [each.error_code for each in create(client, READ_ORDERS)] == [0]
