"""Transactions of confluent-kafka (librdkafka): commit, abort, fencing, time-outs, offsets, brokers that are killed."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.broker_process import BrokerProcess
from tests.waiting import Deadline, wait_until

# It bounds a wait on a busy machine; it is not what is expected.
WAIT_S = 120
PARTITIONS = 3
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("transactions") / "data", SETTINGS) as running:
        yield running
        assert "Traceback" not in running.log_text(), running.log_text()


def create(broker: BrokerProcess, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics]).values():
        future.result(WAIT_S)


def producer_of(broker: BrokerProcess, transactional_id: str, **settings: Any) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": broker.address,
            "transactional.id": transactional_id,
            "linger.ms": 0,
            # Restarts of the broker are part of some tests, and librdkafka would tell of each.
            "log_level": 0,
            "reconnect.backoff.max.ms": 500,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    producer.init_transactions(WAIT_S)
    return producer


def write(producer: Producer, topic: str, *values: bytes) -> None:
    """A record for each value, partition by partition."""
    for index, value in enumerate(values):
        producer.produce(topic, value, partition=index % PARTITIONS)


@contextmanager
def consuming(broker: BrokerProcess, topic: str, **settings: Any) -> Iterator[Consumer]:
    """Reads all partitions from their beginning, committed records alone unless told otherwise."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        yield consumer
    finally:
        consumer.close()


def poll(consumer: Consumer, timeout_s: float = 0.1) -> Message | None:
    message = consumer.poll(timeout_s)
    if message is not None and message.error() is not None:
        # A broker that is away for a moment.
        assert message.error().retriable() or message.error().code() == KafkaError._ALL_BROKERS_DOWN
        return None
    return message


def read(broker: BrokerProcess, topic: str, *, isolation: str = "read_committed") -> list[bytes]:
    """The values of all records up to the end as it is for this isolation, in no particular order."""
    found: list[bytes] = []
    unread = set(range(PARTITIONS))
    with consuming(broker, topic, isolation_level=isolation, enable_partition_eof=True) as consumer:
        deadline = Deadline(WAIT_S)
        while unread:
            deadline.check((found, unread))
            message = consumer.poll(0.1)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                unread.discard(message.partition())
                continue
            value = message.value()
            assert value is not None
            found.append(value)
    return found


def error_of(call: Callable[[], object]) -> KafkaError:
    with pytest.raises(KafkaException) as caught:
        call()
    error: KafkaError = caught.value.args[0]
    return error


def test_committed_records_are_seen_and_aborted_ones_are_not(broker: BrokerProcess, topic: str) -> None:
    create(broker, topic)
    producer = producer_of(broker, topic)
    producer.begin_transaction()
    write(producer, topic, *(b"first-%d" % number for number in range(9)))
    producer.flush(WAIT_S)
    assert read(broker, topic) == []
    assert len(read(broker, topic, isolation="read_uncommitted")) == 9
    producer.commit_transaction(WAIT_S)
    assert sorted(read(broker, topic)) == [b"first-%d" % number for number in range(9)]

    producer.begin_transaction()
    write(producer, topic, *(b"second-%d" % number for number in range(9)))
    producer.flush(WAIT_S)
    producer.abort_transaction(WAIT_S)
    producer.begin_transaction()
    write(producer, topic, b"third")
    producer.commit_transaction(WAIT_S)
    assert sorted(read(broker, topic)) == [*(b"first-%d" % number for number in range(9)), b"third"]
    assert len(read(broker, topic, isolation="read_uncommitted")) == 19


def test_a_reader_waits_behind_an_open_transaction(broker: BrokerProcess, topic: str) -> None:
    create(broker, topic)
    slow, quick = producer_of(broker, f"{topic}-slow"), producer_of(broker, f"{topic}-quick")
    slow.begin_transaction()
    write(slow, topic, b"slow")
    slow.flush(WAIT_S)
    quick.begin_transaction()
    write(quick, topic, b"quick")
    quick.commit_transaction(WAIT_S)
    with consuming(broker, topic) as consumer:
        assert poll(consumer, 0.5) is None
        slow.commit_transaction(WAIT_S)
        deadline = Deadline(WAIT_S)
        found: list[bytes | None] = []
        while len(found) < 2:
            deadline.check(found)
            if (message := poll(consumer)) is not None:
                found.append(message.value())
    assert found == [b"slow", b"quick"]


def test_large_transactions_of_several_batches(broker: BrokerProcess, topic: str) -> None:
    create(broker, topic)
    producer = producer_of(broker, topic, batch_num_messages=100)
    expected: list[bytes] = []
    for number in range(6):
        producer.begin_transaction()
        batch = [b"%d-%d" % (number, each) for each in range(1_500)]
        write(producer, topic, *batch)
        if number % 2:
            producer.abort_transaction(WAIT_S)
        else:
            producer.commit_transaction(WAIT_S)
            expected += batch
    assert sorted(read(broker, topic)) == sorted(expected)


def test_a_second_producer_fences_the_first(broker: BrokerProcess, topic: str) -> None:
    create(broker, topic)
    first = producer_of(broker, topic)
    first.begin_transaction()
    write(first, topic, b"zombie")
    first.flush(WAIT_S)
    second = producer_of(broker, topic)
    # What the first has left open is aborted by now.
    assert read(broker, topic) == []
    error = error_of(lambda: first.commit_transaction(WAIT_S))
    assert error.fatal()
    assert error.code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    second.begin_transaction()
    write(second, topic, b"alive")
    second.commit_transaction(WAIT_S)
    assert read(broker, topic) == [b"alive"]


def test_a_transaction_that_takes_too_long_is_aborted(broker: BrokerProcess, topic: str) -> None:
    create(broker, topic)
    late = producer_of(broker, f"{topic}-late", transaction_timeout_ms=1_000)
    late.begin_transaction()
    write(late, topic, b"late")
    late.flush(WAIT_S)
    other = producer_of(broker, f"{topic}-other")
    other.begin_transaction()
    write(other, topic, b"other")
    other.commit_transaction(WAIT_S)
    wait_until(
        lambda: read(broker, topic) == [b"other"],
        "the transaction is still open",
        timeout_s=WAIT_S,
        poll_s=0.05,
    )
    error_of(lambda: late.commit_transaction(WAIT_S))
    assert read(broker, topic) == [b"other"]


def test_records_are_read_transformed_and_written_once(broker: BrokerProcess, topic: str) -> None:
    source, target = f"{topic}-source", f"{topic}-target"
    create(broker, source, target)
    count = 300
    plain = Producer({"bootstrap.servers": broker.address, "log_level": 0})
    for number in range(count):
        plain.produce(source, b"%d" % number, partition=number % PARTITIONS)
    assert plain.flush(WAIT_S) == 0

    attempts = itertools.count()
    for commits in (4, 4, count):
        # Each run is a new process, as it were: it goes on where the group's committed offsets are.
        producer = producer_of(broker, topic)
        consumer = Consumer(
            {
                "bootstrap.servers": broker.address,
                "group.id": topic,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        consumer.subscribe([source])
        try:
            transform(consumer, producer, target, attempts, commits=commits, count=count)
        finally:
            consumer.close()
    assert sorted(map(int, read(broker, target))) == list(range(count))


def transform(
    consumer: Consumer, producer: Producer, target: str, attempts: Iterator[int], *, commits: int, count: int
) -> None:
    """Copies in transactions of up to 20 records, every third of which is aborted and tried again."""
    committed = 0
    deadline = Deadline(WAIT_S)
    while commits and committed < count:
        deadline.check(committed)
        messages = [each for each in consumer.consume(20, 0.05) if each.error() is None]
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value(), partition=message.partition())
        producer.send_offsets_to_transaction(
            [each for each in consumer.position(consumer.assignment()) if each.offset >= 0],
            consumer.consumer_group_metadata(),
            WAIT_S,
        )
        if next(attempts) % 3 == 1:
            producer.abort_transaction(WAIT_S)
            for position in consumer.committed(consumer.assignment(), WAIT_S):
                consumer.seek(TopicPartition(position.topic, position.partition, max(position.offset, 0)))
        else:
            producer.commit_transaction(WAIT_S)
            commits -= 1
            offsets = consumer.committed(consumer.assignment(), WAIT_S)
            committed = sum(max(each.offset, 0) for each in offsets)


def test_offsets_of_a_member_that_is_gone_are_refused(broker: BrokerProcess, topic: str) -> None:
    create(broker, topic)
    settings = {"bootstrap.servers": broker.address, "group.id": topic, "log_level": 0}
    first = Consumer({**settings, "session.timeout.ms": 6_000})
    first.subscribe([topic])
    wait_until(first.assignment, timeout_s=WAIT_S, meanwhile=lambda: first.poll(0.05))
    stale = first.consumer_group_metadata()
    first.close()
    producer = producer_of(broker, topic)
    producer.begin_transaction()
    error = error_of(
        lambda: producer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], stale, WAIT_S)
    )
    assert error.code() in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION)
    assert error.txn_requires_abort()
    producer.abort_transaction(WAIT_S)


def test_a_transaction_outlives_a_broker_that_is_killed(tmp_path: Any) -> None:
    with BrokerProcess(tmp_path / "data", SETTINGS) as broker:
        create(broker, "topic")
        producer = producer_of(broker, "transaction", transaction_timeout_ms=600_000)
        producer.begin_transaction()
        write(producer, "topic", *(b"before-%d" % number for number in range(30)))
        producer.flush(WAIT_S)
        broker.kill()
        # More is on its way while nobody is there to take it.
        write(producer, "topic", *(b"after-%d" % number for number in range(30)))
        broker.start()
        assert read(broker, "topic") == []
        producer.commit_transaction(WAIT_S)
        assert sorted(read(broker, "topic")) == sorted(
            b"%s-%d" % (when, number) for when in (b"before", b"after") for number in range(30)
        )
        producer.begin_transaction()
        write(producer, "topic", b"aborted")
        producer.flush(WAIT_S)
        broker.kill()
        broker.start()
        producer.abort_transaction(WAIT_S)
        assert b"aborted" not in read(broker, "topic")


def test_transactions_are_all_or_nothing_however_the_broker_is_killed(tmp_path: Any) -> None:
    """Each transaction writes one record to each partition; the broker is killed at any moment, commits included."""
    with BrokerProcess(tmp_path / "data", SETTINGS) as broker:
        create(broker, "topic")
        producer = producer_of(broker, "transaction", transaction_timeout_ms=600_000)
        outcomes: dict[int, bool] = {}
        failures: list[BaseException] = []
        is_over = threading.Event()

        def run() -> None:
            try:
                for number in itertools.count():
                    if is_over.is_set():
                        return
                    producer.begin_transaction()
                    write(producer, "topic", *[b"%d" % number] * PARTITIONS)
                    if number % 4 == 3:
                        producer.flush(WAIT_S)
                        producer.abort_transaction(WAIT_S)
                        outcomes[number] = False
                    else:
                        producer.commit_transaction(WAIT_S)
                        outcomes[number] = True
            except BaseException as error:
                failures.append(error)

        def reaches(count: int) -> bool:
            return len(outcomes) >= count or bool(failures)

        thread = threading.Thread(target=run, name="transactions")
        thread.start()
        try:
            for _ in range(3):
                wait_until(
                    partial(reaches, len(outcomes) + 10),
                    lambda: f"{len(outcomes)} transactions",
                    timeout_s=WAIT_S,
                )
                broker.kill()
                broker.start()
        finally:
            is_over.set()
            thread.join()
        if failures:
            raise failures[0]
        found = read(broker, "topic")
        committed = sorted(number for number, is_committed in outcomes.items() if is_committed)
        assert sorted(map(int, found)) == sorted(committed * PARTITIONS)


def test_an_idempotent_producer_goes_on_when_the_broker_was_killed(tmp_path: Any) -> None:
    """Each record is there once and in order, though up to five batches of a partition are sent again each time."""
    with BrokerProcess(tmp_path / "data", SETTINGS) as broker:
        create(broker, "topic")
        failures: list[object] = []
        producer = Producer(
            {
                "bootstrap.servers": broker.address,
                "enable.idempotence": True,
                "max.in.flight": 5,
                "batch.num.messages": 3,
                "linger.ms": 0,
                "log_level": 0,
                "reconnect.backoff.max.ms": 500,
                "error_cb": lambda error: failures.append(error) if error.fatal() else None,
            }
        )

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        numbers = itertools.count()
        sent = 0
        for how in (broker.kill, broker.stop, broker.kill):
            for _ in range(300):
                sent = next(numbers)
                producer.produce("topic", b"%d" % sent, partition=sent % PARTITIONS, on_delivery=delivered)
                producer.poll(0)
            # Some of them are under way now.
            how()
            broker.start()
        assert producer.flush(WAIT_S) == 0
        assert failures == []
        found: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        for number in map(int, read(broker, "topic")):
            found[number % PARTITIONS].append(number)
        assert found == {
            partition: list(range(partition, sent + 1, PARTITIONS)) for partition in range(PARTITIONS)
        }
