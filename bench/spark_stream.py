"""A stream's latency: one process produces at a steady rate, and one consumes the output of the stream.

The first bytes of a value are the time at which it was passed to the producer.
"""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.connection import Connection
from typing import Final

import barnabas

VALUE_BYTES: Final = 100
TICK_S: Final = 0.01
WARM_UP_SHARE: Final = 1 / 3
START_TIMEOUT_S: Final = 240
DRAIN_S: Final = 60


def measure_stream(
    address: str, source: str, target: str, *, a_second: int, measured_s: float
) -> list[float]:
    """Seconds from producer to consumer of each record that was sent in the measured time, the smallest first."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    warm_up_s = measured_s * WARM_UP_SHARE
    consumer = context.Process(target=_consume, args=(address, target, theirs), daemon=True)
    producer = context.Process(
        target=_produce, args=(address, source, a_second, warm_up_s + measured_s), daemon=True
    )
    consumer.start()
    try:
        # The stream is warm when something has passed through it.
        with barnabas.Producer(bootstrap_servers=address) as first:
            first.send(source, value=_value()).result()
        assert ours.poll(START_TIMEOUT_S), f"nothing has come out within {START_TIMEOUT_S} s"
        ours.recv()
        start_s = time.time()
        producer.start()
        producer.join(warm_up_s + measured_s + START_TIMEOUT_S)
        assert producer.exitcode == 0, f"the producer ended with {producer.exitcode}"
        sent = int(a_second * TICK_S) * round((warm_up_s + measured_s) / TICK_S)
        ours.send((start_s + warm_up_s, sent))
        assert ours.poll(START_TIMEOUT_S), "the consumer did not end"
        received, latencies_s = ours.recv()
        assert received >= sent, f"{received:,} of {sent:,} records have come out"
        return sorted(latencies_s)
    finally:
        for process in (producer, consumer):
            if process.is_alive():
                process.kill()


def _value() -> bytes:
    return b"%020d" % time.time_ns() + b"x" * (VALUE_BYTES - 20)


def _produce(address: str, topic: str, a_second: int, duration_s: float) -> None:
    with barnabas.Producer(bootstrap_servers=address, linger_ms=5) as producer:
        start_s = time.monotonic()
        for tick in range(round(duration_s / TICK_S)):
            producer.send_many(topic, [_value()] * int(a_second * TICK_S))
            wait_s = start_s + (tick + 1) * TICK_S - time.monotonic()
            if wait_s > 0:
                time.sleep(wait_s)
        producer.flush()


def _consume(address: str, topic: str, to_main: Connection) -> None:
    latencies_s: list[tuple[float, float]] = []
    wanted: tuple[float, int] | None = None
    with barnabas.Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        consumer.assign((topic, each.partition) for each in consumer.partitions_for(topic))
        while not consumer.poll(100):
            pass
        to_main.send("through")
        deadline_s = None
        while deadline_s is None or (time.monotonic() < deadline_s and len(latencies_s) < wanted[1]):  # type: ignore[index]
            values = [record.value for record in consumer.poll(100)]
            now_s = time.time()
            latencies_s += [(sent_s := int(value[:20]) / 1e9, now_s - sent_s) for value in values]
            if wanted is None and to_main.poll():
                wanted = to_main.recv()
                deadline_s = time.monotonic() + DRAIN_S
    assert wanted is not None
    first_s = wanted[0]
    to_main.send((len(latencies_s), [latency_s for sent_s, latency_s in latencies_s if sent_s >= first_s]))
