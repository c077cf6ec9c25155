"""A broker compared with Apache Kafka: the same load on both, alternating, in one run.

The load is raw (bench/load.py), so that no client is measured; Java's own tools follow for the view of a client. Both
brokers run all the time, and with them two brokers of ours on one host, `--brokers 2`. Each load goes to one right
after the other, in an order that changes from round to round, and the ratio is taken within a round: a temporary
slowdown of the machine affects both. A further broker, ours with full validation of every record, takes part where that
matters. BENCH_SECONDS is the time of one load; the warm-up time follows from it.

The load needs processor time too. Its column shows how many cores it kept busy: if one connection comes close to one
core, the load is the limit and not the broker.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Final

from bench import limits, load
from bench.beside import HOST, KAFKA, OURS, Measured, Results, Row, cores, measure_load, report, tell
from bench.kafka import ApacheKafka, MeasuredBroker, MeasuredHost, java_consumer, java_producer
from bench.table import verdict
from tests.peers.kafka_peer import V4, PeerUnavailable, jars

SECONDS: Final = float(os.environ.get("BENCH_SECONDS", "3"))
WARM_UP_S: Final = 10 * SECONDS
ROUNDS: Final = 5
STARTS: Final = 3
PAIRS: Final = 16
TOGETHER_PARTITIONS: Final = 12
# Two brokers to one, where the load leaves them the processors that they would need for it.
SCALING_MIN: Final = 1.6

BIG_BYTES: Final = 64 << 10
SMALL_BYTES: Final = 1 << 10
FETCH_BYTES: Final = 8 << 20
CONSUMER_BYTES: Final = 1 << 20
LATENCIES_A_SECOND: Final = 2_000
JAVA_RECORDS: Final = max(100_000, int(300_000 * SECONDS))
JAVA_RECORD_BYTES: Final = 100

SETTLE_S: Final = 1.0

FULL: Final = "Barnabas, full validation"
LIMIT: Final = "limit"

BIG: Final = "produce, 64 KiB batches"
SMALL: Final = "produce, 1 KB batches"
CPU_SMALL: Final = "  processor time of a request"
P50: Final = "produce one at a time, p50"
P99: Final = "produce one at a time, p99"
FETCH: Final = "fetch from the page cache"
CPU_IN: Final = "broker CPU, in"
CPU_OUT: Final = "broker CPU, out"
CPU_BOTH: Final = "broker CPU, in and out"
TOGETHER: Final = f"{PAIRS} producers, {PAIRS} consumers, {TOGETHER_PARTITIONS} partitions"
TOGETHER_CORES: Final = "cores of the brokers"
START: Final = "start to first answer"
IDLE: Final = "memory, idle"
LOADED: Final = "memory, after load"
JAVA_PRODUCER: Final = "Java's ProducerPerformance, 100 B"
JAVA_CONSUMER: Final = "Java's console consumer, 100 B"

LIMITS: Final = {
    BIG: "receive, check, write and answer 64 KiB",
    SMALL: "receive, check, write and answer 1 KB",
    FETCH: "sendfile over loopback",
    CPU_BOTH: "processor time of both",
}

ROWS: Final = (
    Row(title=BIG, unit="MB/s", measurements=(BIG,), ratio_min=2.5),
    Row(title="  every record checked", unit="MB/s", measurements=(BIG,), contender=FULL),
    Row(title="  to the least server", unit="MB/s", measurements=(BIG,), base=LIMIT, ratio_min=0.9),
    Row(title=SMALL, unit="/s", measurements=(SMALL,), ratio_min=3.2),
    Row(title=CPU_SMALL, unit="µs", measurements=(CPU_SMALL,), digits=1, value_max=20),
    Row(title="  every record checked", unit="/s", measurements=(SMALL,), contender=FULL),
    Row(title=P50, unit="µs", measurements=(P50,), ratio_max=1.0),
    Row(title=P99, unit="µs", measurements=(P99,), ratio_max=0.8),
    Row(title=FETCH, unit="MB/s", measurements=(FETCH,), ratio_min=1.0),
    Row(title="  to sendfile alone", unit="MB/s", measurements=(FETCH,), base=LIMIT, ratio_min=0.95),
    Row(title=CPU_IN, unit="s/GB", measurements=(CPU_IN,), digits=2),
    Row(title=CPU_OUT, unit="s/GB", measurements=(CPU_OUT,), digits=2),
    Row(title=CPU_BOTH, unit="s/GB", measurements=(CPU_IN, CPU_OUT), digits=2, ratio_max=0.55),
    Row(title=TOGETHER, unit="MB/s", measurements=(TOGETHER,)),
    Row(title="  2 brokers", unit="MB/s", measurements=(TOGETHER,), contender=HOST, ratio_min=2.0),
    # A start that is 7 times as soon takes a seventh of the time.
    Row(title=START, unit="s", measurements=(START,), digits=2, value_max=0.2, ratio_max=1 / 7),
    Row(title=IDLE, unit="MB", measurements=(IDLE,), value_max=45),
    Row(title=LOADED, unit="MB", measurements=(LOADED,), value_max=100),
    Row(title=JAVA_PRODUCER, unit="/s", measurements=(JAVA_PRODUCER,)),
    Row(title=JAVA_CONSUMER, unit="/s", measurements=(JAVA_CONSUMER,)),
)


def run() -> bool:
    try:
        jars(V4)
    except PeerUnavailable as reason:
        print(f"\nNothing to compare with, so no target is shown to be met: {reason}")
        return False
    results = Results()
    # Brokers are stopped before their directories go.
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        _measure_starts(folder, results)
        kafka = stack.enter_context(ApacheKafka(folder / "kafka"))
        ours = stack.enter_context(MeasuredBroker(folder / "ours"))
        full = stack.enter_context(MeasuredBroker(folder / "full", {"barnabas.record.validation": "full"}))
        host = stack.enter_context(MeasuredHost(folder / "host"))
        turns = [(KAFKA, kafka), (OURS, ours), (HOST, host), (FULL, full)]
        _measure_memory(IDLE, kafka, ours, results)
        for contender, broker in turns:
            _warm(contender, broker)
        for number in range(ROUNDS):
            tell(f"round {number + 1} of {ROUNDS}")
            for measure, contenders in LOADS:
                for contender, broker in turns if number % 2 == 0 else reversed(turns):
                    if contender in contenders:
                        measure(contender, broker, SECONDS, results)
            _measure_limits(folder, SECONDS, results)
        _measure_memory(LOADED, kafka, ours, results)
        for contender, broker in turns[:2]:
            # Java's clients find the leader themselves; two brokers would not help one partition.
            _measure_java(contender, broker, results)
    return _report(results)


def _report(results: Results) -> bool:
    all_met = report(f"One broker compared with Apache Kafka {V4}", ROWS, results, ROUNDS)
    all_met &= _report_scaling(results)
    print("Servers that do nothing else, in Python and with one thread, and what of it the brokers reach:")
    for row in ROWS:
        if row.title in LIMITS:
            limit, kafka, ours = (median(results.of(row, who)) for who in (LIMIT, KAFKA, OURS))
            print(
                f"  {LIMITS[row.title]}: {row.show(limit)}; Kafka {kafka / limit:.0%}, ours {ours / limit:.0%} of it"
            )
    print(
        "A ratio is ours to Kafka's, the median of the ratios of the rounds. CPU is the broker's user and system time\n"
        "for a GB of 64 KiB batches taken in, for a GB fetched, and for both. The load's cores are what sending and\n"
        "receiving took beside Kafka and beside us. In the rows of the least server and of sendfile alone, these are\n"
        "in Kafka's place: servers in Python that only receive, check, write and answer, or only send. Java's client\n"
        "has an assigned partition and counts Java's start."
    )
    return all_met


def _report_scaling(results: Results) -> bool:
    """Whether two brokers are so much better than one, if the machine has the processors for both and the load."""
    used = Row(title="", unit="", measurements=(TOGETHER_CORES,))
    sent = Row(title="", unit="", measurements=(TOGETHER,))
    loads = {who: median(results.cores_of_load(TOGETHER, who)) for who in (KAFKA, OURS, HOST)}
    brokers = {who: median(results.of(used, who)) for who in loads}
    print(f"{TOGETHER}: processors in use, of {cores()}")
    for who in loads:
        print(f"  {who}: the load {loads[who]:.2f}, the brokers {brokers[who]:.2f}")
    pairs = zip(results.of(sent, HOST), results.of(sent, OURS), strict=True)
    gain = median([two / one for two, one in pairs])
    needed = SCALING_MIN * (loads[OURS] + brokers[OURS])
    is_met = gain >= SCALING_MIN
    told = verdict(is_met)
    if not is_met and needed > cores():
        told = f"not shown: load and brokers would need {needed:.2f} processors"
        is_met = True
    print(f"  two brokers to one: {gain:.2f}×, target ≥ {SCALING_MIN}× where the load leaves room: {told}")
    return is_met


def _measure_starts(folder: Path, results: Results) -> None:
    """Of brokers with nothing in them. The first start of each is not counted: it fills the page cache."""
    tell("starting both, several times")
    makers: dict[str, Callable[[Path], MeasuredBroker]] = {KAFKA: ApacheKafka, OURS: MeasuredBroker}
    for number in range(STARTS + 1):
        for contender, make in makers.items():
            with make(folder / f"{contender.split()[0]}-{number}") as broker:
                if number > 0:
                    results.add(START, contender, broker.started_in_s)


def _measure_memory(measurement: str, kafka: MeasuredBroker, ours: MeasuredBroker, results: Results) -> None:
    time.sleep(SETTLE_S)
    for contender, broker in ((KAFKA, kafka), (OURS, ours)):
        results.add(measurement, contender, load.resident_mb(broker.pid))


def _warm(contender: str, broker: MeasuredBroker) -> None:
    """All that will be measured, in short turns: a virtual machine compiles what it has seen often."""
    tell(f"warming for {WARM_UP_S:g} s: {contender}")
    end_s = time.monotonic() + WARM_UP_S
    while time.monotonic() < end_s:
        for measure, contenders in LOADS:
            if contender in contenders:
                measure(contender, broker, SECONDS / 3, Results())


def _produce_big(contender: str, broker: MeasuredBroker, seconds: float, results: Results) -> None:
    batch = load.batch_of(BIG_BYTES)
    with _topic(broker) as topic:
        done = measure_load(
            lambda: load.produce_for(broker.port, topic, batch, seconds) * len(batch), broker.pid
        )
    results.add(BIG, contender, done.per_second / 1e6, done.load_cores)
    results.add(CPU_IN, contender, done.broker_cpu_s / done.amount * 1e9)


def _produce_small(contender: str, broker: MeasuredBroker, seconds: float, results: Results) -> None:
    batch = load.batch_of(SMALL_BYTES)
    with _topic(broker) as topic:
        done = measure_load(lambda: load.produce_for(broker.port, topic, batch, seconds), broker.pid)
    results.add(SMALL, contender, done.per_second, done.load_cores)
    results.add(CPU_SMALL, contender, done.broker_cpu_s / done.amount * 1e6)


def _produce_one_at_a_time(contender: str, broker: MeasuredBroker, seconds: float, results: Results) -> None:
    count = max(100, int(LATENCIES_A_SECOND * seconds))
    with _topic(broker) as topic:
        latencies_s = load.produce_latencies(broker.port, topic, load.batch_of(SMALL_BYTES), count)
    percentiles_s = statistics.quantiles(latencies_s, n=100)
    results.add(P50, contender, percentiles_s[49] * 1e6)
    results.add(P99, contender, percentiles_s[98] * 1e6)


def _produce_and_consume(contender: str, broker: MeasuredBroker, seconds: float, results: Results) -> None:
    with _topic(broker, TOGETHER_PARTITIONS) as topic:
        done = _together(broker, topic, load.batch_of(BIG_BYTES), seconds)
    results.add(TOGETHER, contender, done.per_second / 1e6, done.load_cores)
    results.add(TOGETHER_CORES, contender, done.broker_cores)


def _fetch(contender: str, broker: MeasuredBroker, seconds: float, results: Results) -> None:
    batch = load.batch_of(BIG_BYTES)
    with _topic(broker) as topic:
        load.produce_latencies(broker.port, topic, batch, FETCH_BYTES // len(batch) + 1)
        done = measure_load(lambda: load.fetch_for(broker.port, topic, FETCH_BYTES, seconds), broker.pid)
    results.add(FETCH, contender, done.per_second / 1e6, done.load_cores)
    results.add(CPU_OUT, contender, done.broker_cpu_s / done.amount * 1e9)


# The loads and their contenders. Fetching is the last, and sendfile alone follows at once.
LOADS: Final = (
    (_produce_big, (KAFKA, OURS, FULL)),
    (_produce_small, (KAFKA, OURS, FULL)),
    (_produce_one_at_a_time, (KAFKA, OURS)),
    (_produce_and_consume, (KAFKA, OURS, HOST)),
    (_fetch, (KAFKA, OURS)),
)


@contextmanager
def _topic(broker: MeasuredBroker, partitions: int = 1) -> Iterator[str]:
    """A topic for one load. Its name is new, since a broker may still be deleting the last one."""
    name = f"load-{time.monotonic_ns()}"
    broker.create_topic(name, partitions)
    yield name
    broker.delete_topic(name)


def _together(broker: MeasuredBroker, topic: str, batch: bytes, seconds: float) -> Measured:
    """Producers and consumers at once, each a process, at the leaders; bytes in and out are added."""
    leaders = load.leader_ports(broker.port, topic)
    tasks = [
        (role, leaders[number % len(leaders)], topic, number % len(leaders), batch, seconds)
        for number in range(PAIRS)
        for role in ("producer", "consumer")
    ]
    pids = broker.pids
    broker_cpu_s = load.cpu_seconds(*pids)
    # A fork has all modules loaded. The pool gives the next task to a free process, and none is free before its end.
    with multiprocessing.get_context("fork").Pool(len(tasks)) as pool:
        parts = pool.starmap_async(_take_part, tasks, chunksize=1).get(seconds + load.TIMEOUT_S)
    return Measured(
        amount=sum(part.amount for part in parts),
        spent_s=max(part.spent_s for part in parts),
        load_cpu_s=sum(part.load_cpu_s for part in parts),
        broker_cpu_s=load.cpu_seconds(*pids) - broker_cpu_s,
    )


def _take_part(role: str, port: int, topic: str, partition: int, batch: bytes, seconds: float) -> Measured:
    if role == "producer":
        return measure_load(lambda: load.produce_for(port, topic, batch, seconds, partition) * len(batch))
    return measure_load(lambda: load.consume_for(port, topic, partition, CONSUMER_BYTES, seconds))


def _measure_limits(folder: Path, seconds: float, results: Results) -> None:
    big, small = load.batch_of(BIG_BYTES), load.batch_of(SMALL_BYTES)
    with limits.append_alone(folder, big) as limit:
        done = measure_load(lambda: load.produce_for(limit.port, "limit", big, seconds) * len(big), limit.pid)
        results.add(BIG, LIMIT, done.per_second / 1e6)
        results.add(CPU_IN, LIMIT, done.broker_cpu_s / done.amount * 1e9)
    with limits.append_alone(folder, small) as limit:
        results.add(
            SMALL,
            LIMIT,
            measure_load(lambda: load.produce_for(limit.port, "limit", small, seconds)).per_second,
        )
    with limits.sendfile_alone(folder, FETCH_BYTES) as limit:
        done = measure_load(lambda: load.fetch_for(limit.port, "limit", FETCH_BYTES, seconds), limit.pid)
        results.add(FETCH, LIMIT, done.per_second / 1e6)
        results.add(CPU_OUT, LIMIT, done.broker_cpu_s / done.amount * 1e9)


def _measure_java(contender: str, broker: MeasuredBroker, results: Results) -> None:
    tell(f"Java's clients: {contender}")
    with _topic(broker) as topic:
        results.add(
            JAVA_PRODUCER, contender, java_producer(broker.port, topic, JAVA_RECORDS, JAVA_RECORD_BYTES)
        )
        results.add(JAVA_CONSUMER, contender, java_consumer(broker.port, topic, JAVA_RECORDS))
