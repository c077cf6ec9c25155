"""The checker finds each anomaly in a made-up history, and nothing in one that is as it should be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.histories.checker import Kind, check
from tests.histories.history import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    UNKNOWN_OFFSET,
    Acknowledged,
    Ended,
    Ending,
    Event,
    FinalLog,
    FinalState,
    OffsetsCommitted,
    Polled,
    Position,
    Positioned,
    Recorder,
    Sent,
    read_events,
)

IN = "in/0"
OUT = "out/0"


class Told:
    """A history that is put together step by step; each step is a second after the one before."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.records: dict[str, list[tuple[int, str]]] = {IN: [], OUT: []}
        self.hidden: dict[str, set[int]] = {IN: set(), OUT: set()}
        self.offsets: dict[str, dict[str, int]] = {}
        self.unstable: dict[str, int] = {}
        self._numbers = 0

    def now_s(self) -> float:
        return float(len(self.events))

    def append(self, partition: str, value: str, *, hidden: bool = False) -> int:
        """Puts a value at the end of a log; offsets between are those of markers."""
        offset = self.records[partition][-1][0] + 2 if self.records[partition] else 0
        self.records[partition].append((offset, value))
        if hidden:
            self.hidden[partition].add(offset)
        return offset

    def send(
        self,
        value: str,
        *,
        partition: str = IN,
        transaction: str | None = None,
        source: Position | None = None,
        lost: bool = False,
        hidden: bool = False,
    ) -> int:
        self._numbers += 1
        self.events.append(
            Sent(
                at_s=self.now_s(),
                producer="producer",
                number=self._numbers,
                value=value,
                partition=partition,
                transaction=transaction,
                source=source,
                group=None if source is None else "copiers",
            )
        )
        if lost:
            return -1
        offset = self.append(partition, value, hidden=hidden)
        self.acknowledge(value, offset, partition=partition)
        return offset

    def acknowledge(self, value: str, offset: int, *, partition: str = IN) -> None:
        self.events.append(Acknowledged(at_s=self.now_s(), value=value, position=Position(partition, offset)))

    def end(self, transaction: str, *, commit: bool = True, confirmed: bool = True) -> None:
        self.events.append(Ending(at_s=self.now_s(), transaction=transaction, commit=commit))
        if confirmed:
            self.events.append(Ended(at_s=self.now_s(), transaction=transaction, committed=commit))

    def poll(
        self,
        *records: tuple[int, str],
        isolation: str = READ_COMMITTED,
        consumer: str = "one",
        group: str = "group",
    ) -> None:
        polled = [(Position(IN, offset), value) for offset, value in records]
        self.events.append(
            Polled(at_s=self.now_s(), consumer=consumer, group=group, isolation=isolation, records=polled)
        )

    def position(self, consumer: str = "one") -> None:
        self.events.append(Positioned(at_s=self.now_s(), consumer=consumer, partitions=[IN]))

    def commit(self, offset: int, *, kept: bool = True, group: str = "group") -> None:
        self.events.append(OffsetsCommitted(at_s=self.now_s(), group=group, offsets=[Position(IN, offset)]))
        if kept:
            self.offsets.setdefault(group, {})[IN] = offset

    def final(self) -> FinalState:
        logs = {}
        for partition, records in self.records.items():
            end_offset = records[-1][0] + 2 if records else 0
            logs[partition] = FinalLog(
                records=records,
                committed=frozenset(offset for offset, _ in records) - self.hidden[partition],
                high_watermark=end_offset,
                last_stable_offset=self.unstable.get(partition, end_offset),
            )
        return FinalState(logs=logs, offsets=self.offsets)


def clean() -> Told:
    """Of everything that may happen, once."""
    told = Told()
    told.send("plain")
    told.acknowledge("plain", UNKNOWN_OFFSET)
    told.send("never answered", lost=True)
    told.send("committed 1", transaction="t1")
    told.send("committed 2", transaction="t1")
    told.end("t1")
    told.send("aborted", transaction="t2", hidden=True)
    told.end("t2", commit=False)
    told.send("in doubt, in", transaction="t3")
    told.end("t3", confirmed=False)
    told.send("in doubt, out", transaction="t4", hidden=True)
    told.end("t4", confirmed=False)
    told.send("left behind", transaction="t5", hidden=True)
    told.position()
    told.poll((0, "plain"), (2, "committed 1"))
    told.poll((4, "committed 2"), (8, "in doubt, in"))
    told.commit(9)
    told.position()
    told.poll((2, "committed 1"))
    told.poll(
        (0, "plain"), (2, "committed 1"), (4, "committed 2"), consumer="all", isolation=READ_UNCOMMITTED
    )
    told.poll((6, "aborted"), (8, "in doubt, in"), consumer="all", isolation=READ_UNCOMMITTED)
    told.send("copy", partition=OUT, transaction="t6", source=Position(IN, 0))
    told.poll((0, "plain"), consumer="copier", group="copiers")
    told.end("t6")
    told.commit(1, group="copiers")
    return told


def lost_write(told: Told) -> None:
    told.send("gone", lost=True)
    told.acknowledge("gone", 99)


def write_lost_at_an_unknown_offset(told: Told) -> None:
    told.send("gone", lost=True)
    told.acknowledge("gone", UNKNOWN_OFFSET)


def write_lost_with_its_transaction(told: Told) -> None:
    told.send("gone", transaction="t9", hidden=True)
    told.end("t9")


def duplicate(told: Told) -> None:
    told.append(IN, "never answered")
    told.append(IN, "never answered")


def unknown_value(told: Told) -> None:
    told.append(IN, "from nowhere")


def unknown_value_polled(told: Told) -> None:
    told.poll((101, "from nowhere"), consumer="other", group="others")


def inverted_send(told: Told) -> None:
    told.append(IN, "never answered")


def inconsistent_offsets(told: Told) -> None:
    told.poll((0, "committed 1"), consumer="other", group="others")


def aborted_read(told: Told) -> None:
    told.poll((6, "aborted"), consumer="other", group="others")


def read_of_what_was_left_behind(told: Told) -> None:
    told.hidden[IN].clear()
    told.hidden[IN] = {6, 10}


def early_read(told: Told) -> None:
    offset = told.send("early", transaction="t9")
    told.poll((offset, "early"), consumer="other", group="others")
    told.end("t9")


def torn_transaction(told: Told) -> None:
    told.hidden[IN].add(4)


def torn_transaction_in_doubt(told: Told) -> None:
    told.send("half 1", transaction="t9")
    told.send("half 2", transaction="t9", lost=True)
    told.end("t9", confirmed=False)


def hanging_transaction(told: Told) -> None:
    told.unstable[IN] = 12


def inverted_poll(told: Told) -> None:
    told.poll((4, "committed 2"), (2, "committed 1"), consumer="other", group="others")


def repeated_poll(told: Told) -> None:
    told.poll((4, "committed 2"), consumer="other", group="others")
    told.poll((4, "committed 2"), consumer="other", group="others")


def skipped_poll(told: Told) -> None:
    told.poll((0, "plain"), (4, "committed 2"), consumer="other", group="others")


def skipped_poll_of_all(told: Told) -> None:
    told.poll((4, "committed 2"), (8, "in doubt, in"), consumer="x", group="x", isolation=READ_UNCOMMITTED)


def skipped_by_group(told: Told) -> None:
    told.poll((0, "plain"), consumer="other", group="others")
    told.commit(3, group="others")


def lost_commit(told: Told) -> None:
    told.commit(10, kept=False)


def lost_commit_of_a_group(told: Told) -> None:
    told.commit(0, kept=False, group="nobody")


def impossible_commit(told: Told) -> None:
    told.commit(99, group="nobody")
    told.poll(*told.records[IN], consumer="other", group="nobody", isolation=READ_UNCOMMITTED)


def source_twice(told: Told) -> None:
    told.send("copy again", partition=OUT, transaction="t9", source=Position(IN, 0))
    told.end("t9")


def source_skipped(told: Told) -> None:
    told.poll((2, "committed 1"), consumer="copier", group="copiers")
    told.commit(3, group="copiers")


def torn_offsets(told: Told) -> None:
    told.send("copy too soon", partition=OUT, transaction="t9", source=Position(IN, 2))
    told.end("t9")


ANOMALIES: list[tuple[Callable[[Told], None], Kind]] = [
    (lost_write, Kind.LOST_WRITE),
    (write_lost_at_an_unknown_offset, Kind.LOST_WRITE),
    (write_lost_with_its_transaction, Kind.LOST_WRITE),
    (duplicate, Kind.DUPLICATE),
    (unknown_value, Kind.UNKNOWN_VALUE),
    (unknown_value_polled, Kind.UNKNOWN_VALUE),
    (inverted_send, Kind.INVERTED_SEND),
    (inconsistent_offsets, Kind.INCONSISTENT_OFFSETS),
    (aborted_read, Kind.ABORTED_READ),
    (read_of_what_was_left_behind, Kind.ABORTED_READ),
    (early_read, Kind.EARLY_READ),
    (torn_transaction, Kind.TORN_TRANSACTION),
    (torn_transaction_in_doubt, Kind.TORN_TRANSACTION),
    (hanging_transaction, Kind.HANGING_TRANSACTION),
    (inverted_poll, Kind.INVERTED_POLL),
    (repeated_poll, Kind.INVERTED_POLL),
    (skipped_poll, Kind.SKIPPED_POLL),
    (skipped_poll_of_all, Kind.SKIPPED_POLL),
    (skipped_by_group, Kind.SKIPPED_BY_GROUP),
    (lost_commit, Kind.LOST_COMMIT),
    (lost_commit_of_a_group, Kind.LOST_COMMIT),
    (impossible_commit, Kind.IMPOSSIBLE_COMMIT),
    (source_twice, Kind.SOURCE_TWICE),
    (source_skipped, Kind.SOURCE_SKIPPED),
    (torn_offsets, Kind.TORN_OFFSETS),
]


def test_a_history_without_anomaly() -> None:
    told = clean()
    assert check(told.events, told.final()) == []


@pytest.mark.parametrize(("spoil", "kind"), ANOMALIES, ids=[spoil.__name__ for spoil, _ in ANOMALIES])
def test_each_anomaly_is_found(spoil: Callable[[Told], None], kind: Kind) -> None:
    told = clean()
    spoil(told)
    found = {anomaly.kind for anomaly in check(told.events, told.final())}
    assert kind in found
    # One thing is not taken for many; but what is there twice is also out of its order.
    others = found - {kind}
    assert others <= {Kind.INVERTED_SEND} if kind is Kind.DUPLICATE else not others


def test_every_kind_has_a_history() -> None:
    assert {kind for _, kind in ANOMALIES} == set(Kind)


def test_events_are_read_as_they_were_written(tmp_path: Path) -> None:
    told = clean()
    path = tmp_path / "events"
    with Recorder(path) as recorder:
        for event in told.events:
            recorder.write(event)
    assert list(read_events([path])) == told.events
    # A client was killed while it wrote.
    path.write_bytes(path.read_bytes()[:-5])
    assert list(read_events([path])) == told.events[:-1]
