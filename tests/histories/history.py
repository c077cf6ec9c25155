"""What clients did and saw, as they wrote it down, and what a broker holds in the end.

Each client appends events to a file of its own, a line each, before and after whatever can fail: a client that is
killed has written down all that it may have caused. Clocks are those of one machine, so times of different clients can
be compared.

Every value is sent once in a history, so a value says who sent it, in which transaction, and made from what.
A partition is `topic/number`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

READ_COMMITTED: Final = "read_committed"
READ_UNCOMMITTED: Final = "read_uncommitted"


# An idempotent producer may learn that a record is in the log, by the success of a later one, and not where.
UNKNOWN_OFFSET: Final = -1


class Position(NamedTuple):
    partition: str
    offset: int


def partition_name(topic: str, number: int) -> str:
    return f"{topic}/{number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent(Event):
    """A value is about to be sent. Values of a producer to a partition are sent in the order of their numbers."""

    producer: str
    number: int
    value: str
    partition: str
    transaction: str | None = None
    # What the value was made from, and the group that consumed it.
    source: Position | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged(Event):
    value: str
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending(Event):
    """A transaction is about to be ended. One that never was cannot have been committed by anybody."""

    transaction: str
    commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(Event):
    """The broker has confirmed the end of a transaction."""

    transaction: str
    committed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Positioned(Event):
    """Where a consumer reads on in these partitions is no matter of what it has read there before."""

    consumer: str
    partitions: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled(Event):
    """What came to a consumer, and when it was there."""

    consumer: str
    group: str
    isolation: str
    records: list[tuple[Position, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsCommitted(Event):
    """The broker has confirmed what a group has consumed, up to and without these offsets."""

    group: str
    offsets: list[Position]


@dataclass(frozen=True, slots=True, kw_only=True)
class GaveUp(Event):
    """An error that the library neither retries nor lets its user retry: a record that was not delivered, a commit that
    failed without a rebalance, or a client that hangs or must be replaced. Faults may cause it; work on a cluster that
    is planned must not.
    """

    client: str
    error: str


EVENTS: Final = {
    kind.__name__: kind
    for kind in (Sent, Acknowledged, Ending, Ended, Positioned, Polled, OffsetsCommitted, GaveUp)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalLog:
    """A partition read from its beginning: what every reader gets, and which offsets of it are committed."""

    records: list[tuple[int, str]]
    committed: frozenset[int]
    high_watermark: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalState:
    logs: dict[str, FinalLog]
    # Group -> partition -> committed offset.
    offsets: dict[str, dict[str, int]]


class Recorder:
    """Appends events to a file, a whole line at a time, so that what a killed client has written can be read."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    def write(self, event: Event) -> None:
        line = json.dumps([type(event).__name__, asdict(event)], separators=(",", ":"))
        os.write(self._file, line.encode() + b"\n")


def now_s() -> float:
    return time.monotonic()


def read_events(paths: Iterable[Path]) -> Iterator[Event]:
    """All events of these files, each file's in its order. A last line without an end was cut by a kill."""
    for path in paths:
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                yield _event(*json.loads(line))


def _event(kind: str, fields: dict[str, object]) -> Event:
    for name in ("position", "source"):
        if isinstance(fields.get(name), list):
            fields[name] = Position(*fields[name])  # type: ignore[misc]
    if kind == "Polled":
        fields["records"] = [(Position(*position), value) for position, value in fields["records"]]  # type: ignore[attr-defined]
    if kind == "OffsetsCommitted":
        fields["offsets"] = [Position(*position) for position in fields["offsets"]]  # type: ignore[attr-defined]
    event: Event = EVENTS[kind](**fields)  # type: ignore[arg-type]
    return event
