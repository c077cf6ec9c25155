"""Groups of the new protocol (KIP-848) with confluent-kafka (librdkafka): the broker assigns.

Members join and leave, subscribe to names and to expressions, come back as the same instance, and take a group over
from members of the classic protocol one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupType,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.clients.broker_process import BrokerProcess
from tests.waiting import poll_each, wait_until

WAIT_S = 180
PARTITIONS = 6

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "5",
        # Members are told how often to be heard of: they learn of changes sooner.
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "100",
        "group.consumer.assignment.interval.ms": "0",
        # However slow the machine is, nobody is to be given up.
        "group.consumer.max.session.timeout.ms": "3600000",
        "group.consumer.session.timeout.ms": "3600000",
    }
    with BrokerProcess(tmp_path_factory.mktemp("consumer-groups") / "data", settings) as running:
        yield running
        assert "Traceback" not in running.log_text(), running.log_text()


@pytest.fixture
def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.address})


class Member:
    def __init__(
        self, broker: BrokerProcess, group_id: str, *topics: str, protocol: str = "consumer", **settings: Any
    ) -> None:
        self.errors: list[Any] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.address,
                "group.id": group_id,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 500,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self.values: list[bytes | None] = []
        self.consumer.subscribe(list(topics))

    def poll(self) -> None:
        message = self.consumer.poll(0.05)
        if message is not None:
            if message.error() is None:
                self.values.append(message.value())
            else:
                self.errors.append(message.error())

    @property
    def partitions(self) -> set[tuple[str, int]]:
        return {(each.topic, each.partition) for each in self.consumer.assignment()}


@contextmanager
def closing(*members: Member) -> Iterator[None]:
    with ExitStack() as stack:
        for member in members:
            stack.callback(member.consumer.close)
        yield


def poll_until(members: list[Member], done: Callable[[], bool]) -> None:
    wait_until(
        done,
        lambda: [(each.partitions, each.errors) for each in members],
        timeout_s=WAIT_S,
        meanwhile=lambda: poll_each(members),
    )


def share(members: list[Member], wanted: set[tuple[str, int]]) -> bool:
    """Whether the members own what is wanted, each partition once, and as many as one another."""
    owned = [member.partitions for member in members]
    sizes = [len(each) for each in owned]
    return sum(sizes) == len(wanted) and set().union(*owned) == wanted and max(sizes) - min(sizes) <= 1


def all_of(topic: str, count: int = PARTITIONS) -> set[tuple[str, int]]:
    return {(topic, partition) for partition in range(count)}


def create(admin: AdminClient, topic: str, count: int = PARTITIONS) -> None:
    admin.create_topics([NewTopic(topic, count, 1)])[topic].result(WAIT_S)


@pytest.mark.parametrize("assignor", ["range", "uniform"])
def test_members_join_and_leave(broker: BrokerProcess, admin: AdminClient, topic: str, assignor: str) -> None:
    create(admin, topic)
    group_id = f"group-{topic}"
    first, second, third = (
        Member(broker, group_id, topic, **{"group.remote.assignor": assignor}) for _ in range(3)
    )
    with closing(second, third):
        with closing(first):
            members = [first, second, third]
            poll_until(members, lambda: share(members, all_of(topic)))
            described = admin.describe_consumer_groups([group_id])[group_id].result(WAIT_S)
            assert (described.state, described.type) == (
                ConsumerGroupState.STABLE,
                ConsumerGroupType.CONSUMER,
            )
            assert described.partition_assignor == assignor
            assert {
                (each.topic, each.partition)
                for member in described.members
                for each in member.assignment.topic_partitions
            } == all_of(topic)
        poll_until([second, third], lambda: share([second, third], all_of(topic)))
        # A topic that grows is assigned anew.
        admin.create_partitions([NewPartitions(topic, PARTITIONS + 2)])[topic].result(WAIT_S)
        wanted = all_of(topic, PARTITIONS + 2)
        poll_until([second, third], lambda: share([second, third], wanted))


def produce(broker: BrokerProcess, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": broker.address})
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0


def received(members: list[Member]) -> list[int]:
    return sorted(int(value or b"-1") for member in members for value in member.values)


def has_committed(member: Member) -> bool:
    """Whether a commit has gone through; one with an epoch that is just over is tried again."""
    try:
        member.consumer.commit(asynchronous=False)
    except KafkaException as error:
        name: str = error.args[0].name()
        if name not in ("STALE_MEMBER_EPOCH", "_NO_OFFSET") and not error.args[0].retriable():
            raise
        return name == "_NO_OFFSET"
    return True


def test_an_expression_is_followed_as_topics_come(
    broker: BrokerProcess, admin: AdminClient, topic: str
) -> None:
    prefix = f"expr-{topic}"
    create(admin, f"{prefix}-1", 2)
    create(admin, f"other-{prefix}-1", 2)
    first, second = (Member(broker, f"group-{prefix}", f"^{prefix}-[0-9]$") for _ in range(2))
    with closing(first, second):
        both = [first, second]
        poll_until(both, lambda: share(both, all_of(f"{prefix}-1", 2)))
        create(admin, f"{prefix}-2", 2)
        wanted = all_of(f"{prefix}-1", 2) | all_of(f"{prefix}-2", 2)
        poll_until(both, lambda: share(both, wanted))
        admin.delete_topics([f"{prefix}-1"])[f"{prefix}-1"].result(WAIT_S)
        poll_until(both, lambda: share(both, all_of(f"{prefix}-2", 2)))


def test_a_static_member_comes_back_to_its_partitions(
    broker: BrokerProcess, admin: AdminClient, topic: str
) -> None:
    create(admin, topic)

    def new_member(name: str) -> Member:
        return Member(broker, f"group-{topic}", topic, group_instance_id=name)

    first, second = new_member("one"), new_member("two")
    with closing(second):
        with closing(first):
            poll_until([first, second], lambda: share([first, second], all_of(topic)))
            before, kept = first.partitions, second.partitions
        back = new_member("one")
        with closing(back):
            poll_until([back, second], lambda: back.partitions == before)
            assert second.partitions == kept


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_group_outlives_the_broker(broker: BrokerProcess, admin: AdminClient, topic: str, end: str) -> None:
    create(admin, topic)
    first, second = (Member(broker, f"group-{topic}", topic) for _ in range(2))
    both = [first, second]
    with closing(*both):
        # Nothing is there to read before both have joined: what moves uncommitted would be read twice.
        poll_until(both, lambda: share(both, all_of(topic)))
        produce(broker, topic, range(60))
        poll_until(both, lambda: len(received(both)) >= 60)
        assert received(both) == list(range(60))
        for member in both:
            poll_until(both, partial(has_committed, member))
        before = [member.partitions for member in both]
        if end == "stop":
            broker.restart()
        else:
            broker.kill()
            broker.start()
        produce(broker, topic, range(60, 72))
        poll_until(both, lambda: len(received(both)) >= 72)
        assert received(both) == list(range(72))
        assert [member.partitions for member in both] == before
        for member in both:
            poll_until(both, partial(has_committed, member))
    later = Member(broker, f"group-{topic}", topic)
    with closing(later):
        poll_until([later], lambda: later.partitions == all_of(topic))
        asked = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        assert [each.offset for each in later.consumer.committed(asked, timeout=WAIT_S)] == [12] * PARTITIONS


def test_a_group_moves_to_the_new_protocol_and_back(
    broker: BrokerProcess, admin: AdminClient, topic: str
) -> None:
    """Members are replaced one by one; at no time does the group stop, and all records come once."""
    create(admin, topic)
    group_id = f"group-{topic}"
    sent = 0

    def new_member(protocol: str) -> Member:
        settings: dict[str, Any] = {}
        if protocol == "classic":
            settings = {
                "partition.assignment.strategy": "cooperative-sticky",
                "heartbeat.interval.ms": 100,
                "session.timeout.ms": 300_000,
            }
        return Member(broker, group_id, topic, protocol=protocol, **settings)

    def all_received(of: list[Member]) -> bool:
        return share(of, all_of(topic)) and set(received([*of, *gone])) == set(range(sent))

    gone: list[Member] = []
    members = [new_member("classic"), new_member("classic")]
    try:
        for protocol in ("classic", "consumer", "consumer", "classic", "classic"):
            members.append(new_member(protocol))
            poll_until(members, partial(share, members, all_of(topic)))
            produce(broker, topic, range(sent, sent + 12))
            sent += 12
            poll_until(members, partial(all_received, members))
            for member in members:
                poll_until(members, partial(has_committed, member))
            leaving = members.pop(0)
            leaving.consumer.close()
            gone.append(leaving)
            poll_until(members, partial(all_received, members))
        assert received([*members, *gone]) == list(range(sent))
        listed = admin.list_consumer_groups().result(WAIT_S)
        [group] = [each for each in listed.valid if each.group_id == group_id]
        assert group.type == ConsumerGroupType.CLASSIC
    finally:
        for member in members:
            member.consumer.close()


def test_administration(broker: BrokerProcess, admin: AdminClient, topic: str) -> None:
    create(admin, topic)
    group_id = f"group-{topic}"
    member = Member(broker, group_id, topic, client_id="me")
    with closing(member):
        poll_until([member], lambda: member.partitions == all_of(topic))
        listed = admin.list_consumer_groups(
            states={ConsumerGroupState.STABLE}, types={ConsumerGroupType.CONSUMER}
        ).result(WAIT_S)
        assert group_id in {each.group_id for each in listed.valid}
        described = admin.describe_consumer_groups([group_id])[group_id].result(WAIT_S)
        [one] = described.members
        assert (one.client_id, one.host) == ("me", "/127.0.0.1")
        with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
            admin.delete_consumer_groups([group_id])[group_id].result(WAIT_S)
    described = admin.describe_consumer_groups([group_id])[group_id].result(WAIT_S)
    assert (described.state, described.members) == (ConsumerGroupState.EMPTY, [])
    admin.delete_consumer_groups([group_id])[group_id].result(WAIT_S)
    left = admin.list_consumer_groups().result(WAIT_S)
    assert group_id not in {each.group_id for each in left.valid}
