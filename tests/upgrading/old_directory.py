"""Directories that an older version has written: how they are made, and what a version sees in one.

`seen` and `fill` use names that all versions have, so that an old version runs them too. It writes an archive of
directories, and beside each what it served from it itself. For a version of which COMMIT is the last commit:

    git worktree add /tmp/old COMMIT
    PYTHONPATH=/tmp/old/src .venv/bin/python tests/upgrading/old_directory.py tests/data/upgrading/VERSION.tar.gz
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from barnabas import Admin, Consumer, OffsetAndMetadata, Producer, TopicPartition
from barnabas.testing import Broker

CLEAN: Final = "clean"
KILLED: Final = "killed"
START_MS: Final = 1_700_000_000_000
TIMEOUT_MS: Final = 30_000
LAYOUT: Final = {
    "orders": (2, {"retention.ms": "-1", "segment.bytes": "1024", "max.message.bytes": "200000"}),
    "accounts": (1, {"cleanup.policy": "compact"}),
    "payments": (1, {"retention.ms": "-1"}),
}
GROUPS: Final = ("billing", "audit", "copier")
QUOTA: Final = (("user", "ann"),)


def fill(broker: Broker, *, leaves_a_transaction_open: bool) -> None:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        for topic, (partitions, configs) in LAYOUT.items():
            admin.create_topics([topic], partitions=partitions, configs=configs)
        _produce(broker.bootstrap)
        admin.delete_records({TopicPartition("orders", 1): 5})
        admin.alter_quotas({QUOTA: {"producer_byte_rate": 1_000_000.0}})
    _commit_offsets(broker.bootstrap)
    _run_transactions(broker.bootstrap)
    if leaves_a_transaction_open:
        producer = Producer(bootstrap_servers=broker.bootstrap, transactional_id="open")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("payments", b"never committed", timestamp_ms=START_MS).result()
        broker.kill()
        producer.close(timeout_ms=0)


def _produce(bootstrap: str) -> None:
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    for round_, codec in enumerate(codecs):
        with Producer(bootstrap_servers=bootstrap, compression_type=codec) as producer:
            for index in range(6):
                producer.send(
                    "orders",
                    f"order {round_}.{index} ".encode() * (60 if index == 0 else 1),
                    key=f"customer-{index}".encode(),
                    partition=index % 2,
                    timestamp_ms=START_MS + round_ * 1_000 + index,
                    headers=[("codec", codec.encode()), ("nothing", None)],
                )
                balance = None if (round_, index) == (4, 5) else f"{round_}".encode()
                producer.send(
                    "accounts", balance, key=f"account-{index}".encode(), timestamp_ms=START_MS + round_
                )
            producer.flush()


def _commit_offsets(bootstrap: str) -> None:
    for group, protocol in (("billing", "classic"), ("audit", "consumer")):
        with Consumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            consumer.subscribe(["orders"])
            while len(consumer.assignment()) < 2:
                consumer.poll(1_000)
            consumer.commit({TopicPartition("orders", 0): OffsetAndMetadata(7, f"of {group}")})
            consumer.commit({TopicPartition("orders", 1): OffsetAndMetadata(9, "")})


def _run_transactions(bootstrap: str) -> None:
    with Producer(bootstrap_servers=bootstrap, transactional_id="bank") as producer:
        producer.init_transactions()
        for outcome in ("committed", "aborted", "committed again"):
            producer.begin_transaction()
            for index in range(2):
                producer.send("payments", f"{outcome} {index}".encode(), timestamp_ms=START_MS)
            producer.send_offsets_to_transaction(
                {TopicPartition("orders", 0): OffsetAndMetadata(3 + len(outcome), "")}, "copier"
            )
            producer.flush()
            if outcome == "aborted":
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    with Admin(bootstrap_servers=bootstrap) as admin:
        # The broker writes the last record of a transaction after its answer.
        end_s = time.monotonic() + TIMEOUT_MS / 1000
        while not admin.describe_transactions(["bank"])["bank"].state.startswith("Complete"):
            assert time.monotonic() < end_s, "the transaction does not end"


def end_open_transaction(bootstrap: str) -> None:
    """A new producer with the same id aborts what the one before has left."""
    with Producer(bootstrap_servers=bootstrap, transactional_id="open") as producer:
        producer.init_transactions()


def seen(bootstrap: str) -> dict[str, Any]:
    """All that clients can see, in a form for JSON."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        topics = admin.describe_topics(list(LAYOUT))
        return {
            "topics": {
                name: {"id": str(topic.topic_id), "partitions": len(topic.partitions)}
                for name, topic in topics.items()
            },
            "configs": _topic_configs(admin),
            "offsets": {group: _group_offsets(admin, group) for group in GROUPS},
            "transactions": {
                name: [each.state, each.producer_id, each.producer_epoch]
                for name, each in admin.describe_transactions(["bank"]).items()
            },
            "quotas": admin.describe_quotas({"user": "ann"})[QUOTA],
            "records": {
                f"{topic}-{partition} {isolation}": _records(
                    bootstrap, TopicPartition(topic, partition), isolation
                )
                for topic, (partitions, _) in LAYOUT.items()
                for partition in range(partitions)
                for isolation in ("read_committed", "read_uncommitted")
            },
        }


def _topic_configs(admin: Admin) -> dict[str, dict[str, str | None]]:
    # In 0.1 this was a module, now it is a package.
    is_package = hasattr(import_module("barnabas.client.admin"), "__path__")
    results = import_module(
        "barnabas.client.admin.results" if is_package else "barnabas.client.admin_results"
    )
    resources = {results.ConfigResource(results.ResourceType.TOPIC, topic): topic for topic in LAYOUT}
    return {
        resources[resource]: {
            name: entry.value
            for name, entry in sorted(entries.items())
            if entry.source.name == "DYNAMIC_TOPIC_CONFIG"
        }
        for resource, entries in admin.describe_configs(resources).items()
    }


def _group_offsets(admin: Admin, group: str) -> dict[str, list[Any]]:
    found = admin.list_group_offsets(group, require_stable=True)
    return {
        f"{partition.topic}-{partition.partition}": [committed.offset, committed.metadata]
        for partition, committed in sorted(found.items())
    }


def _records(bootstrap: str, partition: TopicPartition, isolation: str) -> dict[str, Any]:
    with Consumer(
        bootstrap_servers=bootstrap, isolation_level=isolation, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([partition])
        (first,), (end,) = (
            list(found.values())
            for found in (consumer.beginning_offsets(partition), consumer.end_offsets(partition))
        )
        rows: list[list[Any]] = []
        while consumer.position(partition) < end:
            rows += [
                [record.offset, record.timestamp_ms, _text(record.key), _text(record.value)]
                + [[name, _text(value)] for name, value in record.headers]
                for record in consumer.poll(TIMEOUT_MS)
            ]
    return {"first_offset": first, "end_offset": end, "rows": rows}


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def write(archive_path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder, tarfile.open(archive_path, "w:gz") as archive:
        for kind in (CLEAN, KILLED):
            directory = Path(folder, kind)
            directory.mkdir()
            # Small indexes: a broker that is killed leaves them at their full size.
            broker = Broker(directory=directory, log_index_size_max_bytes=4096)
            broker.start()
            fill(broker, leaves_a_transaction_open=kind == KILLED)
            if kind == CLEAN:
                expected = seen(broker.bootstrap)
                broker.stop()
            archive.add(directory, kind, filter=_anonymous)
            if kind == KILLED:
                # What the old version itself recovers from it.
                broker.start()
                end_open_transaction(broker.bootstrap)
                expected = seen(broker.bootstrap)
                broker.stop()
            text = json.dumps(expected, indent=1).encode()
            entry = tarfile.TarInfo(f"{kind}.json")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text))


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    write(Path(sys.argv[1]))
