"""Transactions that Apache Kafka has stored: read as it describes them, written as it writes them, step by step."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePath
from typing import Any

import pytest

from barnabas.model import NO_PRODUCER_EPOCH
from barnabas.records.reader import iterate_batches
from barnabas.records.record import Record
from barnabas.transactions.coordinator import TransactionCoordinator
from barnabas.transactions.listing import TransactionFilter, describe_transaction, list_transactions
from barnabas.transactions.records import parse_record
from barnabas.transactions.settings import TransactionSettings
from barnabas.transactions.transaction import PREPARED, Transaction, TransactionState
from tests.log.golden.images import ALL, ARCHIVE
from tests.sampling import sample
from tests.transactions.shell import ProducerIdSource


class StoredTransactions:
    """What an image holds of `__transaction_state`, and what Kafka says of its transactions."""

    def __init__(self) -> None:
        self.transactions: list[dict[str, Any]] = []
        self.segments: dict[str, dict[str, bytes]] = {}

    def coordinators(self) -> list[TransactionCoordinator]:
        coordinators = []
        for segments in self.segments.values():
            coordinator = TransactionCoordinator(TransactionSettings(), ProducerIdSource())
            for _, segment in sorted(segments.items()):
                for header, records in iterate_batches(segment):
                    coordinator.replay(header, records)
            coordinators.append(coordinator)
        return coordinators

    def records(self) -> Iterator[Record]:
        for segments in self.segments.values():
            for _, segment in sorted(segments.items()):
                for _, records in iterate_batches(segment):
                    yield from records


@pytest.fixture(scope="module")
def images() -> dict[str, StoredTransactions]:
    images: dict[str, StoredTransactions] = {}
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            path = PurePath(member.name)
            file = archive.extractfile(member)
            if file is None:
                continue
            if path.name == "manifest.json":
                stored = images.setdefault(path.parent.name, StoredTransactions())
                stored.transactions = json.loads(file.read())["transactions"]
            elif path.suffix == ".log" and path.parent.name.startswith("__transaction_state-"):
                stored = images.setdefault(path.parents[2].name, StoredTransactions())
                stored.segments.setdefault(path.parent.name, {})[path.name] = file.read()
    return images


@pytest.fixture
def stored(images: dict[str, StoredTransactions], request: pytest.FixtureRequest) -> StoredTransactions:
    return images[request.param]


@pytest.mark.parametrize("stored", ALL, indirect=True)
def test_transactions_are_as_kafka_describes_them(stored: StoredTransactions) -> None:
    found = []
    for coordinator in stored.coordinators():
        for listed in list_transactions([coordinator], TransactionFilter(), 0):
            described = describe_transaction(coordinator, listed.transactional_id)
            assert (described.producer_id, described.transaction_state) == (
                listed.producer_id,
                listed.transaction_state,
            )
            found.append(
                {
                    "id": described.transactional_id,
                    "producerId": described.producer_id,
                    "state": described.transaction_state,
                    "epoch": described.producer_epoch,
                    "timeoutMs": described.transaction_timeout_ms,
                    "startMs": described.transaction_start_time_ms,
                    "partitions": [
                        f"{topic.topic}-{partition}"
                        for topic in described.topics
                        for partition in topic.partitions
                    ],
                }
            )
    assert sorted(found, key=lambda each: str(each["id"])) == stored.transactions


@pytest.mark.parametrize("stored", [name for name in ALL if name.startswith("k4")], indirect=True)
def test_records_are_written_as_kafka_writes_them(stored: StoredTransactions) -> None:
    rewritten = 0
    for record in stored.records():
        parsed = parse_record(record)
        assert parsed is not None
        assert parsed.key_bytes() == record.key
        # Partitions stand in no particular order there.
        if parsed.transaction is None or len(parsed.transaction.partitions) <= 1:
            assert parsed.value_bytes() == record.value
            rewritten += 1
    assert rewritten > 100


@pytest.mark.parametrize("stored", sample(ALL, fast=2), indirect=True)
def test_each_step_is_one_of_ours(stored: StoredTransactions) -> None:
    before: dict[str, Transaction] = {}
    steps: set[tuple[TransactionState, TransactionState]] = set()
    for record in stored.records():
        parsed = parse_record(record)
        assert parsed is not None
        after = parsed.transaction
        known = before.pop(parsed.transactional_id, None)
        if after is None:
            continue
        before[parsed.transactional_id] = after
        # Compaction leaves gaps, behind which nothing can be said.
        if known is None or after.last_update_timestamp < known.last_update_timestamp:
            continue
        if _is_gap(known, after):
            continue
        # Records of 3.9 do not tell the producer id before.
        made = _step(known, after)
        previous = (
            after.previous_producer_id if after.previous_producer_id >= 0 else made.previous_producer_id
        )
        expected = replace(after, previous_producer_id=previous)
        assert replace(made, last_producer_epoch=NO_PRODUCER_EPOCH) == expected
        steps.add((known.state, after.state))
    assert len(steps) >= 4


def _is_gap(known: Transaction, after: Transaction) -> bool:
    if after.state in PREPARED:
        return known.state is not TransactionState.ONGOING
    if after.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
        return known.state not in PREPARED
    return known.state in PREPARED or (
        after.state is TransactionState.EMPTY and known.state is TransactionState.ONGOING
    )


def _step(known: Transaction, after: Transaction) -> Transaction:
    now_ms = after.last_update_timestamp
    if after.state is TransactionState.EMPTY:
        # Two producers may have come one after the other, of which one record is left.
        known = replace(known, producer_epoch=after.producer_epoch)
        return replace(
            known.begin_producer(after.timeout_ms, None, now_ms), producer_epoch=after.producer_epoch
        )
    if after.state is TransactionState.ONGOING:
        return known.add_partitions(after.partitions, after.version, now_ms)
    if after.state in PREPARED:
        # What the broker aborts by itself was fenced in 3.9 before it was prepared.
        fenced = after.version == 0 and after.producer_epoch == known.producer_epoch + 1
        if fenced:
            known = replace(known, producer_epoch=after.producer_epoch)
        return known.prepare(
            is_commit=after.is_commit,
            version=after.version,
            next_producer_id=after.next_producer_id,
            now_ms=now_ms,
        )
    return known.complete(now_ms)
