"""`make cluster`: a ZooKeeper and three brokers on this machine, until Ctrl-C.

It needs Java, and downloads ZooKeeper once by Maven if there is none. It leaves nothing behind.
"""

from __future__ import annotations

import signal
import sys

import click
from rich.console import Console
from rich.table import Table

from barnabas.testing import BrokerFailed, Cluster, ZooKeeperUnavailable


@click.command()
@click.option("--brokers", type=click.IntRange(1, 9), default=3, show_default=True, help="Number of brokers.")
@click.option(
    "--port", type=click.IntRange(1, 65000), default=9092, show_default=True, help="Of the first one."
)
def main(brokers: int, port: int) -> None:
    """Run a cluster on this machine until Ctrl-C."""
    console = Console(highlight=False)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    cluster = Cluster(brokers=brokers, port=port, num_partitions=3)
    try:
        with console.status("starting ZooKeeper and the brokers"):
            cluster.start()
        show(console, cluster)
        signal.pause()
    except (BrokerFailed, ZooKeeperUnavailable) as error:
        sys.exit(f"cluster: {error}")
    except KeyboardInterrupt:
        console.print("The cluster has stopped, and its data is removed.")
    finally:
        cluster.close()


def show(console: Console, cluster: Cluster) -> None:
    table = Table("broker", "address", "process", box=None, pad_edge=False)
    for number, broker in enumerate(cluster.brokers):
        table.add_row(str(number), broker.bootstrap, str(broker.pid))
    console.print(table)
    console.print(f"ZooKeeper: {cluster.zookeeper_connect}\n")
    console.print(
        "Try, in another terminal:\n"
        f"  export BARNABAS_BOOTSTRAP={cluster.bootstrap}\n"
        "  barnabas topics create orders -p 3\n"
        "  barnabas topics describe orders\n"
        "  barnabas perf produce orders --records 1000000 --acks all\n"
        f"  kill -9 {cluster.brokers[0].pid}        # a leader of some partitions: others take over\n\n"
        "Ctrl-C ends the cluster."
    )


if __name__ == "__main__":
    main()
