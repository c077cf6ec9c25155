"""Consumers compared: Barnabas, confluent-kafka, aiokafka and kafka-python on one broker, alternating.

Records have 100-byte values and no key, in batches of 16 KiB, Kafka's default. A round reads all of them from an
assigned partition; the time counts from the first record. Latency is measured from just before a record is passed to
the producer (always confluent-kafka's, without linger, in a separate process) until the caller has the record.
"""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import multiprocessing
import os
import statistics
import struct
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, Final

import aiokafka
import confluent_kafka

import barnabas
import barnabas.aio
from barnabas.model import Offset, TimestampMs
from barnabas.records.builder import BatchBuilder
from bench import load
from bench.kafka import ApacheKafka, MeasuredBroker
from bench.table import Table, ratio, verdict
from tests.peers.kafka_peer import V4, PeerUnavailable, jars

RECORDS: Final = 1_050_000
VALUE_BYTES: Final = 100
BATCH_RECORDS: Final = 150
ROUNDS: Final = 5
TIMEOUT_S: Final = 120.0

LATENCY_RECORDS: Final = 3_000
LATENCY_A_SECOND: Final = 1_000

OURS: Final = "Barnabas poll()"
OURS_ARROW: Final = "Barnabas poll_arrow()"
CONFLUENT: Final = "confluent-kafka"
AIOKAFKA: Final = "aiokafka"
KAFKA_PYTHON: Final = "kafka-python"
POLL_RATIO_MIN: Final = 2.0
ARROW_RATIO_MIN: Final = 5.0
LATENCY_RATIO_MAX: Final = 1.1


def run() -> bool:
    met = True
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        servers: dict[str, MeasuredBroker] = {
            "Barnabas": stack.enter_context(MeasuredBroker(folder / "ours"))
        }
        try:
            jars(V4)
            servers[f"Apache Kafka {V4}"] = stack.enter_context(ApacheKafka(folder / "kafka"))
        except PeerUnavailable as reason:
            print(f"Only on our own broker: {reason}")
        for title, server in servers.items():
            met &= _throughput(title, server)
            met &= _latency(title, server)
    return met


def _throughput(title: str, server: MeasuredBroker) -> bool:
    topic = "throughput"
    server.create_topic(topic)
    _fill(server.port, topic)
    contenders = _contenders()
    results: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(ROUNDS):
        order = list(contenders.items())
        for name, consume in order if number % 2 == 0 else reversed(order):
            results[name].append(consume(server.address, topic))
    server.delete_topic(topic)
    others = [name for name in results if not name.startswith("Barnabas")]
    best = max(others, key=lambda name: median(results[name]))
    table = Table(
        f"Consuming from {title}: records a second, medians of {ROUNDS} rounds of {RECORDS:,}",
        ("", "records/s", f"to {best}", "target", ""),
    )
    targets = {OURS: POLL_RATIO_MIN, OURS_ARROW: ARROW_RATIO_MIN}
    met = True
    for name, values in results.items():
        to_best = median([one / other for one, other in zip(values, results[best], strict=True)])
        target = targets.get(name)
        if target is not None:
            met &= to_best >= target
        table.add(
            name,
            f"{median(values):,.0f}",
            ratio(to_best),
            f"≥ {target:g}×" if target is not None else "",
            verdict(to_best >= target) if target is not None else "",
        )
    table.print()
    if OURS_ARROW not in results:
        print(
            "pyarrow is not installed, so the columns were made and not wrapped: poll_arrow() is NOT shown."
        )
        met = False
    return met


def _fill(port: int, topic: str) -> None:
    builder = BatchBuilder(base_offset=Offset(0))
    value = os.urandom(VALUE_BYTES)
    now_ms = int(time.time() * 1_000)
    for index in range(BATCH_RECORDS):
        builder.append(TimestampMs(now_ms + index), None, value)
    # One at a time is fast enough, and leaves nothing to be done about answers.
    load.produce_latencies(port, topic, bytes(builder.build()), RECORDS // BATCH_RECORDS)


def _contenders() -> dict[str, Callable[[str, str], float]]:
    contenders: dict[str, Callable[[str, str], float]] = {
        CONFLUENT: _confluent,
        AIOKAFKA: _aiokafka,
        OURS: _ours,
        "Barnabas for record in …": _ours_iterating,
        "Barnabas.aio poll()": _ours_aio,
        "Barnabas poll_batches()": _ours_batches,
    }
    if importlib.util.find_spec("pyarrow") is not None:
        contenders[OURS_ARROW] = _ours_arrow
    else:
        contenders["Barnabas columns for Arrow"] = _ours_columns
    if importlib.util.find_spec("kafka") is not None:
        contenders[KAFKA_PYTHON] = _kafka_python
    return contenders


def _rate(take: Callable[[], int]) -> float:
    """Records a second, from the first that come on."""
    deadline_s = time.monotonic() + TIMEOUT_S
    first = 0
    while first == 0:
        first = take()
        assert time.monotonic() < deadline_s, "no records"
    count = first
    start_s = time.perf_counter()
    while count < RECORDS:
        count += take()
        assert time.monotonic() < deadline_s, f"{count} of {RECORDS} records"
    return (count - first) / (time.perf_counter() - start_s)


def _consumer(address: str, topic: str) -> barnabas.Consumer:
    consumer = barnabas.Consumer(bootstrap_servers=address, auto_offset_reset="earliest")
    consumer.assign([(topic, 0)])
    return consumer


def _ours(address: str, topic: str) -> float:
    with _consumer(address, topic) as consumer:
        return _rate(lambda: len(consumer.poll()))


def _ours_iterating(address: str, topic: str) -> float:
    with _consumer(address, topic) as consumer:
        next(consumer)
        start_s = time.perf_counter()
        for _ in itertools.islice(consumer, RECORDS - 1):
            pass
        return (RECORDS - 1) / (time.perf_counter() - start_s)


def _ours_batches(address: str, topic: str) -> float:
    with _consumer(address, topic) as consumer:
        return _rate(lambda: sum(batch.header.record_count for batch in consumer.poll_batches()))


def _ours_arrow(address: str, topic: str) -> float:
    with _consumer(address, topic) as consumer:
        return _rate(lambda: int(consumer.poll_arrow().num_rows))


def _ours_columns(address: str, topic: str) -> float:
    with _consumer(address, topic) as consumer:

        def take() -> int:
            run = consumer._poll(consumer._intake.take_columns, 1_000)
            return 0 if run is None else run.columns.record_count

        return _rate(take)


def _ours_aio(address: str, topic: str) -> float:
    async def consume() -> float:
        async with barnabas.aio.Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, 0)])
            count = len(await consumer.poll(60_000))
            first, start_s = count, time.perf_counter()
            while count < RECORDS:
                count += len(await consumer.poll())
            return (count - first) / (time.perf_counter() - start_s)

    return asyncio.run(consume())


def _confluent_consumer(address: str, topic: str) -> Any:
    settings = {
        "bootstrap.servers": address,
        "group.id": "bench",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    return consumer


def _confluent(address: str, topic: str) -> float:
    consumer = _confluent_consumer(address, topic)
    try:
        return _rate(lambda: len(consumer.consume(10_000, 0.1)))
    finally:
        consumer.close()


def _aiokafka(address: str, topic: str) -> float:
    async def consume() -> float:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest")
        await consumer.start()
        try:
            consumer.assign([aiokafka.TopicPartition(topic, 0)])

            async def take() -> int:
                got = await consumer.getmany(timeout_ms=100)
                return sum(map(len, got.values()))

            count = 0
            while count == 0:
                count = await take()
            first, start_s = count, time.perf_counter()
            while count < RECORDS:
                count += await take()
            return (count - first) / (time.perf_counter() - start_s)
        finally:
            await consumer.stop()

    return asyncio.run(consume())


def _kafka_python(address: str, topic: str) -> float:
    import kafka

    consumer = kafka.KafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest")
    try:
        consumer.assign([kafka.TopicPartition(topic, 0)])
        return _rate(lambda: sum(map(len, consumer.poll(timeout_ms=100, max_records=10_000).values())))
    finally:
        consumer.close()


def _latency(title: str, server: MeasuredBroker) -> bool:
    contenders: dict[str, Callable[[str, str, list[float]], None]] = {
        CONFLUENT: _confluent_latencies,
        OURS: _our_latencies,
        "Barnabas.aio poll()": _our_aio_latencies,
    }
    p50: dict[str, list[float]] = {name: [] for name in contenders}
    p99: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(ROUNDS):
        order = list(contenders.items())
        for name, consume in order if number % 2 == 0 else reversed(order):
            topic = f"latency-{time.monotonic_ns()}"
            server.create_topic(topic)
            producing = multiprocessing.get_context("fork").Process(
                target=_produce_steadily, args=(server.address, topic), daemon=True
            )
            producing.start()
            latencies_s: list[float] = []
            consume(server.address, topic, latencies_s)
            producing.join(TIMEOUT_S)
            server.delete_topic(topic)
            # The first tenth pays for connections and warm caches.
            percentiles = statistics.quantiles(latencies_s[LATENCY_RECORDS // 10 :], n=100)
            p50[name].append(percentiles[49] * 1e6)
            p99[name].append(percentiles[98] * 1e6)
    table = Table(
        f"From producer to consumer through {title}, {LATENCY_A_SECOND:,} records a second, medians of {ROUNDS} rounds",
        ("", "p50 µs", "p99 µs", f"p50 to {CONFLUENT}", f"p99 to {CONFLUENT}", "target", ""),
    )
    met = True
    for name in contenders:
        to_p50 = median([one / other for one, other in zip(p50[name], p50[CONFLUENT], strict=True)])
        to_p99 = median([one / other for one, other in zip(p99[name], p99[CONFLUENT], strict=True)])
        is_met = max(to_p50, to_p99) <= LATENCY_RATIO_MAX
        if name == OURS:
            met = is_met
        table.add(
            name,
            f"{median(p50[name]):,.0f}",
            f"{median(p99[name]):,.0f}",
            ratio(to_p50),
            ratio(to_p99),
            f"≤ {LATENCY_RATIO_MAX}×, both" if name == OURS else "",
            verdict(is_met) if name == OURS else "",
        )
    table.print()
    return met


_SENT_AT: Final = struct.Struct(">q")


def _produce_steadily(address: str, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "linger.ms": 0, "log_level": 0})
    padding = bytes(VALUE_BYTES - _SENT_AT.size)
    # The consumer needs a moment to be there, or the first records are old when it comes.
    start_s = time.monotonic() + 1.0
    for number in range(LATENCY_RECORDS):
        while (left_s := start_s + number / LATENCY_A_SECOND - time.monotonic()) > 0:
            time.sleep(left_s)
        producer.produce(topic, _SENT_AT.pack(time.monotonic_ns()) + padding)
        producer.poll(0)
    producer.flush(TIMEOUT_S)


def _age_s(value: bytes) -> float:
    sent_at: int = _SENT_AT.unpack_from(value)[0]
    return (time.monotonic_ns() - sent_at) / 1e9


def _confluent_latencies(address: str, topic: str, latencies_s: list[float]) -> None:
    consumer = _confluent_consumer(address, topic)
    try:
        while len(latencies_s) < LATENCY_RECORDS:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                latencies_s.append(_age_s(message.value()))
    finally:
        consumer.close()


def _our_latencies(address: str, topic: str, latencies_s: list[float]) -> None:
    with _consumer(address, topic) as consumer:
        while len(latencies_s) < LATENCY_RECORDS:
            latencies_s += [_age_s(record.value) for record in consumer.poll()]


def _our_aio_latencies(address: str, topic: str, latencies_s: list[float]) -> None:
    async def consume() -> None:
        async with barnabas.aio.Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, 0)])
            while len(latencies_s) < LATENCY_RECORDS:
                latencies_s.extend([_age_s(record.value) for record in await consumer.poll()])

    asyncio.run(consume())
