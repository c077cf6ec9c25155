"""`python -m bench [TABLE…]`: prints the named tables, or all of them; exit code 1 when a target is missed."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import platform
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from barnabas import __version__

# name -> (module with a function `run() -> bool` that prints its table and says whether its targets are met, summary)
TABLES: dict[str, tuple[str, str]] = {
    "codec": ("bench.codec", "messages decoded and encoded, compared with kafka-python and kio"),
    "records": ("bench.records", "records decoded, encoded and turned into columns"),
    "log": ("bench.log", "append, read, recover"),
    "cleaner": ("bench.cleaner", "compaction"),
    "log_manager": ("bench.log_manager", "10,000 partitions reopened"),
    "timers": ("bench.timers", "timers added and cancelled, compared with a heap"),
    "broker": ("bench.broker", "a broker compared with Apache Kafka"),
    "tls": ("bench.tls", "a broker with TLS compared with Apache Kafka with TLS; checks of 10,000 ACLs"),
    "groups": ("bench.groups", "offset commits and rebalances, compared with Apache Kafka"),
    "transactions": ("bench.transactions", "transactions, compared with Apache Kafka"),
    "host": ("bench.host", "several brokers on one host, compared with one"),
    "cluster": ("bench.cluster", "three brokers on ZooKeeper, compared with three of Apache Kafka 3.9"),
    "client_consume": (
        "bench.client_consume",
        "our consumer compared with confluent-kafka, aiokafka and kafka-python",
    ),
    "spark": ("bench.spark", "sources and sinks of Spark, compared with Spark's own connector"),
    "console": ("bench.console", "the console's search, compared with kafka-console-consumer and grep"),
    "scale": ("bench.scale", "2,000 connections and 10,000 partitions"),
    "client_produce": (
        "bench.client_produce",
        "the producer compared with confluent-kafka, aiokafka and kafka-python",
    ),
}


def available() -> dict[str, str]:
    return {
        name: summary
        for name, (module, summary) in TABLES.items()
        if importlib.util.find_spec(module) is not None
    }


def is_compiled() -> bool:
    from barnabas.protocol import frames

    return Path(frames.__file__).suffix != ".py"


def machine() -> str:
    return (
        f"barnabas {__version__}, {'compiled' if is_compiled() else 'NOT COMPILED'} · "
        f"{platform.python_implementation()} {platform.python_version()} · "
        f"{platform.system()} {platform.release()} {platform.machine()} · "
        f"{len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()} cores"
    )


def run(name: str) -> bool:
    """Prints one table. One that breaks has not met its targets, and the others still run."""
    try:
        met = importlib.import_module(TABLES[name][0]).run()
    except Exception:
        traceback.print_exc()
        return False
    assert isinstance(met, bool), f"{name} does not say whether its targets are met"
    return met


def main(arguments: Sequence[str] | None = None) -> int:
    tables = available()
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Benchmarks with their targets.",
        epilog="\n".join(["tables:", *(f"  {name:10} {summary}" for name, summary in tables.items())]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="which ones; all when none is named")
    chosen: list[str] = parser.parse_args(arguments).tables or list(tables)
    for name in chosen:
        if name not in tables:
            parser.error(f"there is no table {name!r}; choose from: {', '.join(tables)}")
    print(machine(), flush=True)
    missed = [name for name in chosen if not run(name)]
    print()
    print(f"targets missed in: {', '.join(missed)}" if missed else "all targets met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
