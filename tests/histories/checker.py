"""Finds what must not be in a history, after the manner of Jepsen's checker for Kafka.

A pure function: events of the clients and the final state go in, anomalies come out. What a client was never told
about (a send without an answer, a transaction that was being committed when the broker went away) may have happened or
not, but never in part.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from tests.histories.history import (
    READ_COMMITTED,
    UNKNOWN_OFFSET,
    Acknowledged,
    Ended,
    Ending,
    Event,
    FinalLog,
    FinalState,
    GaveUp,
    OffsetsCommitted,
    Polled,
    Position,
    Positioned,
    Sent,
)


class Kind(StrEnum):
    LOST_WRITE = "lost write"
    DUPLICATE = "duplicate"
    UNKNOWN_VALUE = "value that nobody sent"
    INVERTED_SEND = "inverted send"
    INCONSISTENT_OFFSETS = "inconsistent offsets"
    ABORTED_READ = "aborted read"
    EARLY_READ = "read before the commit"
    TORN_TRANSACTION = "torn transaction"
    HANGING_TRANSACTION = "hanging transaction"
    INVERTED_POLL = "inverted poll"
    SKIPPED_POLL = "skipped poll"
    SKIPPED_BY_GROUP = "skipped by the group"
    LOST_COMMIT = "lost commit of offsets"
    IMPOSSIBLE_COMMIT = "commit beyond the log"
    SOURCE_TWICE = "source consumed twice"
    SOURCE_SKIPPED = "source consumed without a result"
    TORN_OFFSETS = "result without its source's offset"


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    kind: Kind
    what: str


@dataclass(slots=True, kw_only=True)
class _Transaction:
    values: list[str] = field(default_factory=list)
    # When its commit was first asked for; never, for one that nobody can have committed.
    commit_began_s: float | None = None
    is_committed: bool = False
    is_aborted: bool = False

    @property
    def can_be_committed(self) -> bool:
        return self.commit_began_s is not None and not self.is_aborted


class _Index:
    """A history by value, transaction, consumer and group."""

    def __init__(self, events: Sequence[Event], final: FinalState) -> None:
        self.final = final
        self.sent: dict[str, Sent] = {}
        self.acknowledged: list[Acknowledged] = []
        self.transactions: dict[str, _Transaction] = defaultdict(_Transaction)
        self.polled: list[Polled] = []
        # Of each consumer, in its order.
        self.consumed: dict[str, list[Polled | Positioned]] = defaultdict(list)
        self.committed: list[OffsetsCommitted] = []
        for event in events:
            self._add(event)
        # In the order of partitions and offsets; a value that is there twice stays twice.
        self.found: dict[str, list[Position]] = defaultdict(list)
        self.visible: dict[str, set[str]] = {}
        for partition, log in final.logs.items():
            self.visible[partition] = {value for offset, value in log.records if offset in log.committed}
            for offset, value in log.records:
                self.found[value].append(Position(partition, offset))

    def _add(self, event: Event) -> None:
        match event:
            case Sent():
                assert event.value not in self.sent, f"{event.value} was sent twice: not a history to check"
                self.sent[event.value] = event
                if event.transaction is not None:
                    self.transactions[event.transaction].values.append(event.value)
            case Acknowledged():
                self.acknowledged.append(event)
            case Ending():
                transaction = self.transactions[event.transaction]
                if event.commit and transaction.commit_began_s is None:
                    transaction.commit_began_s = event.at_s
            case Ended():
                transaction = self.transactions[event.transaction]
                transaction.is_committed |= event.committed
                transaction.is_aborted |= not event.committed
            case Polled():
                self.polled.append(event)
                self.consumed[event.consumer].append(event)
            case Positioned():
                self.consumed[event.consumer].append(event)
            case OffsetsCommitted():
                self.committed.append(event)
            case GaveUp():
                pass
            case _:
                raise AssertionError(event)

    def transaction_of(self, value: str) -> _Transaction | None:
        sent = self.sent.get(value)
        return None if sent is None or sent.transaction is None else self.transactions[sent.transaction]

    def is_visible(self, value: str) -> bool:
        """Whether a consumer that reads what is committed gets the value in the end."""
        return value in self.visible.get(self.sent[value].partition, ())

    def log(self, partition: str) -> FinalLog:
        return self.final.logs[partition]


def check(events: Sequence[Event], final: FinalState) -> list[Anomaly]:
    index = _Index(events, final)
    return [Anomaly(kind=kind, what=what) for kind, find in _CHECKS for what in find(index)]


def _lost_writes(index: _Index) -> Iterator[str]:
    """Acknowledged is kept, whatever became of its transaction."""
    for event in index.acknowledged:
        found = index.found.get(event.value, [])
        if event.position.offset == UNKNOWN_OFFSET:
            is_there = event.position.partition in [position.partition for position in found]
        else:
            is_there = event.position in found
        if not is_there:
            yield f"{event.value} was acknowledged at {event.position}, found at {index.found.get(event.value)}"
    for name, transaction in index.transactions.items():
        if transaction.is_committed and transaction.values and not _visible_values(index, transaction):
            yield f"nothing of {name} is visible, which was committed"


def _visible_values(index: _Index, transaction: _Transaction) -> list[str]:
    return [value for value in transaction.values if index.is_visible(value)]


def _duplicates(index: _Index) -> Iterator[str]:
    for value, positions in index.found.items():
        if len(positions) > 1:
            yield f"{value} is at {positions}"


def _unknown_values(index: _Index) -> Iterator[str]:
    polled = {value: position for event in index.polled for position, value in event.records}
    for value, position in polled.items():
        if value not in index.sent:
            yield f"{value} was polled at {position}"
    for value, positions in index.found.items():
        if value not in index.sent:
            yield f"{value} is at {positions}"


def _inverted_sends(index: _Index) -> Iterator[str]:
    for partition, log in index.final.logs.items():
        last: dict[str, Sent] = {}
        for offset, value in log.records:
            sent = index.sent.get(value)
            if sent is None:
                continue
            before = last.get(sent.producer)
            if before is not None and before.number > sent.number:
                yield f"{value} at {Position(partition, offset)} comes after {before.value}"
            last[sent.producer] = sent


def _inconsistent_offsets(index: _Index) -> Iterator[str]:
    """Whoever sees a position sees the same value there, now and later."""
    seen: dict[Position, str] = {
        Position(partition, offset): value
        for partition, log in index.final.logs.items()
        for offset, value in log.records
    }
    observed = [
        (event.position, event.value)
        for event in index.acknowledged
        if event.position.offset != UNKNOWN_OFFSET
    ]
    observed += [record for event in index.polled for record in event.records]
    for position, value in observed:
        if seen.setdefault(position, value) != value:
            yield f"{position} is {value} and {seen[position]}"


def _aborted_reads(index: _Index) -> Iterator[str]:
    for value in sorted(index.found):
        transaction = index.transaction_of(value)
        if transaction is not None and not transaction.can_be_committed and index.is_visible(value):
            yield f"{value} is visible in the end"
    for event in index.polled:
        for position, value in event.records if event.isolation == READ_COMMITTED else ():
            transaction = index.transaction_of(value)
            if transaction is not None and not transaction.can_be_committed:
                yield f"{value} came to {event.consumer} from {position}"


def _early_reads(index: _Index) -> Iterator[str]:
    for event in index.polled:
        for position, value in event.records if event.isolation == READ_COMMITTED else ():
            transaction = index.transaction_of(value)
            if (
                transaction is not None
                and transaction.commit_began_s is not None
                and event.at_s < transaction.commit_began_s
            ):
                yield f"{value} came to {event.consumer} from {position}"


def _torn_transactions(index: _Index) -> Iterator[str]:
    for name, transaction in index.transactions.items():
        visible = len(_visible_values(index, transaction))
        if 0 < visible < len(transaction.values):
            yield f"{visible} of {len(transaction.values)} values of {name} are visible"


def _hanging_transactions(index: _Index) -> Iterator[str]:
    for partition, log in index.final.logs.items():
        if log.last_stable_offset != log.high_watermark:
            yield f"{partition} is stable up to {log.last_stable_offset} of {log.high_watermark}"


def _inverted_polls(index: _Index) -> Iterator[str]:
    for event, before, after in _steps(index):
        if after.offset <= before.offset:
            yield f"{event.consumer} got {after} after {before}"


def _skipped_polls(index: _Index) -> Iterator[str]:
    readable: dict[tuple[str, str], list[int]] = {}
    for event, before, after in _steps(index):
        of_log = (event.isolation, before.partition)
        if of_log not in readable:
            readable[of_log] = _readable(index.log(before.partition), event.isolation)
        offsets = readable[of_log]
        skipped = offsets[bisect_right(offsets, before.offset) : bisect_left(offsets, after.offset)]
        if skipped:
            yield f"{event.consumer} got {after} after {before}, without {skipped}"


def _readable(log: FinalLog, isolation: str) -> list[int]:
    return [offset for offset, _ in log.records if isolation != READ_COMMITTED or offset in log.committed]


def _steps(index: _Index) -> Iterator[tuple[Polled, Position, Position]]:
    """From each record that a consumer got to the next of the same partition, while it read on."""
    for events in index.consumed.values():
        last: dict[str, Position] = {}
        for event in events:
            if isinstance(event, Positioned):
                for partition in event.partitions:
                    last.pop(partition, None)
                continue
            for position, _ in event.records:
                before = last.get(position.partition)
                if before is not None:
                    yield event, before, position
                last[position.partition] = position


def _skipped_by_groups(index: _Index) -> Iterator[str]:
    """What a group has committed as consumed came to one of its members."""
    delivered: dict[str, set[Position]] = defaultdict(set)
    isolations: dict[str, set[str]] = defaultdict(set)
    for event in index.polled:
        isolations[event.group].add(event.isolation)
        delivered[event.group].update(position for position, _ in event.records)
    for group, offsets in index.final.offsets.items():
        # Where some members read what is not committed, the others need not have got it.
        isolation = READ_COMMITTED if READ_COMMITTED in isolations[group] else ""
        for partition, end_offset in offsets.items():
            for offset in _readable(index.log(partition), isolation):
                if offset < end_offset and Position(partition, offset) not in delivered[group]:
                    yield f"{group} has committed {end_offset} and nobody got {Position(partition, offset)}"


def _lost_commits(index: _Index) -> Iterator[str]:
    highest: dict[tuple[str, str], int] = defaultdict(int)
    for event in index.committed:
        for partition, offset in event.offsets:
            highest[event.group, partition] = max(highest[event.group, partition], offset)
    for (group, partition), offset in highest.items():
        found = index.final.offsets.get(group, {}).get(partition)
        if found is None or found < offset:
            yield f"{group} has committed {offset} of {partition}, found {found}"


def _impossible_commits(index: _Index) -> Iterator[str]:
    for group, offsets in index.final.offsets.items():
        for partition, offset in offsets.items():
            if offset > index.log(partition).high_watermark:
                yield f"{group} has {offset} of {partition}, which ends at {index.log(partition).high_watermark}"


def _results(index: _Index) -> dict[tuple[str, Position], list[str]]:
    """Visible values that were made from others, by group and source."""
    results: dict[tuple[str, Position], list[str]] = defaultdict(list)
    for value, sent in index.sent.items():
        if sent.source is not None and sent.group is not None and index.is_visible(value):
            results[sent.group, sent.source].append(value)
    return results


def _sources_twice(index: _Index) -> Iterator[str]:
    for (group, source), values in _results(index).items():
        if len(values) > 1:
            yield f"{group} has made {values} of {source}"


def _sources_skipped(index: _Index) -> Iterator[str]:
    results = _results(index)
    for group in sorted({sent.group for sent in index.sent.values() if sent.group is not None}):
        for partition, end_offset in index.final.offsets.get(group, {}).items():
            for offset in _readable(index.log(partition), READ_COMMITTED):
                source = Position(partition, offset)
                if offset < end_offset and (group, source) not in results:
                    yield f"{group} has committed {end_offset} and has made nothing of {source}"


def _torn_offsets(index: _Index) -> Iterator[str]:
    for (group, source), values in _results(index).items():
        end_offset = index.final.offsets.get(group, {}).get(source.partition, 0)
        if source.offset >= end_offset:
            yield f"{values} was made of {source}, and {group} has committed {end_offset}"


_CHECKS: Final[Sequence[tuple[Kind, Callable[[_Index], Iterator[str]]]]] = (
    (Kind.LOST_WRITE, _lost_writes),
    (Kind.DUPLICATE, _duplicates),
    (Kind.UNKNOWN_VALUE, _unknown_values),
    (Kind.INVERTED_SEND, _inverted_sends),
    (Kind.INCONSISTENT_OFFSETS, _inconsistent_offsets),
    (Kind.ABORTED_READ, _aborted_reads),
    (Kind.EARLY_READ, _early_reads),
    (Kind.TORN_TRANSACTION, _torn_transactions),
    (Kind.HANGING_TRANSACTION, _hanging_transactions),
    (Kind.INVERTED_POLL, _inverted_polls),
    (Kind.SKIPPED_POLL, _skipped_polls),
    (Kind.SKIPPED_BY_GROUP, _skipped_by_groups),
    (Kind.LOST_COMMIT, _lost_commits),
    (Kind.IMPOSSIBLE_COMMIT, _impossible_commits),
    (Kind.SOURCE_TWICE, _sources_twice),
    (Kind.SOURCE_SKIPPED, _sources_skipped),
    (Kind.TORN_OFFSETS, _torn_offsets),
)
