"""Groups of confluent-kafka (librdkafka): assignors, static members, commits that outlive a broker, administration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker.group_requests import listed, wait_for_coordinator
from tests.clients.broker_process import BrokerProcess
from tests.waiting import poll_each, wait_until

WAIT_S = 60
PARTITIONS = 4

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "5"}
    with BrokerProcess(tmp_path_factory.mktemp("groups") / "data", settings) as running:
        yield running
        assert "Traceback" not in running.log_text(), running.log_text()


@pytest.fixture
def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.address})


class Member:
    """A consumer, with what was given to it and what it has received."""

    def __init__(self, broker: BrokerProcess, group_id: str, topic: str, **settings: Any) -> None:
        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.address,
                "group.id": group_id,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 100,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self.values: list[bytes | None] = []
        self.revocations = 0
        self.consumer.subscribe([topic], on_revoke=self._revoked)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.revocations += 1

    def poll(self) -> None:
        message = self.consumer.poll(0.05)
        if message is not None:
            assert message.error() is None, message.error()
            self.values.append(message.value())

    def has_committed(self) -> bool:
        """Whether a commit of all that was received has gone through."""
        try:
            self.consumer.commit(asynchronous=False)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            return False
        return True

    @property
    def partitions(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}


@contextmanager
def members(*of_group: Member) -> Iterator[None]:
    with ExitStack() as closing:
        for member in of_group:
            closing.callback(member.consumer.close)
        yield


def poll_until(of_group: list[Member], is_so: Callable[[], bool]) -> None:
    wait_until(
        is_so,
        lambda: [(member.partitions, len(member.values)) for member in of_group],
        meanwhile=lambda: poll_each(of_group),
    )


def are_shared(of_group: list[Member]) -> bool:
    """Whether each partition belongs to one member, and each member has as many."""
    shares = [member.partitions for member in of_group]
    share = PARTITIONS // len(of_group)
    return all(len(each) == share for each in shares) and len(set().union(*shares)) == PARTITIONS


def fill(broker: BrokerProcess, admin: AdminClient, topic: str, count: int) -> None:
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(WAIT_S)
    produce(broker, topic, range(count))


def numbered(numbers: range) -> list[bytes]:
    return [b"%d" % number for number in numbers]


def in_order(values: list[bytes | None]) -> list[bytes | None]:
    return sorted(values, key=lambda value: int(value or b"-1"))


def produce(broker: BrokerProcess, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": broker.address})
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_share_the_partitions(
    broker: BrokerProcess, admin: AdminClient, topic: str, strategy: str
) -> None:
    fill(broker, admin, topic, 0)
    first, second = (
        Member(broker, f"shared-{strategy}", topic, partition_assignment_strategy=strategy) for _ in range(2)
    )
    both = [first, second]
    with members(second):
        with members(first):
            poll_until(both, lambda: are_shared(both))
            produce(broker, topic, range(100))
            poll_until(both, lambda: len(first.values) + len(second.values) >= 100)
            assert in_order(first.values + second.values) == numbered(range(100))
            assert len(first.values) == len(second.values)
            poll_until(both, first.has_committed)
            poll_until(both, second.has_committed)
        # The other one takes over, from where the first has left.
        poll_until([second], lambda: second.partitions == set(range(PARTITIONS)))
        second.values.clear()
        produce(broker, topic, range(100, 108))
        poll_until([second], lambda: len(second.values) >= 8)
        assert in_order(second.values) == numbered(range(100, 108))


def test_a_static_member_comes_back_without_a_rebalance(
    broker: BrokerProcess, admin: AdminClient, topic: str
) -> None:
    fill(broker, admin, topic, 10)

    def new_member(name: str) -> Member:
        return Member(broker, "static", topic, group_instance_id=name, session_timeout_ms=120_000)

    first, second = new_member("one"), new_member("two")
    with members(second):
        with members(first):
            poll_until([first, second], lambda: are_shared([first, second]))
            before = first.partitions
        revocations = second.revocations
        back = new_member("one")
        with members(back):
            poll_until([back, second], lambda: are_shared([back, second]))
            assert back.partitions == before
        assert second.revocations == revocations


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_commits_outlive_the_broker(broker: BrokerProcess, admin: AdminClient, topic: str, end: str) -> None:
    fill(broker, admin, topic, 40)
    member = Member(broker, f"outlives-{end}", topic)
    with members(member):
        poll_until([member], lambda: len(member.values) == 40)
        poll_until([member], member.has_committed)
    if end == "stop":
        broker.restart()
    else:
        broker.kill()
        broker.start()
    produce(broker, topic, range(40, 48))
    later = Member(broker, f"outlives-{end}", topic)
    with members(later):
        poll_until([later], lambda: len(later.values) >= 8)
        assert in_order(later.values) == numbered(range(40, 48))
        committed = later.consumer.committed(
            [TopicPartition(topic, partition) for partition in range(PARTITIONS)], timeout=WAIT_S
        )
        assert [each.offset for each in committed] == [10] * PARTITIONS


def test_a_member_goes_on_through_a_restart(broker: BrokerProcess, admin: AdminClient, topic: str) -> None:
    fill(broker, admin, topic, 20)
    # However long the restart takes, the member is not to be given up, by the group or by itself.
    member = Member(broker, "through", topic, session_timeout_ms=600_000, max_poll_interval_ms=600_000)
    with members(member):
        poll_until([member], lambda: len(member.values) == 20)
        broker.restart()
        produce(broker, topic, range(20, 40))
        poll_until([member], lambda: len(member.values) == 40)
        poll_until([member], member.has_committed)
        assert member.revocations == 0


def test_administration(broker: BrokerProcess, admin: AdminClient, topic: str) -> None:
    fill(broker, admin, topic, 8)
    with broker.client() as client:
        wait_for_coordinator(client, "any")
        listed(client)
    group_id = "administered"
    member = Member(broker, group_id, topic, client_id="me")
    with members(member):
        poll_until([member], lambda: len(member.values) == 8)
        stable = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(WAIT_S)
        assert stable.errors == []
        assert group_id in {each.group_id for each in stable.valid}
        described = admin.describe_consumer_groups([group_id])[group_id].result(WAIT_S)
        assert (described.state, described.partition_assignor) == (ConsumerGroupState.STABLE, "range")
        [one] = described.members
        assert (one.client_id, one.host) == ("me", "/127.0.0.1")
        assert {each.partition for each in one.assignment.topic_partitions} == set(range(PARTITIONS))
        with pytest.raises(Exception, match="NON_EMPTY_GROUP"):
            admin.delete_consumer_groups([group_id])[group_id].result(WAIT_S)
    moved = ConsumerGroupTopicPartitions(group_id, [TopicPartition(topic, 1, 7)])
    assert admin.alter_consumer_group_offsets([moved])[group_id].result(WAIT_S).group_id == group_id
    asked = ConsumerGroupTopicPartitions(group_id)
    found = admin.list_consumer_group_offsets([asked])[group_id].result(WAIT_S)
    assert [(each.topic, each.partition, each.offset) for each in found.topic_partitions] == [(topic, 1, 7)]
    admin.delete_consumer_groups([group_id])[group_id].result(WAIT_S)
    left = admin.list_consumer_groups().result(WAIT_S)
    assert group_id not in {each.group_id for each in left.valid}
