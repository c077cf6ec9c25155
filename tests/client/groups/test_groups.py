"""Consumers in groups, classic and of KIP-848, against our broker and Apache Kafka."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import barnabas
from barnabas.client.subscription import ConsumerError
from barnabas.errors import (
    FencedInstanceId,
    IllegalGeneration,
    InconsistentGroupProtocol,
    KafkaError,
    RebalanceInProgress,
    UnknownMemberId,
    UnsupportedAssignor,
)
from barnabas.model import TopicPartition
from tests.client.consumer_servers import SERVERS, WAIT_S, Server, numbered, read, running, values
from tests.waiting import Deadline

CLASSIC = ("range", "roundrobin", "sticky", "cooperative-sticky")
pytestmark = pytest.mark.slow
PROTOCOLS = ({"partition_assignment_strategy": "range"}, {"group_protocol": "consumer"})


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(request.param, tmp_path_factory.mktemp("groups")) as found:
        yield found


@pytest.fixture(params=PROTOCOLS, ids=("classic", "consumer"))
def protocol(request: pytest.FixtureRequest, server: Server) -> dict[str, object]:
    settings: dict[str, object] = request.param
    if "group_protocol" in settings and not server.has_consumer_protocol:
        pytest.skip("Apache Kafka 3.9 does not offer the new protocol unless it is asked to")
    return settings


class Listener(barnabas.RebalanceListener):
    def __init__(self) -> None:
        self.events: list[tuple[str, list[int]]] = []

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.events.append(("assigned", [each.partition for each in partitions]))

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.events.append(("revoked", [each.partition for each in partitions]))

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.events.append(("lost", [each.partition for each in partitions]))


def poll_until(
    consumers: list[barnabas.Consumer],
    is_so: Callable[[], bool],
    received: list[barnabas.ConsumerRecord] | None = None,
) -> None:
    """Polls all in turn until something is so; what they give meanwhile goes to `received`."""
    deadline = Deadline()
    while not is_so():
        deadline.check([consumer.assignment() for consumer in consumers])
        for consumer in consumers:
            records = consumer.poll(10)
            if received is not None:
                received += records


def numbers(consumer: barnabas.Consumer) -> set[int]:
    return {each.partition for each in consumer.assignment()}


def test_a_group_goes_on_where_it_was(server: Server, protocol: dict[str, object]) -> None:
    topic = server.topic(2)
    group = f"group-of-{topic}"
    server.produce(topic, numbered(20))
    with server.consumer(group_id=group, enable_auto_commit=False, **protocol) as consumer:
        consumer.subscribe([topic])
        assert consumer.subscription() == {topic}
        assert values(read(consumer, 20)) == numbered(20)
        assert numbers(consumer) == {0, 1}
        metadata = consumer.group_metadata()
        assert metadata.group_id == group
        assert metadata.generation_id > 0
        assert metadata.member_id
        consumer.commit({TopicPartition(topic, 0): 12})
    with server.consumer(group_id=group, **protocol) as consumer:
        consumer.subscribe(topic)
        assert values(read(consumer, 8)) == numbered(8, 12)
    # With automatic commits closing is enough.
    server.produce(topic, [b"new"])
    with server.consumer(group_id=group, **protocol) as consumer:
        consumer.subscribe(topic)
        assert values(read(consumer, 1)) == [b"new"]


@pytest.mark.parametrize("strategy", CLASSIC)
def test_members_share_and_hand_over(server: Server, strategy: str) -> None:
    share(
        server, {"partition_assignment_strategy": strategy}, is_cooperative=strategy == "cooperative-sticky"
    )


def test_members_share_and_hand_over_with_the_new_protocol(server: Server) -> None:
    if not server.has_consumer_protocol:
        pytest.skip("Apache Kafka 3.9 does not offer the new protocol unless it is asked to")
    share(server, {"group_protocol": "consumer"}, is_cooperative=True)


def share(server: Server, protocol: dict[str, object], *, is_cooperative: bool) -> None:
    topic = server.topic(4)
    group = f"group-of-{topic}"
    first_events, second_events = Listener(), Listener()
    received: list[barnabas.ConsumerRecord] = []
    with server.consumer(group_id=group, **protocol) as first:
        first.subscribe(topic, listener=first_events)
        poll_until([first], lambda: numbers(first) == {0, 1, 2, 3}, received)
        for partition in range(4):
            server.produce(topic, numbered(10, 100 * partition), partition=partition)
        received += read(first, 40)
        with server.consumer(group_id=group, **protocol) as second:
            second.subscribe(topic, listener=second_events)
            both = [first, second]
            poll_until(both, lambda: len(numbers(first)) == len(numbers(second)) == 2, received)
            assert numbers(first) | numbers(second) == {0, 1, 2, 3}
            for partition in range(4):
                server.produce(topic, numbered(10, 100 * partition + 10), partition=partition)
            poll_until(both, lambda: len(received) >= 80, received)
        poll_until([first], lambda: numbers(first) == {0, 1, 2, 3}, received)
        for partition in range(4):
            server.produce(topic, numbered(10, 100 * partition + 20), partition=partition)
        poll_until([first], lambda: len(received) >= 120, received)
    assert sorted(values(received), key=int) == sorted(
        (value for partition in range(4) for value in numbered(30, 100 * partition)), key=int
    )
    assert first_events.events[0] == ("assigned", [0, 1, 2, 3])
    revoked = [partitions for what, partitions in first_events.events if what == "revoked"]
    assert len(revoked[0]) == (2 if is_cooperative else 4)
    assert not any(what == "lost" for what, _ in (*first_events.events, *second_events.events))


def test_a_static_member_comes_back_without_a_rebalance(server: Server, protocol: dict[str, object]) -> None:
    topic = server.topic(2)
    group = f"group-of-{topic}"
    events = Listener()
    with server.consumer(group_id=group, group_instance_id="one", **protocol) as one:
        one.subscribe(topic, listener=events)
        with server.consumer(group_id=group, group_instance_id="two", **protocol) as two:
            two.subscribe(topic)
            poll_until([one, two], lambda: len(numbers(one)) == len(numbers(two)) == 1)
            had = numbers(two)
            told = len(events.events)
        with server.consumer(group_id=group, group_instance_id="two", **protocol) as two:
            two.subscribe(topic)
            poll_until([one, two], lambda: numbers(two) == had)
            assert len(numbers(one)) == 1
            assert len(events.events) == told


def test_two_with_one_instance_id(server: Server) -> None:
    topic = server.topic(1)
    group = f"group-of-{topic}"
    with server.consumer(group_id=group, group_instance_id="one") as one:
        one.subscribe(topic)
        poll_until([one], lambda: numbers(one) == {0})
        with server.consumer(group_id=group, group_instance_id="one") as other:
            other.subscribe(topic)
            poll_until([other], lambda: numbers(other) == {0})
            with pytest.raises(FencedInstanceId, match=r"group\.instance\.id"):
                poll_until([one], lambda: False)


def test_a_pattern_follows_topics_that_come(server: Server, protocol: dict[str, object]) -> None:
    prefix = f"{server.topic()}-matched"
    first = server.topic(name=f"{prefix}-1")
    server.produce(first, [b"1"])
    with server.consumer(group_id=f"group-of-{prefix}", metadata_max_age_ms=200, **protocol) as consumer:
        consumer.subscribe(re.compile(f"{prefix}-.*"))
        assert values(read(consumer, 1)) == [b"1"]
        assert consumer.subscription() == {first}
        second = server.topic(name=f"{prefix}-2")
        server.produce(second, [b"2"])
        assert values(read(consumer, 1)) == [b"2"]
        assert consumer.assignment() == {TopicPartition(first, 0), TopicPartition(second, 0)}


def test_a_pattern_that_the_broker_matches(server: Server) -> None:
    if not server.has_consumer_protocol:
        pytest.skip("Apache Kafka 3.9 does not offer the new protocol unless it is asked to")
    prefix = f"{server.topic()}-matched"
    first = server.topic(name=f"{prefix}-1")
    server.produce(first, [b"1"])
    with server.consumer(
        group_id=f"group-of-{prefix}", metadata_max_age_ms=200, group_protocol="consumer"
    ) as consumer:
        consumer.subscribe(pattern=f"{prefix}-[0-9]+")
        assert values(read(consumer, 1)) == [b"1"]


def test_another_subscription(server: Server, protocol: dict[str, object]) -> None:
    first, second = server.topic(), server.topic()
    server.produce(first, [b"1"])
    server.produce(second, [b"2"])
    events = Listener()
    with server.consumer(group_id=f"group-of-{first}", **protocol) as consumer:
        consumer.subscribe(first, listener=events)
        assert values(read(consumer, 1)) == [b"1"]
        consumer.subscribe([second], listener=events)
        assert values(read(consumer, 1)) == [b"2"]
        assert consumer.assignment() == {TopicPartition(second, 0)}
        consumer.unsubscribe()
        assert consumer.assignment() == set()
        with pytest.raises(ConsumerError, match=r"subscribe\(\)"):
            consumer.poll()
        consumer.subscribe([first, second], listener=events)
        poll_until([consumer], lambda: len(consumer.assignment()) == 2)
    assert [what for what, _ in events.events] == ["assigned", "revoked"] * 3


def test_new_partitions_are_read(server: Server, protocol: dict[str, object]) -> None:
    topic = server.topic(1)
    with server.consumer(group_id=f"group-of-{topic}", metadata_max_age_ms=200, **protocol) as consumer:
        consumer.subscribe(topic)
        poll_until([consumer], lambda: numbers(consumer) == {0})
        server.admin.create_partitions({topic: 3})
        poll_until([consumer], lambda: numbers(consumer) == {0, 1, 2})
        server.produce(topic, [b"there"], partition=2)
        assert values(read(consumer, 1)) == [b"there"]


def test_a_listener_may_seek_and_commit(server: Server, protocol: dict[str, object]) -> None:
    topic = server.topic(1)
    group = f"group-of-{topic}"
    server.produce(topic, numbered(10))
    partition = TopicPartition(topic, 0)

    class Seeking(barnabas.RebalanceListener):
        def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            assert consumer.position(partition) == 0
            consumer.seek(partition, 6)

        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            consumer.commit({partition: 8})

    with server.consumer(group_id=group, enable_auto_commit=False, **protocol) as consumer:
        consumer.subscribe(topic, listener=Seeking())
        assert values(read(consumer, 4)) == numbered(4, 6)
    with server.consumer(group_id=group, enable_auto_commit=False, **protocol) as consumer:
        assert consumer.committed(partition) == {partition: barnabas.OffsetAndMetadata(8)}


def test_a_listener_that_fails_fails_in_poll(server: Server) -> None:
    topic = server.topic(1)

    class Failing(barnabas.RebalanceListener):
        def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            raise LookupError("of the listener")

    with server.consumer(group_id=f"group-of-{topic}") as consumer:
        consumer.subscribe(topic, listener=Failing())
        with pytest.raises(LookupError, match="of the listener"):
            poll_until([consumer], lambda: False)
        # The partition is assigned all the same, as in Kafka.
        server.produce(topic, [b"1"])
        assert values(read(consumer, 1)) == [b"1"]


def test_who_does_not_poll_loses_its_partitions(server: Server, protocol: dict[str, object]) -> None:
    topic = server.topic(1)
    group = f"group-of-{topic}"
    events = Listener()
    server.produce(topic, numbered(3))
    slow_settings = {"max_poll_interval_ms": 500, "enable_auto_commit": False}
    with (
        server.consumer(group_id=group, **slow_settings, **protocol) as slow,
        server.consumer(group_id=group, **protocol) as quick,
    ):
        slow.subscribe(topic, listener=events)
        read(slow, 3)
        quick.subscribe(topic)
        assert values(read(quick, 3)) == numbered(3)
        assert numbers(quick) == {0}
        with pytest.raises((UnknownMemberId, IllegalGeneration, RebalanceInProgress, KafkaError)):
            slow.commit()
        # It is a member again as soon as it polls.
        poll_until([slow, quick], lambda: ("lost", [0]) in events.events)


def test_groups_that_do_not_fit(server: Server) -> None:
    topic = server.topic(1)
    group = f"group-of-{topic}"
    with (
        server.consumer(group_id=group, partition_assignment_strategy="range") as one,
        server.consumer(group_id=group, partition_assignment_strategy="sticky") as other,
    ):
        one.subscribe(topic)
        poll_until([one], lambda: numbers(one) == {0})
        other.subscribe(topic)
        with pytest.raises(InconsistentGroupProtocol, match=r"partition\.assignment\.strategy"):
            poll_until([one, other], lambda: False)


def test_an_assignor_that_the_broker_does_not_have(server: Server) -> None:
    if not server.has_consumer_protocol:
        pytest.skip("Apache Kafka 3.9 does not offer the new protocol unless it is asked to")
    topic = server.topic(1)
    with server.consumer(
        group_id=f"group-of-{topic}", group_protocol="consumer", group_remote_assignor="best"
    ) as consumer:
        consumer.subscribe(topic)
        with pytest.raises(UnsupportedAssignor):
            poll_until([consumer], lambda: False)


def test_members_come_and_go_under_load(server: Server, protocol: dict[str, object]) -> None:
    """Whatever happens in between, every record is read by somebody."""
    topic = server.topic(6)
    group = f"group-of-{topic}"
    seen: set[tuple[int, int]] = set()
    is_over = threading.Event()

    def produce() -> None:
        with barnabas.Producer(bootstrap_servers=server.address) as producer:
            for number in range(1_200):
                producer.send(topic, b"%d" % number, partition=number % 6)
                if number % 100 == 0:
                    producer.flush(timeout_ms=WAIT_S * 1000)
            producer.flush(timeout_ms=WAIT_S * 1000)
        is_over.set()

    def poll_all(consumers: list[barnabas.Consumer]) -> None:
        for consumer in consumers:
            seen.update((record.partition, record.offset) for record in consumer.poll(5))

    writer = threading.Thread(target=produce)
    writer.start()
    with ExitStack() as stack:
        consumers: list[barnabas.Consumer] = []
        for number in range(3):
            consumer = stack.enter_context(
                server.consumer(group_id=group, max_poll_records=20, client_id=f"member-{number}", **protocol)
            )
            consumer.subscribe(topic)
            consumers.append(consumer)
            for _ in range(10):
                poll_all(consumers)
        consumers.pop(0).close()
        deadline = Deadline()
        while len(seen) < 1_200:
            deadline.check(f"{len(seen)} of 1200")
            poll_all(consumers)
    writer.join()
    assert is_over.is_set()
    assert seen == {(partition, offset) for partition in range(6) for offset in range(200)}


def test_offsets_in_a_transaction(server: Server) -> None:
    source, sink = server.topic(), server.topic()
    group = f"group-of-{source}"
    server.produce(source, numbered(6))
    settings: dict[str, Any] = {"bootstrap_servers": server.address, "transactional_id": f"of-{source}"}
    with (
        server.consumer(
            group_id=group, enable_auto_commit=False, isolation_level="read_committed"
        ) as consumer,
        barnabas.Producer(settings) as producer,
    ):
        producer.init_transactions()
        consumer.subscribe(source)
        records = read(consumer, 6)
        with producer.transaction():
            for record in records[:4]:
                producer.send(sink, record.value, partition=0)
            producer.send_offsets_to_transaction({TopicPartition(source, 0): 4}, consumer.group_metadata())
    with server.consumer(group_id=group, isolation_level="read_committed") as consumer:
        partition = TopicPartition(source, 0)
        found = consumer.committed(partition)[partition]
        assert found is not None
        assert found.offset == 4
