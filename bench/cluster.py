"""A cluster compared with Apache Kafka 3.9: three brokers of each on the same ZooKeeper, alternating, in one run.

Failover is measured from the moment in which ZooKeeper reports that the node of the killed process is gone, since the
session time-out before it is the same for both. The gap of a producer includes it. Catching up is measured from the
registration of the broker that was away until it is in sync again.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from barnabas.coordination.controller.reading import read_cluster
from barnabas.coordination.store.zookeeper import ZooKeeperStore
from barnabas.coordination.store.zookeeper_client import ZooKeeperSettings
from barnabas.protocol.messages.metadata_request import MetadataRequest
from barnabas.testing import ZooKeeper, ZooKeeperUnavailable
from bench import load
from bench.beside import KAFKA, OURS, Measured, Results, Row, measure_load, report, tell
from bench.clusters import (
    BROKERS,
    CLUSTER_SETTINGS,
    MeasuredCluster,
    SteadyProducer,
    ZooKeeperKafka,
    wait_until,
)
from bench.kafka import MeasuredBroker
from tests.peers.kafka_peer import V3, PeerUnavailable, jars

SECONDS: Final = float(os.environ.get("BENCH_SECONDS", "3"))
ROUNDS: Final = int(os.environ.get("BENCH_ROUNDS", "3"))
WARM_UP_S: Final = 5 * SECONDS

MOVED_PARTITIONS: Final = 200
TAKEN_OVER_PARTITIONS: Final = 600
MANY_TOPICS: Final = 10
MANY_PARTITIONS: Final = 10_000
BIG_BYTES: Final = 64 << 10
SMALL_BYTES: Final = 1 << 10
LATENCIES_A_SECOND: Final = 500
# What a follower misses. It is written in short pieces, so that both miss the same: for more than that the page cache
# has to find memory, and its time is most of a follower's.
MISSED_BYTES: Final = int(200e6 * SECONDS)
MISSED_PIECE_S: Final = 0.05
# Time in which a producer runs before and after what happens to its leader.
STEADY_S: Final = 1.0

MOVED: Final = f"{MOVED_PARTITIONS} leaders moved after a crash"
TAKEN_OVER: Final = f"controller replaced, {TAKEN_OVER_PARTITIONS} partitions"
GAP: Final = "producer's gap, leader killed"
STOP_GAP: Final = "producer's gap, leader stopped"
STOP_ERRORS: Final = "errors that a client does not retry"
THROUGHPUT: Final = "produce, acks=all, 3 replicas"
CPU: Final = "brokers' CPU for it"
P99: Final = "produce one at a time, acks=all, p99"
CATCH_UP: Final = "follower catches up"
REGISTERED: Final = "start to registered"
IDLE: Final = "memory of a broker, idle"
READ_MANY: Final = f"{MANY_PARTITIONS:,} partitions read from ZooKeeper"
MANY: Final = f"one broker starts with {MANY_PARTITIONS:,} partitions"

ROWS: Final = (
    Row(title=MOVED, unit="s", measurements=(MOVED,), digits=3, ratio_max=0.5),
    Row(title=TAKEN_OVER, unit="s", measurements=(TAKEN_OVER,), digits=3, ratio_max=0.5),
    Row(title=GAP, unit="s", measurements=(GAP,), digits=2, ratio_max=1.1),
    Row(title=STOP_GAP, unit="s", measurements=(STOP_GAP,), digits=3, value_max=0.2),
    Row(title=STOP_ERRORS, unit="errors", measurements=(STOP_ERRORS,), value_max=0),
    Row(title=THROUGHPUT, unit="MB/s", measurements=(THROUGHPUT,), ratio_min=1.2),
    Row(title=CPU, unit="s/GB", measurements=(CPU,), digits=2, ratio_max=0.6),
    Row(title=P99, unit="µs", measurements=(P99,), ratio_max=1.0),
    Row(title=CATCH_UP, unit="MB/s", measurements=(CATCH_UP,), ratio_min=1.2),
    Row(title=REGISTERED, unit="s", measurements=(REGISTERED,), digits=2, value_max=0.6),
    Row(title=IDLE, unit="MB", measurements=(IDLE,), value_max=60),
    Row(title=READ_MANY, unit="s", measurements=(READ_MANY,), digits=2, value_max=3),
    Row(title=MANY, unit="s", measurements=(MANY,), digits=2, value_max=3),
)

Measure = Callable[[str, MeasuredCluster, Results], None]


def run() -> bool:
    try:
        jars(V3)
        zookeeper = ZooKeeper()
        zookeeper.start()
    except (PeerUnavailable, ZooKeeperUnavailable) as reason:
        print(f"\nNothing to compare with, so no target is shown to be met: {reason}")
        return False
    results = Results()
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as name, ExitStack() as stack:
        stack.callback(zookeeper.close)
        turns = [
            (contender, stack.enter_context(MeasuredCluster(make, Path(name) / folder, zookeeper.address)))
            for contender, make, folder in ((KAFKA, ZooKeeperKafka, "kafka"), (OURS, MeasuredBroker, "ours"))
        ]
        _measure_memory(turns, results)
        _start_with_many(Path(name) / "many", zookeeper.address, results)
        for contender, cluster in turns:
            _warm(contender, cluster)
        for number in range(ROUNDS):
            for measure in MEASURES:
                for contender, cluster in turns if number % 2 == 0 else reversed(turns):
                    tell(f"round {number + 1} of {ROUNDS}: {measure.__name__.strip('_')}, {contender}")
                    measure(contender, cluster, results)
    return report(f"Three brokers compared with Apache Kafka {V3}", ROWS, results, ROUNDS)


def _measure_memory(turns: list[tuple[str, MeasuredCluster]], results: Results) -> None:
    time.sleep(STEADY_S)
    for contender, cluster in turns:
        for broker in cluster.brokers:
            results.add(IDLE, contender, load.resident_mb(broker.pid))


def _start_with_many(folder: Path, zookeeper: str, results: Results) -> None:
    """From its start until a broker leads all partitions. Apache Kafka would take minutes to create them."""
    settings = {"broker.id": "0", "default.replication.factor": "1", "zookeeper.connect": f"{zookeeper}/many"}
    with MeasuredBroker(folder, {**CLUSTER_SETTINGS, **settings}) as broker:
        tell(f"creating {MANY_PARTITIONS:,} partitions")
        for number in range(MANY_TOPICS):
            load.create_topic(broker.port, f"many-{number}", MANY_PARTITIONS // MANY_TOPICS)

        def leads_all() -> bool:
            try:
                with load.connect(broker.port) as connected:
                    topics = load.ask(connected, "Metadata", 4, MetadataRequest(topics=None)).topics
            except OSError:
                return False
            led = [each for topic in topics for each in topic.partitions if each.leader_id == 0]
            return len(led) == MANY_PARTITIONS

        wait_until(leads_all, "the broker leads all partitions", poll_s=0.2)
        for number in range(ROUNDS):
            tell(f"round {number + 1} of {ROUNDS}: start with many partitions, {OURS}")
            broker.stop()
            results.add(READ_MANY, OURS, asyncio.run(_seconds_to_read(settings["zookeeper.connect"])))
            start_s = time.perf_counter()
            broker.begin_start()
            wait_until(leads_all, "the broker leads all partitions", poll_s=0.2)
            results.add(MANY, OURS, time.perf_counter() - start_s)


async def _seconds_to_read(connect: str) -> float:
    """As a controller that takes over reads the cluster."""
    session = await ZooKeeperStore(ZooKeeperSettings(connect=connect)).connect()
    start_s = time.perf_counter()
    found = await read_cluster(session, lambda event: None, watches_topics=True)
    spent_s = time.perf_counter() - start_s
    assert sum(len(topic.states) for topic in found.topics.values()) == MANY_PARTITIONS
    await session.close()
    return spent_s


def _warm(contender: str, cluster: MeasuredCluster) -> None:
    tell(f"warming for {WARM_UP_S:g} s: {contender}")
    end_s = time.monotonic() + WARM_UP_S
    while time.monotonic() < end_s:
        _produce(contender, cluster, Results())


def _move_leaders(contender: str, cluster: MeasuredCluster, results: Results) -> None:
    killed = cluster.others(cluster.controller_id)[0]
    after = cluster.others(killed)
    topic = _create(cluster, [[killed, *after]] * MOVED_PARTITIONS)
    cluster.brokers[killed].kill()
    cluster.wait_until_gone(f"/brokers/ids/{killed}")
    start_s = time.perf_counter()

    def is_moved() -> bool:
        return all(each.leader_id in after for each in cluster.partitions(after[0], topic))

    wait_until(is_moved, "the leaders have moved")
    results.add(MOVED, contender, time.perf_counter() - start_s)
    _restart(cluster, killed, topic, MOVED_PARTITIONS)


def _take_over(contender: str, cluster: MeasuredCluster, results: Results) -> None:
    killed = cluster.controller_id
    after = cluster.others(killed)
    orders = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]
    topic = _create(cluster, [orders[index % BROKERS] for index in range(TAKEN_OVER_PARTITIONS)])
    cluster.brokers[killed].kill()
    cluster.wait_until_gone("/controller")
    start_s = time.perf_counter()

    def is_taken_over(broker_id: int) -> bool:
        answer = cluster.metadata(broker_id, topic)
        return answer.controller_id in after and all(
            each.leader_id in after for each in answer.topics[0].partitions
        )

    wait_until(lambda: all(map(is_taken_over, after)), "another controller has taken over")
    results.add(TAKEN_OVER, contender, time.perf_counter() - start_s)
    _restart(cluster, killed, topic, TAKEN_OVER_PARTITIONS)


def _kill_leader(contender: str, cluster: MeasuredCluster, results: Results) -> None:
    results.add(GAP, contender, _produce_while_leader_ends(cluster, signal.SIGKILL).longest_gap_s())


def _stop_leader(contender: str, cluster: MeasuredCluster, results: Results) -> None:
    producer = _produce_while_leader_ends(cluster, signal.SIGTERM)
    results.add(STOP_GAP, contender, producer.longest_gap_s())
    results.add(STOP_ERRORS, contender, len(producer.errors))


def _produce_while_leader_ends(cluster: MeasuredCluster, how: signal.Signals) -> SteadyProducer:
    leader = cluster.others(cluster.controller_id)[0]
    topic = _create(cluster, [[leader, *cluster.others(leader)]])
    producer = SteadyProducer(cluster, topic)
    is_over = threading.Event()
    thread = threading.Thread(target=producer.run_until, args=(is_over.is_set,))
    thread.start()
    try:
        wait_until(lambda: producer.leader == leader, "the producer has begun")
        time.sleep(STEADY_S)
        cluster.brokers[leader].stop(how)
        wait_until(lambda: producer.leader not in (leader, -1), "the producer continues")
        time.sleep(STEADY_S)
    finally:
        is_over.set()
        thread.join()
    _restart(cluster, leader, topic, 1)
    return producer


def _produce(contender: str, cluster: MeasuredCluster, results: Results) -> None:
    """To three partitions with a leader on each broker, each by its own process."""
    topic = _create(cluster, [[first, *cluster.others(first)] for first in range(BROKERS)])
    batch = load.batch_of(BIG_BYTES)
    cpu_s = cluster.cpu_seconds
    tasks = [(cluster.brokers[index].port, topic, index, batch) for index in range(BROKERS)]
    with multiprocessing.get_context("fork").Pool(BROKERS) as pool:
        parts = pool.starmap_async(_produce_to, tasks, chunksize=1).get(SECONDS + load.TIMEOUT_S)
    amount = sum(part.amount for part in parts)
    results.add(CPU, contender, (cluster.cpu_seconds - cpu_s) / amount * 1e9)
    spent_s = max(part.spent_s for part in parts)
    results.add(
        THROUGHPUT, contender, amount / spent_s / 1e6, sum(part.load_cpu_s for part in parts) / spent_s
    )
    latencies_s = load.produce_latencies(
        cluster.brokers[0].port,
        topic,
        load.batch_of(SMALL_BYTES),
        max(100, int(LATENCIES_A_SECOND * SECONDS)),
        acks=-1,
    )
    results.add(P99, contender, statistics.quantiles(latencies_s, n=100)[98] * 1e6)
    cluster.delete_topic(topic)


def _produce_to(port: int, topic: str, partition: int, batch: bytes) -> Measured:
    return measure_load(
        lambda: load.produce_for(port, topic, batch, SECONDS, partition, acks=-1) * len(batch)
    )


def _catch_up(contender: str, cluster: MeasuredCluster, results: Results) -> None:
    away = cluster.others(cluster.controller_id)[0]
    present = cluster.others(away)
    topic = _create(cluster, [[*present, away]])
    cluster.brokers[away].stop()
    batch = load.batch_of(BIG_BYTES)
    port = cluster.brokers[present[0]].port
    written = 0
    while written < MISSED_BYTES:
        written += load.produce_for(port, topic, batch, MISSED_PIECE_S) * len(batch)
    # What the leaders have not written to the disk yet would compete with the follower.
    os.sync()
    start_s = time.perf_counter()
    cluster.brokers[away].begin_start()

    def is_registered() -> bool:
        return any(each.node_id == away for each in cluster.metadata(present[0]).brokers)

    wait_until(is_registered, "the broker is registered")
    registered_s = time.perf_counter()
    results.add(REGISTERED, contender, registered_s - start_s)

    def is_in_sync() -> bool:
        [partition] = cluster.partitions(present[0], topic)
        return away in partition.isr_nodes

    wait_until(is_in_sync, "the follower is in sync")
    results.add(CATCH_UP, contender, written / (time.perf_counter() - registered_s) / 1e6)
    cluster.wait_for_brokers()
    cluster.delete_topic(topic)


MEASURES: Final[tuple[Measure, ...]] = (
    _produce,
    _catch_up,
    _stop_leader,
    _kill_leader,
    _move_leaders,
    _take_over,
)


def _create(cluster: MeasuredCluster, replicas: list[list[int]]) -> str:
    """A topic for one measurement. Its name is new, since brokers may still be deleting the last one."""
    name = f"load-{time.monotonic_ns()}"
    cluster.create_topic(name, replicas)
    return name


def _restart(cluster: MeasuredCluster, broker_id: int, topic: str, partitions: int) -> None:
    cluster.brokers[broker_id].start()
    cluster.wait_for_brokers()
    cluster.wait_until_in_sync(topic, partitions)
    cluster.delete_topic(topic)
