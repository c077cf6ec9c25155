"""Groups of kafka-python: assignors, static members, offsets and administration."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Self

import pytest

from tests.broker.group_requests import listed, wait_for_coordinator
from tests.clients.broker_process import BrokerProcess
from tests.clients.test_kafka_python import WAIT_S, collect_sockets, create, producing
from tests.waiting import Deadline

with warnings.catch_warnings():
    # It loads its schemas in a way that Python means to give up.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, TopicPartition
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

# A fixture for each test of the module.
__all__ = ["collect_sockets"]

PARTITIONS = 4
ASSIGNORS = [
    RangePartitionAssignor,
    RoundRobinPartitionAssignor,
    StickyPartitionAssignor,
    CooperativeStickyAssignor,
]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "5"}
    with BrokerProcess(tmp_path_factory.mktemp("groups") / "data", settings) as running:
        with running.client() as client:
            wait_for_coordinator(client, "any")
            listed(client)
        yield running
        assert "Traceback" not in running.log_text(), running.log_text()


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Any]:
    with closing(KafkaAdminClient(bootstrap_servers=broker.address)) as client:
        yield client


class Assigned(ConsumerRebalanceListener):  # type: ignore[misc]
    """Keeps which partitions a member has."""

    def __init__(self) -> None:
        self.partitions: set[int] = set()

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.partitions = self.partitions - {each.partition for each in revoked}

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.partitions = self.partitions | {each.partition for each in assigned}


class Member:
    """A consumer with a thread that polls it.

    A poll lasts until there are records: a rebalance that is cut off by the end of a poll may get lost in kafka-python,
    and the member with it. So whoever leaves is woken by a record.
    """

    def __init__(self, broker: BrokerProcess, group_id: str, topic: str, **settings: Any) -> None:
        self.values: list[int] = []
        self._broker = broker
        self._topic = topic
        self._consumer = KafkaConsumer(
            bootstrap_servers=broker.address,
            group_id=group_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=100,
            **settings,
        )
        self._assigned = Assigned()
        self._consumer.subscribe([topic], listener=self._assigned)
        self._failure: BaseException | None = None
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name="member")
        self._thread.start()

    @property
    def partitions(self) -> set[int]:
        return self._assigned.partitions

    def _run(self) -> None:
        try:
            with closing(self._consumer) as consumer:
                while not self._leaving.is_set():
                    for records in consumer.poll(timeout_ms=1_000 * WAIT_S).values():
                        self.values += [int(record.value) for record in records if record.value]
                consumer.commit()
        except BaseException as error:
            self._failure = error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self._leaving.set()
        with producing(self._broker) as producer:
            for partition in range(PARTITIONS):
                producer.send(self._topic, b"", partition=partition).get(WAIT_S)
        self._thread.join(3 * WAIT_S)
        assert not self._thread.is_alive()
        if self._failure is not None:
            raise self._failure


def wait_for_share(*of_group: Member) -> None:
    """Waits until each partition belongs to one member, and each member has as many."""
    share = PARTITIONS // len(of_group)
    deadline = Deadline()
    while True:
        shares = [member.partitions for member in of_group]
        if all(len(each) == share for each in shares) and len(set().union(*shares)) == PARTITIONS:
            return
        deadline.check(f"not: {shares}")
        time.sleep(0.01)


def produce(broker: BrokerProcess, topic: str, numbers: range) -> None:
    with producing(broker) as producer:
        sent = [producer.send(topic, b"%d" % number, partition=number % PARTITIONS) for number in numbers]
        for each in sent:
            each.get(WAIT_S)


def wait_for_values(numbers: range, *of_group: Member) -> list[int]:
    """Waits until all numbers have come to a member; all that has come, in order."""
    deadline = Deadline()
    while True:
        found = sorted(value for member in of_group for value in member.values)
        if set(found) >= set(numbers):
            return found
        deadline.check(f"only {found}")
        time.sleep(0.01)


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_members_share_the_partitions(broker: BrokerProcess, admin: Any, topic: str, assignor: Any) -> None:
    create(admin, topic, PARTITIONS)
    options = {"partition_assignment_strategy": (assignor,)}
    with Member(broker, topic, topic, **options) as first:
        with Member(broker, topic, topic, **options) as second:
            wait_for_share(first, second)
            produce(broker, topic, range(40))
            assert wait_for_values(range(40), first, second) == list(range(40))
        wait_for_share(first)
        produce(broker, topic, range(40, 48))
        wait_for_values(range(40, 48), first)
    # The second has committed as it left, so what it had does not come again.
    assert len(second.values) == 20
    assert not set(first.values) & set(second.values)


def test_a_static_member_comes_back_to_its_partitions(broker: BrokerProcess, admin: Any, topic: str) -> None:
    create(admin, topic, PARTITIONS)
    options = {"session_timeout_ms": 120_000, "max_poll_interval_ms": 600_000}
    with Member(broker, topic, topic, group_instance_id="one", **options) as first:
        with Member(broker, topic, topic, group_instance_id="two", **options) as second:
            wait_for_share(first, second)
            before = second.partitions
        with Member(broker, topic, topic, group_instance_id="two", **options) as back:
            wait_for_share(first, back)
            assert back.partitions == before


def test_offsets_and_administration(broker: BrokerProcess, admin: Any, topic: str) -> None:
    create(admin, topic, PARTITIONS)
    with Member(broker, topic, topic, client_id="me") as member:
        wait_for_share(member)
        produce(broker, topic, range(8))
        wait_for_values(range(8), member)
        assert topic in {group["group_id"] for group in admin.list_groups()}
        described = admin.describe_groups([topic])[topic]
        assert described["group_state"] == "Stable"
        [one] = described["members"]
        assert (one["client_id"], one["client_host"]) == ("me", "/127.0.0.1")
    offsets = admin.list_group_offsets([topic])[topic]
    assert {each.partition for each in offsets} == set(range(PARTITIONS))
    assert all(2 <= each.offset <= 3 for each in offsets.values())
    admin.delete_group_offsets(topic, [TopicPartition(topic, 0)])
    assert {each.partition for each in admin.list_group_offsets([topic])[topic]} == {1, 2, 3}
    admin.delete_groups([topic])
    assert topic not in {group["group_id"] for group in admin.list_groups()}
