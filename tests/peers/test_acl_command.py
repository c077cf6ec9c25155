"""Apache Kafka's own AclCommand, of 4.3.1 and 3.9.1, against our broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.security import acls
from tests.broker.acl_requests import STANDARD_AUTHORIZER, bindings_of, describe
from tests.broker.running import RunningBroker
from tests.peers.kafka_peer import V3, V4, PeerUnavailable, jars, run_tool

pytestmark = [pytest.mark.slow, pytest.mark.peer]

COMMANDS = {V4: "org.apache.kafka.tools.AclCommand", V3: "kafka.admin.AclCommand"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with RunningBroker(tmp_path_factory.mktemp("acl-command"), settings) as running:
        yield running


@pytest.mark.parametrize("version", [V4, V3])
def test_acls_are_added_listed_and_removed(broker: RunningBroker, version: str) -> None:
    try:
        jars(version)
    except PeerUnavailable as why:
        pytest.skip(str(why))

    def command(*arguments: str) -> str:
        return run_tool(version, COMMANDS[version], "--bootstrap-server", broker.address, *arguments)

    orders = ("--topic", "orders")
    ann = ("--allow-principal", "User:ann")
    command("--add", *ann, "--producer", "--transactional-id", "pay", *orders)
    command("--add", *ann, "--consumer", "--group", "bil", "--resource-pattern-type", "prefixed", *orders)
    with broker.client() as client:
        found = {
            (each.pattern.resource_type, each.pattern.pattern_type, each.entry.operation)
            for each in bindings_of(describe(client))
        }
    assert found == {
        *((acls.TOPIC, acls.LITERAL, each) for each in (acls.WRITE, acls.DESCRIBE, acls.CREATE)),
        *((acls.TRANSACTIONAL_ID, acls.LITERAL, each) for each in (acls.WRITE, acls.DESCRIBE)),
        *((acls.TOPIC, acls.PREFIXED, each) for each in (acls.READ, acls.DESCRIBE)),
        (acls.GROUP, acls.PREFIXED, acls.READ),
    }
    told = command("--list", "--principal", "User:ann")
    assert "resourceType=TRANSACTIONAL_ID, name=pay, patternType=LITERAL" in told
    assert "(principal=User:ann, host=*, operation=READ, permissionType=ALLOW)" in told
    command(
        "--remove",
        "--force",
        *orders,
        "--transactional-id",
        "pay",
        "--group",
        "bil",
        "--resource-pattern-type",
        "any",
    )
    with broker.client() as client:
        assert bindings_of(describe(client)) == set()
