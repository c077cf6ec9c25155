"""How much one broker can hold: idle connections, and partitions; and how fast these come and go.

A topic of many partitions is made and deleted while another client asks for the API versions all the time: the longest
that it waits is for how long the event loop was not free.

Connections have asked for the API versions, as every client does, and are silent from then on. A broker with many
partitions is stopped and started again, before and after something is produced to each of them. Then it is compared
with one that has a single partition, in turns: requests one at a time, to one partition and to the next each time.
"""

from __future__ import annotations

import itertools
import resource
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from barnabas.protocol.messages.api_versions_request import ApiVersionsRequest
from bench import load
from bench.kafka import MeasuredBroker
from bench.table import Table, duration, ratio, verdict

CONNECTIONS: Final = 2_000
CONNECTIONS_MB_MAX: Final = 20.0
TOPICS: Final = 10
PARTITIONS_A_TOPIC: Final = 1_000
PARTITIONS: Final = TOPICS * PARTITIONS_A_TOPIC
CHANGED_PARTITIONS: Final = 2_000
CHANGE_S_MAX: Final = 3.0
LAG_S_MAX: Final = 0.05
READY_S_MAX: Final = 5.0
P99_RATIO_MAX: Final = 2.0

BATCH_BYTES: Final = 1 << 10
REQUESTS: Final = 2_000
ROUNDS: Final = 5
SETTLE_S: Final = 1.0
# The memory of a process in addition to its connections.
OTHER_FILES: Final = 100


def run() -> bool:
    table = Table("One broker: connections and partitions", ("", "", "beside", "target", ""))
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as name:
        met = [
            _connections(Path(name), table),
            _changes(Path(name), table),
            _partitions(Path(name), table),
        ]
    table.print()
    return all(met)


def _connections(folder: Path, table: Table) -> bool:
    _allow_files(CONNECTIONS + OTHER_FILES)
    with MeasuredBroker(folder / "connections") as broker, ExitStack() as stack:
        _greet(load.connect(broker.port), stack)
        time.sleep(SETTLE_S)
        before_mb = load.resident_mb(broker.pid)
        for _ in range(CONNECTIONS):
            _greet(load.connect(broker.port), stack)
        time.sleep(SETTLE_S)
        cost_mb = load.resident_mb(broker.pid) - before_mb
    met = cost_mb <= CONNECTIONS_MB_MAX
    table.add(
        f"{CONNECTIONS:,} idle connections",
        f"{cost_mb:.1f} MB",
        f"{before_mb:.0f} MB without",
        f"≤ {CONNECTIONS_MB_MAX:g} MB",
        verdict(met),
    )
    return met


def _changes(folder: Path, table: Table) -> bool:
    are_met = []
    with MeasuredBroker(folder / "changes") as broker:
        changes: dict[str, Callable[[], None]] = {
            "made": lambda: load.create_topic(broker.port, "many", CHANGED_PARTITIONS),
            "deleted": lambda: broker.delete_topic("many"),
        }
        for title, change in changes.items():
            with Bystander(broker.port) as bystander:
                start_s = time.perf_counter()
                change()
                took_s = time.perf_counter() - start_s
            are_met.append(took_s <= CHANGE_S_MAX and bystander.longest_s <= LAG_S_MAX)
            table.add(
                f"{CHANGED_PARTITIONS:,} partitions {title}",
                duration(took_s),
                f"others wait for {duration(bystander.longest_s)} at most",
                f"≤ {CHANGE_S_MAX:g} s, {duration(LAG_S_MAX)}",
                verdict(are_met[-1]),
            )
    return all(are_met)


class Bystander:
    """A client that asks for the API versions all the time; `longest_s` is the longest that an answer took."""

    def __init__(self, port: int) -> None:
        self.longest_s = 0.0
        self._connected = load.connect(port)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bystander")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._connected.close()

    def _run(self) -> None:
        while not self._is_over.wait(0.001):
            start_s = time.perf_counter()
            load.ask(self._connected, "ApiVersions", 0, ApiVersionsRequest())
            self.longest_s = max(self.longest_s, time.perf_counter() - start_s)


def _greet(connected: socket.socket, stack: ExitStack) -> None:
    stack.enter_context(connected)
    assert load.ask(connected, "ApiVersions", 0, ApiVersionsRequest()).error_code == 0


def _allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise OSError(f"this process may open {hard} files only, and {count} are needed")
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def _partitions(folder: Path, table: Table) -> bool:
    batch = load.batch_of(BATCH_BYTES)
    with MeasuredBroker(folder / "many") as many, MeasuredBroker(folder / "one") as one:
        one.create_topic("one")
        for number in range(TOPICS):
            many.create_topic(f"many-{number}", PARTITIONS_A_TOPIC)
        frames = [
            load.produce_frame(f"many-{number}", batch, partition)
            for number in range(TOPICS)
            for partition in range(PARTITIONS_A_TOPIC)
        ]
        are_met = [_ready("empty", many, table)]
        _latencies_s(many.port, frames)
        are_met.append(_ready("with records", many, table))
        p99_s = _p99_s(
            {
                "one": (one.port, [load.produce_frame("one", batch)]),
                "same": (many.port, frames[:1]),
                "spread": (many.port, frames),
            }
        )
    for title, name in (("produce to one of them", "same"), ("produce to the next each time", "spread")):
        to_one = p99_s[name] / p99_s["one"]
        are_met.append(to_one <= P99_RATIO_MAX)
        table.add(
            f"  {title}, p99",
            duration(p99_s[name]),
            f"{ratio(to_one)} of {duration(p99_s['one'])} where there is one",
            f"≤ {P99_RATIO_MAX:g}×",
            verdict(are_met[-1]),
        )
    return all(are_met)


def _ready(state: str, broker: MeasuredBroker, table: Table) -> bool:
    """Stops the broker in order and starts it again."""
    assert broker.stop() == 0, broker.log_text()[-4000:]
    broker.start()
    met = broker.started_in_s <= READY_S_MAX
    table.add(
        f"{PARTITIONS:,} partitions, {state}: ready after a clean stop",
        duration(broker.started_in_s),
        f"{load.resident_mb(broker.pid):.0f} MB",
        f"≤ {READY_S_MAX:g} s",
        verdict(met),
    )
    return met


def _p99_s(contenders: dict[str, tuple[int, Sequence[bytes]]]) -> dict[str, float]:
    """Medians over rounds in which the contenders alternate. Each contender continues where it has stopped."""
    endless = {name: itertools.cycle(frames) for name, (_, frames) in contenders.items()}
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, (port, _) in contenders.items():
            latencies_s = _latencies_s(port, list(itertools.islice(endless[name], REQUESTS)))
            found[name].append(statistics.quantiles(latencies_s, n=100)[98])
    return {name: statistics.median(each) for name, each in found.items()}


def _latencies_s(port: int, requests: Sequence[bytes]) -> list[float]:
    """Seconds from sending a request to its answer, one at a time."""
    buffer = bytearray(1 << 16)
    latencies_s = []
    with load.connect(port) as connected:
        for request in requests:
            start = time.perf_counter()
            connected.sendall(request)
            answer = load.read_frame(connected, buffer)
            latencies_s.append(time.perf_counter() - start)
            load.check_produced(answer)
    return latencies_s
