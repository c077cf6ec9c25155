"""The bit sets are those that Apache Kafka's own table of operations gives (AclEntry in 4.3.1)."""

from __future__ import annotations

from barnabas.broker.requests.operations import EVERY_OPERATION
from barnabas.security.acls import CLUSTER, GROUP, TOPIC


def test_operations_are_those_of_kafka() -> None:
    found = EVERY_OPERATION[TOPIC], EVERY_OPERATION[CLUSTER], EVERY_OPERATION[GROUP]
    assert found == (3_576, 8_096, 3_400)


def test_groups_of_3_9_have_no_settings() -> None:
    describe_configs, alter_configs = 1 << 10, 1 << 11
    assert EVERY_OPERATION[GROUP] - describe_configs - alter_configs == 328
