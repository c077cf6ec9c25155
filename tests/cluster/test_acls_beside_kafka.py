"""ACLs in the ZooKeeper of a real Kafka 3.9.1 with its AclAuthorizer: each side follows the changes of the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.security import acls
from barnabas.security.acls import AclBinding
from tests.broker.acl_requests import allow, any_filter, bindings_of, create, delete, describe
from tests.broker.raw_client import RawClient
from tests.cluster.clusters import ClusterBroker
from tests.peers.kafka_peer import Broker as KafkaBroker
from tests.peers.kafka_peer import PeerUnavailable, broker_on, jars
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.peer]

CLUSTER_ID = "WZEKwK-bS62oT3ZOSU0dgw"
# Brokers are clients of each other, so their principal is a super user.
SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}
BINDINGS = [
    allow(acls.READ, acls.TOPIC, "orders", principal="User:ann", host="*"),
    allow(acls.ALL, acls.TOPIC, "*", principal="User:*", host="10.0.0.1", permission=acls.DENY),
    allow(acls.WRITE, acls.TRANSACTIONAL_ID, "pay", pattern_type=acls.PREFIXED, principal="User:ann"),
    allow(acls.IDEMPOTENT_WRITE, acls.CLUSTER, principal="User:größe"),
    allow(acls.DESCRIBE_TOKENS, acls.USER, "User:bob", principal="User:ann"),
    allow(acls.DESCRIBE, acls.DELEGATION_TOKEN, "token", principal="User:ann"),
    allow(acls.READ, acls.GROUP, "bil", pattern_type=acls.PREFIXED, principal="Group:x:y"),
]


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[KafkaBroker]:
    try:
        jars("3.9.1")
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    (tmp_path / "log").mkdir()
    (tmp_path / "kafka").mkdir()
    with broker_on(tmp_path / "log", tmp_path / "kafka", 1, CLUSTER_ID, SETTINGS) as running:
        yield running


def test_each_side_follows_the_other(kafka: KafkaBroker, tmp_path: Path) -> None:
    # These were there before our broker starts.
    with RawClient(kafka.port) as theirs:
        assert {each.error_code for each in create(theirs, *BINDINGS[:4])} == {0}
        settings = {
            **SETTINGS,
            "broker.id": "2",
            "zookeeper.connect": f"127.0.0.1:{kafka.zookeeper_port}",
            "zookeeper.session.timeout.ms": "6000",
        }
        with ClusterBroker(2, tmp_path / "ours", settings) as running, RawClient(running.port) as ours:

            def wait_for(expected: set[AclBinding]) -> None:
                for client in (ours, theirs):
                    wait_until(
                        lambda client=client: bindings_of(describe(client)) == expected,  # type: ignore[misc]
                        lambda client=client: (expected, bindings_of(describe(client))),
                    )

            wait_for(set(BINDINGS[:4]))
            assert {each.error_code for each in create(ours, *BINDINGS[4:])} == {0}
            wait_for(set(BINDINGS))
            # One more for a pattern that has some, by each side in turn.
            more = [BINDINGS[0]._replace(entry=BINDINGS[0].entry._replace(operation=each)) for each in (4, 6)]
            for client, binding in zip((ours, theirs), more, strict=True):
                assert [each.error_code for each in create(client, binding)] == [0]
            wait_for({*BINDINGS, *more})
            delete(theirs, any_filter(principal_filter="User:ann"))
            remaining = {each for each in BINDINGS if each.entry.principal != "User:ann"}
            wait_for(remaining)
            [deleted] = delete(ours, any_filter())
            assert len(deleted.matching_acls) == len(remaining)
            wait_for(set())
            assert running.stop() == 0
