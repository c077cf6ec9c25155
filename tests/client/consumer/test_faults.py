"""The consumer under faults: connections cut at any byte, brokers killed and restarted. Nothing is skipped."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import barnabas
from barnabas.errors import RequestTimedOut
from barnabas.model import TopicPartition
from tests.broker.record_requests import create_topic
from tests.client.consumer_servers import consumer_settings, numbered, read, values
from tests.client.proxy import Plan, Proxy, seeded
from tests.clients.broker_process import BrokerProcess, restarting
from tests.waiting import Deadline

WAIT_S = 90

pytestmark = pytest.mark.slow


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy() as running:
        yield running


@pytest.fixture
def proxied(tmp_path: Path, proxy: Proxy) -> Iterator[BrokerProcess]:
    """A broker that tells its clients to come through the proxy."""
    broker = BrokerProcess(
        tmp_path / "data",
        {
            "advertised.listeners": f"PLAINTEXT://{proxy.address}",
            "group.initial.rebalance.delay.ms": "0",
            "group.consumer.heartbeat.interval.ms": "100",
            "group.consumer.min.heartbeat.interval.ms": "100",
            "offsets.topic.num.partitions": "1",
        },
    )
    proxy.target_port = broker.port
    with broker:
        yield broker


def consumer_of(address: str, **settings: object) -> barnabas.Consumer:
    return barnabas.Consumer(
        bootstrap_servers=address,
        **consumer_settings(
            {
                "retry_backoff_max_ms": 50,
                "reconnect_backoff_max_ms": 50,
                "max_partition_fetch_bytes": 3_000,
                **settings,
            }
        ),
    )


class CountingListener(barnabas.RebalanceListener):
    def __init__(self) -> None:
        self.assignments = 0

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.assignments += 1


def fill(broker: BrokerProcess, partitions: int, count: int) -> None:
    """Records of each partition count from 0; they go to the broker without the proxy."""
    with broker.client() as client:
        create_topic(client, "t", partitions)
    with barnabas.Producer(
        bootstrap_servers=broker.address, batch_size=1_000, delivery_timeout_ms=120_000
    ) as producer:
        for number in range(count):
            for partition in range(partitions):
                producer.send("t", b"%d" % number, partition=partition)
        producer.flush(timeout_ms=WAIT_S * 1000)


def check_order(records: list[barnabas.ConsumerRecord], partitions: int, count: int) -> None:
    for partition in range(partitions):
        assert values([each for each in records if each.partition == partition]) == numbered(count)


@pytest.mark.parametrize("seed", range(3))
def test_connections_cut_at_any_byte(proxied: BrokerProcess, proxy: Proxy, seed: int) -> None:
    fill(proxied, 2, 2_000)
    proxy.planner = seeded(seed, longest=60_000)
    with consumer_of(proxy.address) as consumer:
        consumer.assign([("t", 0), ("t", 1)])
        records = read(consumer, 4_000)
    assert proxy.cuts > 0
    check_order(records, 2, 2_000)


def test_every_byte_of_an_answer(proxied: BrokerProcess, proxy: Proxy) -> None:
    """A connection that dies after each single byte of its answers, one connection after the other."""
    fill(proxied, 1, 2_000)
    proxy.planner = lambda number: Plan(cut_responses_after=1 + 13 * number) if number < 150 else Plan()
    with consumer_of(proxy.address) as consumer:
        consumer.assign([("t", 0)])
        records = read(consumer, 2_000)
    assert proxy.cuts > 10
    check_order(records, 1, 2_000)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("seed", range(2))
def test_a_group_whose_connections_are_cut(
    proxied: BrokerProcess, proxy: Proxy, seed: int, protocol: str
) -> None:
    """Commits and heartbeats are cut too: somebody may read twice, and nothing is left out."""
    fill(proxied, 4, 300)
    proxy.planner = seeded(seed, longest=40_000)
    seen: dict[int, set[int]] = {partition: set() for partition in range(4)}
    deadline = Deadline(WAIT_S)
    with (
        consumer_of(proxy.address, group_id="g", group_protocol=protocol, max_poll_records=30) as one,
        consumer_of(proxy.address, group_id="g", group_protocol=protocol, max_poll_records=30) as other,
    ):
        one.subscribe("t")
        other.subscribe("t")
        while sum(map(len, seen.values())) < 1_200:
            deadline.check({key: len(found) for key, found in seen.items()})
            for consumer in (one, other):
                for record in consumer.poll(10):
                    seen[record.partition].add(record.offset)
        proxy.planner = lambda number: Plan()
    assert proxy.cuts > 0


@pytest.mark.parametrize("how", ["killed", "stopped"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_broker_that_goes_and_comes_back(tmp_path: Path, how: str, protocol: str) -> None:
    settings = {
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.heartbeat.interval.ms": "100",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "offsets.topic.num.partitions": "1",
    }
    with BrokerProcess(tmp_path / "data", settings) as broker:
        fill(broker, 2, 500)
        records: list[barnabas.ConsumerRecord] = []
        with consumer_of(
            broker.address, group_id="g", group_protocol=protocol, max_poll_records=50
        ) as consumer:
            consumer.subscribe("t")
            while len(records) < 200:
                records += consumer.poll(100)
            consumer.commit()
            if how == "killed":
                broker.kill()
                broker.start()
            else:
                broker.restart()
            deadline = Deadline(WAIT_S)
            while len({(each.partition, each.offset) for each in records}) < 1_000:
                deadline.check(len(records))
                records += consumer.poll(100)
            consumer.commit()
            committed = consumer.committed(("t", 0), ("t", 1))
        assert {partition.partition: found and found.offset for partition, found in committed.items()} == {
            0: 500,
            1: 500,
        }
        # What was committed before the broker went is not read again.
        offsets = [(each.partition, each.offset) for each in records]
        assert len(set(offsets[:200])) == 200
        assert not set(offsets[:200]) & set(offsets[200:])
        with consumer_of(broker.address, group_id="g", group_protocol=protocol) as consumer:
            consumer.subscribe("t")
            deadline = Deadline(WAIT_S)
            while len(consumer.assignment()) < 2:
                assert consumer.poll(50) == []
                deadline.check(consumer.assignment())
            assert {consumer.position(("t", partition)) for partition in range(2)} == {500}
            assert consumer.poll(50) == []


def test_restarts_under_load(tmp_path: Path) -> None:
    """An idempotent producer writes and a consumer reads while the broker restarts: all of it, once and in order."""
    count = 3_000
    with BrokerProcess(tmp_path / "data") as broker:
        with broker.client() as client:
            create_topic(client, "t")
        is_over = threading.Event()

        def produce() -> None:
            with barnabas.Producer(
                bootstrap_servers=broker.address, retry_backoff_ms=10, reconnect_backoff_ms=10
            ) as producer:
                for number in range(count):
                    producer.send("t", b"%d" % number, partition=0)
                    if number % 100 == 0:
                        producer.flush(timeout_ms=WAIT_S * 1000)
                    if number > count // 2:
                        # The rest comes when the restarts are over.
                        is_over.wait(WAIT_S)
                producer.flush(timeout_ms=WAIT_S * 1000)

        writer = threading.Thread(target=produce)
        with consumer_of(broker.address) as consumer:
            consumer.assign([("t", 0)])
            writer.start()
            records: list[barnabas.ConsumerRecord] = []
            with restarting(broker, times=2) as restarted:
                while not restarted.is_set():
                    records += consumer.poll(50)
                is_over.set()
            records += read(consumer, count - len(records))
        writer.join()
    assert values(records) == numbered(count)


def test_a_broker_that_does_not_answer(proxied: BrokerProcess, proxy: Proxy) -> None:
    fill(proxied, 1, 10)
    with consumer_of(proxy.address, request_timeout_ms=300) as consumer:
        consumer.assign([("t", 0)])
        read(consumer, 10)
        proxy.hold()
        time_before_s = time.monotonic()
        assert consumer.poll(1_000) == []
        assert time.monotonic() - time_before_s >= 0.9
        proxy.cut_all()
        proxy.release()
        with barnabas.Producer(bootstrap_servers=proxied.address) as producer:
            producer.send("t", b"after", partition=0).result(WAIT_S)
        assert values(read(consumer, 1)) == [b"after"]


def test_what_could_not_be_committed_meanwhile_is_committed_later(
    proxied: BrokerProcess, proxy: Proxy
) -> None:
    fill(proxied, 1, 10)
    partition = TopicPartition("t", 0)
    with consumer_of(proxy.address, group_id="g", auto_commit_interval_ms=0) as consumer:
        consumer.assign([partition])
        assert consumer.committed(partition) == {partition: None}
        taken = 0
        while not taken:
            taken = len(consumer.poll(100, max_records=1))
        proxy.hold()
        while taken < 10:
            taken += len(consumer.poll(100, max_records=1))
        consumer.poll(0)
        proxy.release()
        deadline = Deadline(WAIT_S)
        while (found := consumer.committed(partition)[partition]) is None or found.offset < 10:
            deadline.check(found)
            consumer.poll(0)


def test_commit_and_close_take_no_longer_than_they_may(proxied: BrokerProcess, proxy: Proxy) -> None:
    fill(proxied, 1, 10)
    partition = TopicPartition("t", 0)
    hour_ms = 3_600_000
    consumer = consumer_of(
        proxy.address,
        group_id="g",
        auto_commit_interval_ms=0,
        default_api_timeout_ms=hour_ms,
        request_timeout_ms=hour_ms,
    )
    consumer.assign([partition])
    assert consumer.committed(partition) == {partition: None}
    read(consumer, 10)
    proxy.hold()
    # This begins a commit that is not answered.
    consumer.poll(0)
    raised: list[BaseException] = []

    def end() -> None:
        for call in (consumer.commit, consumer.close):
            try:
                call(timeout_ms=200)
            except Exception as error:
                raised.append(error)

    ending = threading.Thread(target=end, daemon=True)
    ending.start()
    ending.join(WAIT_S)
    assert not ending.is_alive()
    assert [type(error) for error in raised] == [RequestTimedOut, RequestTimedOut]
    proxy.release()


def test_a_topic_that_is_made_anew(tmp_path: Path) -> None:
    """The position is that of another topic of the same name: reading goes on as auto.offset.reset says."""
    with (
        BrokerProcess(tmp_path / "data") as broker,
        barnabas.Admin(bootstrap_servers=broker.address) as admin,
        consumer_of(broker.address, metadata_max_age_ms=200, allow_auto_create_topics=False) as consumer,
    ):
        fill(broker, 1, 20)
        consumer.assign([("t", 0)])
        assert values(read(consumer, 20)) == numbered(20)
        admin.delete_topics(["t"])
        assert consumer.poll(100) == []
        fill(broker, 1, 5)
        assert values(read(consumer, 5)) == numbered(5)
        assert consumer.position(TopicPartition("t", 0)) == 5


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_wall_clock_that_jumps_does_not_matter(
    proxied: BrokerProcess, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    """Sessions, heartbeats, commits and waits go by a clock that never jumps: nobody leaves, nothing is skipped."""
    fill(proxied, 2, 500)
    jumps_s = itertools.cycle((0, -86_400, 86_400, -1_700_000_000))
    true_time, true_time_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: true_time() + next(jumps_s))
    monkeypatch.setattr(time, "time_ns", lambda: true_time_ns() + next(jumps_s) * 10**9)
    listener = CountingListener()
    with consumer_of(
        proxied.address,
        group_id="g",
        group_protocol=protocol,
        max_poll_records=50,
        auto_commit_interval_ms=10,
    ) as consumer:
        consumer.subscribe("t", listener=listener)
        records = read(consumer, 1_000)
        consumer.commit()
        assert [None if each is None else each.offset for each in consumer.committed().values()] == [500, 500]
        assert listener.assignments == 1
    check_order(records, 2, 500)
