"""The producer compared with confluent-kafka, aiokafka and kafka-python: the same records, the same broker, in one run.

Contenders alternate, round by round, and the ratio to confluent-kafka is taken within a round: a temporary slowdown of
the machine affects all. A rate counts from the first call until the last acknowledgement. confluent-kafka and Barnabas
return a result for every record (`on_delivery` there, the future here). All are idempotent where they can be, and all
have room for the same number of bytes. The latency is measured from the call to the acknowledgement of single records,
1,000 per second, with the default settings of each.

BENCH_RECORDS is the number of records of a round. If Java and Maven are available, the table is printed twice: for our
broker and for Apache Kafka.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import aiokafka
import confluent_kafka
import kafka

import barnabas
from barnabas.errors import RequestTimedOut
from bench.kafka import ApacheKafka, MeasuredBroker
from bench.table import Table, duration, ratio, verdict
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import create_topic
from tests.clients.broker_process import BrokerProcess
from tests.peers.kafka_peer import PeerUnavailable

RECORDS: Final = int(os.environ.get("BENCH_RECORDS", "300000"))
ROUNDS: Final = 5
# The slow ones send fewer, so that a round does not take for ever.
FEWER: Final = 10
VALUE: Final = bytes(range(100))
PARTITIONS: Final = 3
TOPIC: Final = "bench"

BUFFER_BYTES: Final = 32 << 20
STALL_RECORDS: Final = 10_000_000

LATENCY_RATE: Final = 1_000
LATENCY_RECORDS: Final = 3_000

SEND: Final = "barnabas send"
SEND_MANY: Final = "barnabas send_many"
CONFLUENT: Final = "confluent-kafka produce, on_delivery"
AIOKAFKA: Final = "aiokafka send"
KAFKA_PYTHON: Final = "kafka-python send"

TARGETS: Final = {SEND: 1.0, SEND_MANY: 3.0}

# How many records a second; and the latencies of single records in seconds.
Rate = Callable[[], float]
Latencies = Callable[[], list[float]]


def run() -> bool:
    met = True
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        brokers: dict[str, Callable[[], BrokerProcess]] = {
            "Barnabas": lambda: MeasuredBroker(folder / "barnabas"),
            "Apache Kafka": lambda: ApacheKafka(folder / "kafka"),
        }
        for name, make in brokers.items():
            try:
                with make() as broker:
                    met = _run_on(broker, name) and met
            except PeerUnavailable as reason:
                print(f"\nno table on {name}: {reason}")
    return met


def _run_on(broker: BrokerProcess, name: str) -> bool:
    with RawClient(broker.port) as client:
        create_topic(client, TOPIC, PARTITIONS)
    with ExitStack() as stack:
        contenders = _contenders(broker.address, stack)
        rates: dict[str, list[float]] = {each: [] for each in contenders}
        for rate in contenders.values():
            rate()
        for _ in range(ROUNDS):
            for each, rate in contenders.items():
                rates[each].append(rate())
    table = Table(
        f"Producers on {name}: {RECORDS:,} records of {len(VALUE)} bytes, {PARTITIONS} partitions, {ROUNDS} rounds",
        ("", "records/s", "compared with confluent-kafka", "target", ""),
    )
    met = True
    for each, found in rates.items():
        beside = statistics.median(
            ours / theirs for ours, theirs in zip(found, rates[CONFLUENT], strict=True)
        )
        target = TARGETS.get(each)
        is_met = target is None or beside >= target
        met = met and is_met
        table.add(
            each,
            f"{statistics.median(found):,.0f}",
            ratio(beside),
            "" if target is None else f"≥ {ratio(target)}",
            "" if target is None else verdict(is_met),
        )
    table.print()
    met = _latencies(broker.address, name) and met
    return _stall(broker, name) and met


def _stall(broker: BrokerProcess, name: str) -> bool:
    """How far memory grows while the broker stands still: the buffer, and what Python needs around it."""
    with barnabas.Producer(bootstrap_servers=broker.address, max_block_ms=1_000) as producer:
        producer.send(TOPIC, VALUE).result(60)
        before_bytes = _rss_bytes()
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            taken = 0
            while taken < STALL_RECORDS:
                producer.send(TOPIC, VALUE)
                taken += 1
        except RequestTimedOut:
            pass
        finally:
            grown_bytes = _rss_bytes() - before_bytes
            os.kill(broker.pid, signal.SIGCONT)
        producer.flush(timeout_ms=60_000)
    met = taken < STALL_RECORDS and grown_bytes <= 2 * BUFFER_BYTES
    print(
        f"\nMemory while {name} stands still: {taken:,} records taken, {grown_bytes / 1e6:.0f} MB grown,"
        f" target ≤ {2 * BUFFER_BYTES / 1e6:.0f} MB (twice buffer.memory): {verdict(met)}",
        flush=True,
    )
    return met


def _rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _contenders(address: str, stack: ExitStack) -> dict[str, Rate]:
    producer = stack.enter_context(barnabas.Producer(bootstrap_servers=address))
    theirs = confluent_kafka.Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 10_000_000,
            "queue.buffering.max.kbytes": 32 * 1024,
            "log_level": 2,
        }
    )
    slow = kafka.KafkaProducer(bootstrap_servers=address, acks="all")
    stack.callback(slow.close)
    values: list[bytes | None] = [VALUE] * RECORDS

    def send() -> None:
        futures = [producer.send(TOPIC, VALUE) for _ in range(RECORDS)]
        producer.flush()
        assert futures[-1].result(0).offset >= 0

    def send_many() -> None:
        future = producer.send_many(TOPIC, values)
        producer.flush()
        assert future.exception(0) is None

    def confluent() -> None:
        told = _Counter()
        for _ in range(RECORDS):
            while True:
                try:
                    theirs.produce(TOPIC, VALUE, on_delivery=told)
                    break
                except BufferError:
                    theirs.poll(0.01)
            theirs.poll(0)
        assert theirs.flush(120) == 0
        assert told.count == RECORDS

    def kafka_python() -> None:
        for _ in range(RECORDS // FEWER):
            slow.send(TOPIC, VALUE)
        slow.flush()

    return {
        CONFLUENT: _rate(confluent, RECORDS),
        SEND: _rate(send, RECORDS),
        SEND_MANY: _rate(send_many, RECORDS),
        AIOKAFKA: lambda: asyncio.run(_aiokafka_rate(address)),
        KAFKA_PYTHON: _rate(kafka_python, RECORDS // FEWER),
    }


class _Counter:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self, error: Any, message: Any) -> None:
        assert error is None
        self.count += 1


def _rate(work: Callable[[], None], records: int) -> Rate:
    def rate() -> float:
        start = time.perf_counter()
        work()
        return records / (time.perf_counter() - start)

    return rate


async def _aiokafka_rate(address: str) -> float:
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=True)
    await producer.start()
    try:
        await producer.send_and_wait(TOPIC, VALUE)
        records = RECORDS // FEWER
        start = time.perf_counter()
        for _ in range(records):
            await producer.send(TOPIC, VALUE)
        await producer.flush()
        return records / (time.perf_counter() - start)
    finally:
        await producer.stop()


def _latencies(address: str, name: str) -> bool:
    with ExitStack() as stack:
        ours = stack.enter_context(barnabas.Producer(bootstrap_servers=address))
        theirs = confluent_kafka.Producer(
            {"bootstrap.servers": address, "enable.idempotence": True, "log_level": 2}
        )
        stop = threading.Event()
        poller = threading.Thread(target=lambda: _poll(theirs, stop))
        poller.start()
        stack.callback(poller.join)
        stack.callback(stop.set)

        def send(done: Callable[[], None]) -> None:
            ours.send(TOPIC, VALUE, on_delivery=lambda metadata, error: done())

        def produce(done: Callable[[], None]) -> None:
            theirs.produce(TOPIC, VALUE, on_delivery=lambda error, message: done())

        found: dict[str, list[list[float]]] = {"barnabas": [], "confluent-kafka": []}
        for way in (send, produce):
            _paced(way, LATENCY_RECORDS // FEWER)
        for _ in range(ROUNDS):
            found["barnabas"].append(_paced(send, LATENCY_RECORDS))
            found["confluent-kafka"].append(_paced(produce, LATENCY_RECORDS))
    table = Table(
        f"Latency on {name}: call to acknowledgement, {LATENCY_RATE:,} records a second",
        ("", "barnabas", "confluent-kafka", "beside it", "target", ""),
    )
    met = True
    for label, share in (("p50", 0.50), ("p99", 0.99)):
        ours_s, theirs_s = (
            [_percentile(each, share) for each in found[who]] for who in ("barnabas", "confluent-kafka")
        )
        beside = statistics.median(one / other for one, other in zip(ours_s, theirs_s, strict=True))
        is_met = beside <= 1.0
        met = met and is_met
        table.add(
            label,
            duration(statistics.median(ours_s)),
            duration(statistics.median(theirs_s)),
            ratio(beside),
            "≤ 1×",
            verdict(is_met),
        )
    table.print()
    return met


def _poll(producer: Any, stop: threading.Event) -> None:
    while not stop.is_set():
        producer.poll(0.1)
    producer.flush(30)


def _paced(send: Callable[[Callable[[], None]], None], count: int) -> list[float]:
    """The latencies of records that are sent at a constant rate, whatever the acknowledgements do."""
    latencies: list[float] = []
    all_done = threading.Event()
    start = time.perf_counter()
    for number in _ticks(start, count):
        sent = time.perf_counter()

        def done(sent: float = sent) -> None:
            latencies.append(time.perf_counter() - sent)
            if len(latencies) == count:
                all_done.set()

        send(done)
        assert number < count
    assert all_done.wait(120)
    return latencies


def _ticks(start: float, count: int) -> Iterator[int]:
    for number in range(count):
        left_s = start + number / LATENCY_RATE - time.perf_counter()
        if left_s > 0:
            time.sleep(left_s)
        yield number


def _percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
