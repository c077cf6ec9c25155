"""Several brokers on one host compared with one: the start, the memory, and the end of one of them.

A start lasts from the creation of the process until all brokers answer. The processor time is that of all processes by
then. Private memory is what a process does not share with the others. A killed broker serves again when a record that
is sent to one of its partitions is acknowledged.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from pathlib import Path
from typing import Final

from barnabas.errors import KafkaError
from barnabas.testing import Broker
from bench.table import Table, duration, verdict

ROUNDS: Final = int(os.environ.get("BENCH_ROUNDS", "5"))
BROKERS: Final = 4
TOPIC: Final = "served"
START_S_MAX: Final = 0.2
HOST_START_S_MAX: Final = 0.45
PRIVATE_MB_MAX: Final = 20.0
SERVED_AGAIN_S_MAX: Final = 1.0
SETTLE_S: Final = 1.0
POLL_S: Final = 0.005
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def run() -> bool:
    table = Table(f"One broker, and {BROKERS} on one host", ("", "one", f"{BROKERS}", "target", ""))
    # The first start of each reads files that the others find in memory.
    for brokers in (1, BROKERS):
        _start(brokers)
    alone, together = [], []
    for _ in range(ROUNDS):
        alone.append(_start(1))
        together.append(_start(BROKERS))
    alone_s, host_s = (statistics.median(each[0] for each in starts) for starts in (alone, together))
    met = [alone_s <= START_S_MAX, host_s <= HOST_START_S_MAX]
    table.add(
        "start to answer",
        duration(alone_s),
        duration(host_s),
        f"≤ {START_S_MAX} s, ≤ {HOST_START_S_MAX} s",
        verdict(all(met)),
    )
    alone_cpu_s, host_cpu_s = (statistics.median(each[1] for each in starts) for starts in (alone, together))
    table.add("processor time of it", duration(alone_cpu_s), duration(host_cpu_s), "", "")
    with Broker() as broker:
        time.sleep(SETTLE_S)
        alone_mb = _private_mb(broker.pid)
    with Broker(brokers=BROKERS, topics={TOPIC: BROKERS}) as broker:
        time.sleep(SETTLE_S)
        further_mb = max(_private_mb(pid) for pid in broker.pids.values())
        others_mb = _private_mb(broker.pid) + _private_mb(broker.store_pid)
        again_s = statistics.median(_served_again_s(broker, number % BROKERS) for number in range(ROUNDS))
    met.append(further_mb <= PRIVATE_MB_MAX)
    table.add(
        "private memory of a broker",
        f"{alone_mb:.1f} MB",
        f"{further_mb:.1f} MB",
        f"≤ {PRIVATE_MB_MAX:g} MB",
        verdict(met[-1]),
    )
    table.add("of supervisor and store", "", f"{others_mb:.1f} MB", "", "")
    met.append(again_s <= SERVED_AGAIN_S_MAX)
    table.add(
        "killed broker serves again", "", duration(again_s), f"≤ {SERVED_AGAIN_S_MAX:g} s", verdict(met[-1])
    )
    table.print()
    return all(met)


def _start(brokers: int) -> tuple[float, float]:
    """Seconds until all answer, and of processor time."""
    broker = Broker(brokers=brokers)
    begin_s = time.perf_counter()
    broker.start()
    spent_s = time.perf_counter() - begin_s
    pids = [broker.pid] if brokers == 1 else [broker.pid, broker.store_pid, *broker.pids.values()]
    processor_s = sum(map(_processor_s, pids))
    broker.close()
    return spent_s, processor_s


def _processor_s(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / _TICKS


def _private_mb(pid: int) -> float:
    sizes = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, size, _ = line.split()
        sizes[name] = int(size)
    return (sizes["Private_Clean:"] + sizes["Private_Dirty:"]) * 1024 / 1e6


def _served_again_s(broker: Broker, victim: int) -> float:
    with broker.admin() as admin:
        partitions = admin.describe_topics(TOPIC)[TOPIC].partitions
    [partition] = [each.partition for each in partitions if each.leader == victim]
    # Retries of the client would add its own delays.
    with broker.producer(retry_backoff_ms=5, retry_backoff_max_ms=5, reconnect_backoff_ms=5) as producer:
        producer.send(TOPIC, b"before", partition=partition).result()
        os.kill(broker.pids[victim], signal.SIGKILL)
        begin_s = time.perf_counter()
        while True:
            try:
                producer.send(TOPIC, b"after", partition=partition).result()
            except KafkaError:
                time.sleep(POLL_S)
            else:
                return time.perf_counter() - begin_s
