"""`make demo-migration`: three brokers of Apache Kafka 3.9.1 become Barnabas, one by one, and Apache Kafka again.

Clients produce, consume and run transactions all the time. At the end everything that they did and saw is checked. It
needs Java 17 and Maven, which downloads Apache Kafka once, takes about two minutes, and leaves nothing behind.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from tests.cluster.migration import (
    BROKERS,
    CLUSTER_SETTINGS,
    FROM_KAFKA,
    PLANS,
    Undisturbed,
    errors,
    roll,
)
from tests.cluster.mixed import BARNABAS, KAFKA, MixedCluster, Software, mixed_cluster
from tests.histories.checker import Kind
from tests.histories.history import Acknowledged, Ended, Event, Polled
from tests.histories.workload import Workload
from tests.peers import zookeeper_peer
from tests.peers.kafka_peer import V3, PeerUnavailable, jars

PRODUCER: Final = "idempotent."
WIDTH: Final = 100


@click.command()
@click.option("--one-way", is_flag=True, help="Do not go back to Apache Kafka.")
def main(one_way: bool) -> None:
    """Move a cluster from Apache Kafka to Barnabas and back, without stopping it."""
    console = Console(width=WIDTH, highlight=False)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        jars(V3)
        zookeeper_peer.jars(zookeeper_peer.V3_8)
        with tempfile.TemporaryDirectory(prefix="barnabas-migration-") as folder:
            found = migrate(console, Path(folder), [BARNABAS] if one_way else [BARNABAS, KAFKA])
    except PeerUnavailable as missing:
        sys.exit(f"demo-migration: {missing}")
    except KeyboardInterrupt:
        sys.exit("demo-migration: interrupted")
    sys.exit(1 if found else 0)


def migrate(console: Console, folder: Path, directions: list[Software]) -> int:
    """Returns the number of things that are not as they should be."""
    with running_cluster(console, folder) as brokers:
        service = Undisturbed(brokers)
        console.print(
            f"{len(PLANS)} clients: an idempotent producer, a transactional producer, a group that reads, and a group\n"
            "that copies to another topic in transactions.\n"
        )
        with Workload(service, PLANS, folder, seed=1, replication_factor=BROKERS) as workload:
            workload.wait_for_progress()
            for software in directions:
                console.print(
                    f"[bold]To {software}[/bold]: same broker id, same settings, same log directory"
                )
                started_s = time.monotonic()
                for broker in roll(brokers, software):
                    workload.wait_for_progress()
                    spent_s = time.monotonic() - started_s
                    console.print(
                        f"  broker {broker.broker_id}: {software} runs, all replicas are in sync, all clients go on"
                        f" ({spent_s:.1f} s)"
                    )
                    started_s = time.monotonic()
            console.print(
                "\nThe clients stop. Comparing what they did and saw with what the brokers have ..."
            )
            events, anomalies = workload.finish()
    told = [f"{anomaly.kind}: {anomaly.what}" for anomaly in anomalies]
    told += [f"{each.client}: {each.error}" for each in errors(events)]
    show_result(console, events, told)
    return len(told)


@contextmanager
def running_cluster(console: Console, folder: Path) -> Iterator[MixedCluster]:
    console.print(f"Starting ZooKeeper and {BROKERS} brokers of Apache Kafka {V3} ...")
    with (
        zookeeper_peer.zookeeper(zookeeper_peer.V3_8, folder / "zookeeper") as server,
        mixed_cluster(FROM_KAFKA, folder, server, CLUSTER_SETTINGS) as brokers,
    ):
        yield brokers


def show_result(console: Console, events: list[Event], told: list[str]) -> None:
    acknowledged = [event for event in events if isinstance(event, Acknowledged)]
    committed = sum(event.committed for event in events if isinstance(event, Ended))
    read = sum(len(event.records) for event in events if isinstance(event, Polled))
    console.print(
        f"  {len(acknowledged):,} records confirmed, {committed:,} transactions committed, {read:,} records read\n"
        f"  longest pause of the idempotent producer: {longest_pause_s(acknowledged):.1f} s"
    )
    for line in told:
        console.print(f"  {line}", style="red", markup=False)
    if not told:
        console.print(
            f"  no error that a retry did not cover, and none of {len(Kind)} kinds of anomalies: nothing lost,\n"
            "  nothing twice, nothing out of order, no partial transaction, no offset lost"
        )


def longest_pause_s(acknowledged: list[Acknowledged]) -> float:
    times_s = [event.at_s for event in acknowledged if event.value.startswith(PRODUCER)]
    return max((after - before for before, after in pairwise(times_s)), default=0.0)


if __name__ == "__main__":
    main()
