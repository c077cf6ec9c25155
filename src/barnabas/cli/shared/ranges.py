"""The range of records that a command reads or deletes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from barnabas.cli.shared.times import parse_duration_ms, parse_time_ms

if TYPE_CHECKING:
    from barnabas.client.consumer.consumer import Consumer
    from barnabas.client.consumer.record import ConsumerRecord
    from barnabas.model import TopicPartition

WHERE_HELP: Final = (
    "beginning, end, an offset (1200), the last N of each partition (-10), a time (2026-01-31T12:00, @1700000000000)"
    " or how long ago (15m)"
)
POLL_MS: Final = 200.0
_BEGINNING: Final = ("beginning", "earliest", "start")
_END: Final = ("end", "latest")


class Where(NamedTuple):
    """A position in each partition: `kind` is beginning, end, offset, last or time."""

    kind: str
    number: int = 0


def parse_where(text: str, option: str) -> Where:
    text = text.strip()
    if text in _BEGINNING:
        return Where("beginning")
    if text in _END:
        return Where("end")
    if text.isascii() and text.isdigit():
        return Where("offset", int(text))
    if text[:1] == "-" and text[1:].isascii() and text[1:].isdigit():
        return Where("last", int(text[1:]))
    if re.fullmatch(r"(\d+(\.\d+)?\s*(ms|s|m|h|d|w))+", text):
        from barnabas.clock import SystemClock

        return Where("time", max(0, SystemClock().now_ms() - parse_duration_ms(text, option)))
    try:
        return Where("time", parse_time_ms(text.removeprefix("@"), option))
    except click.BadParameter:
        raise click.BadParameter(f"{text!r} is none of: {WHERE_HELP}", param_hint=option) from None


def offsets_at(
    consumer: Consumer, partitions: Sequence[TopicPartition], where: Where
) -> dict[TopicPartition, int]:
    """The offset of a position in each partition, within its records."""
    first = consumer.beginning_offsets(*partitions)
    end = consumer.end_offsets(*partitions)
    if where.kind == "beginning":
        return first
    if where.kind == "end":
        return end
    if where.kind == "time":
        found = consumer.offsets_for_times(dict.fromkeys(partitions, where.number))
        return {each: end[each] if (at := found[each]) is None else at.offset for each in partitions}
    wanted = {each: end[each] - where.number if where.kind == "last" else where.number for each in partitions}
    return {each: min(max(wanted[each], first[each]), end[each]) for each in partitions}


class Range:
    """Records of manually assigned partitions, from given offsets, up to other offsets or without end."""

    def __init__(
        self,
        consumer: Consumer,
        partitions: Sequence[TopicPartition],
        start: Where,
        until: Where | None,
    ) -> None:
        self._consumer = consumer
        # Looked up first: a later request would wait behind a fetch that waits for records at the broker.
        self._start = offsets_at(consumer, partitions, start)
        self._until = None if until is None else offsets_at(consumer, partitions, until)
        consumer.assign(partitions)
        for partition, offset in self._start.items():
            consumer.seek(partition, offset)

    @property
    def total(self) -> int | None:
        """The maximal number of records; None if there is no end."""
        if self._until is None:
            return None
        return sum(max(0, end - self._start[partition]) for partition, end in self._until.items())

    def polls(self, max_records: int | None = None) -> Iterator[list[ConsumerRecord]]:
        """The next records, at most this many; sometimes an empty list while there are none."""
        left = max_records
        waiting = dict(self._until) if self._until is not None else None
        self._drop_finished(waiting)
        while (left is None or left > 0) and waiting != {}:
            records = self._consumer.poll(POLL_MS, max_records=left)
            if waiting is not None and records:
                records = [each for each in records if self._is_before_the_end(each, waiting)]
            if left is not None:
                left -= len(records)
            yield records
            self._drop_finished(waiting)

    @staticmethod
    def _is_before_the_end(record: ConsumerRecord, waiting: dict[TopicPartition, int]) -> bool:
        end = waiting.get((record.topic, record.partition))  # type: ignore[call-overload]
        return end is not None and record.offset < end

    def _drop_finished(self, waiting: dict[TopicPartition, int] | None) -> None:
        for partition, end in list((waiting or {}).items()):
            if self._consumer.position(partition) >= end:
                assert waiting is not None
                del waiting[partition]
                self._consumer.pause(partition)
