"""The options of a query that reads log directories.

Spark passes the names in lower case; messages spell them as the documentation does. Offsets and times have the form of
Spark's kafka format. InvalidConfig names the option, its value and the remedy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from barnabas.errors import InvalidConfig
from barnabas.model import TopicPartition
from barnabas.spark.option_checks import unknown_option
from barnabas.spark.topics.offsets import EARLIEST, INT64_MAX, LATEST, parse

OPTIONS: Final = (
    "path",
    "topics",
    "topicPattern",
    "partitions",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "isolation",
    "onCorruption",
    "failOnDataLoss",
    "mode",
    "includeHeaders",
    "includeFile",
    "pushFilters",
    "splitBytes",
    "maxOffsetsPerTrigger",
)
_BY_LOWER: Final = {name.lower(): name for name in OPTIONS}
SELECTIONS: Final = ("topics", "topicPattern", "partitions")
# Options of the topic source, and the ones to use here.
HINTS: Final[Mapping[str, str]] = {
    "paths": "give several directories as one path, with commas between them",
    "subscribe": "topics of a log directory are named by topics",
    "subscribepattern": "topics of a log directory are chosen by topicPattern",
    "assign": 'partitions of a log directory are named by partitions, such as {"topic":[0,1]}',
    "kafka.isolation.level": "it is called isolation here",
    "kafka.bootstrap.servers": "a log directory is read without a broker; format barnabas reads from one",
}

SPLIT_BYTES: Final = 128 << 20
SPLIT_BYTES_MIN: Final = 4 << 10
_UNITS: Final[Mapping[str, int]] = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}

E = TypeVar("E", bound=StrEnum)


class Mode(StrEnum):
    """The content of a row: a record, or a batch."""

    RECORDS = "records"
    BATCHES = "batches"


class Isolation(StrEnum):
    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class OnCorruption(StrEnum):
    """The treatment of bytes that are not a batch: the query fails, reports them in rows, or skips them."""

    FAIL = "fail"
    ROWS = "rows"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Where reading begins or ends: an offset or a time in ms, everywhere or of each partition.

    Offsets may be EARLIEST and LATEST, and are that of partitions that are not named; a time is that of the first
    record that is not before it.
    """

    option: str
    everywhere: int
    each: Mapping[TopicPartition, int]
    is_time: bool = False

    def of(self, partition: TopicPartition) -> tuple[int, bool]:
        """The offset or time for a partition, and whether it is a time."""
        found = self.each.get(partition)
        if found is not None:
            return found, self.is_time
        return self.everywhere, self.is_time and not self.each


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    paths: tuple[str, ...]
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    partitions: frozenset[TopicPartition] = frozenset()
    starting: Bound
    ending: Bound
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    on_corruption: OnCorruption = OnCorruption.FAIL
    fail_on_data_loss: bool = True
    mode: Mode = Mode.RECORDS
    include_headers: bool = False
    include_file: bool = False
    push_filters: bool = False
    split_bytes: int = SPLIT_BYTES
    max_offsets_per_trigger: int | None = None

    def chooses(self, partition: TopicPartition) -> bool:
        """Whether the partition is asked for. Kafka's own topics are only if they are named."""
        if self.topics:
            return partition.topic in self.topics
        if self.topic_pattern is not None:
            return re.fullmatch(self.topic_pattern, partition.topic) is not None
        if self.partitions:
            return partition in self.partitions
        return not partition.topic.startswith("__")


def parse_options(given: Mapping[str, str]) -> LogOptions:
    options: dict[str, str] = {}
    for spelled, value in given.items():
        name = _BY_LOWER.get(spelled.lower())
        if name is None:
            raise unknown_option(
                spelled,
                what="a query that reads log directories",
                known=_BY_LOWER,
                hints=HINTS,
                available=", ".join(OPTIONS),
            )
        options[name] = value.strip()
    chosen = [name for name in SELECTIONS if name in options]
    if len(chosen) > 1:
        raise InvalidConfig(f"{' and '.join(chosen)} are given, and only one of them may be")
    return LogOptions(
        paths=_paths(options),
        topics=_topics(options),
        topic_pattern=_pattern(options),
        partitions=_partitions(options),
        starting=_bound("starting", EARLIEST, options),
        ending=_bound("ending", LATEST, options),
        isolation=_choice(options, "isolation", Isolation.READ_UNCOMMITTED),
        on_corruption=_choice(options, "onCorruption", OnCorruption.FAIL),
        fail_on_data_loss=_boolean(options, "failOnDataLoss", True),
        mode=_choice(options, "mode", Mode.RECORDS),
        include_headers=_boolean(options, "includeHeaders", False),
        include_file=_boolean(options, "includeFile", False),
        push_filters=_boolean(options, "pushFilters", False),
        split_bytes=_size_bytes(options, "splitBytes", SPLIT_BYTES_MIN) or SPLIT_BYTES,
        max_offsets_per_trigger=_positive(options, "maxOffsetsPerTrigger"),
    )


def check_stream(options: LogOptions) -> None:
    if options.ending.everywhere != LATEST or options.ending.each:
        raise InvalidConfig(f"{options.ending.option} is given, and a stream has no end: leave it out")


def _paths(options: Mapping[str, str]) -> tuple[str, ...]:
    paths = tuple(
        dict.fromkeys(
            part.strip().removeprefix("file://")
            for part in options.get("path", "").split(",")
            if part.strip()
        )
    )
    if not paths:
        raise InvalidConfig(
            "path is missing: name a log directory or the directory of a partition, or several with commas"
        )
    return paths


def _topics(options: Mapping[str, str]) -> tuple[str, ...]:
    if "topics" not in options:
        return ()
    names = tuple(dict.fromkeys(part.strip() for part in options["topics"].split(",") if part.strip()))
    if not names:
        raise InvalidConfig("topics names no topic: give one, or several with commas, or leave it out")
    return names


def _pattern(options: Mapping[str, str]) -> str | None:
    text = options.get("topicPattern")
    if text is not None:
        try:
            re.compile(text)
        except re.error as error:
            raise InvalidConfig(f"topicPattern={text!r} is no regular expression: {error}") from None
    return text


def _partitions(options: Mapping[str, str]) -> frozenset[TopicPartition]:
    text = options.get("partitions")
    if text is None:
        return frozenset()
    try:
        form = json.loads(text)
        found = [TopicPartition(topic, each) for topic, numbers in form.items() for each in numbers]
    except (ValueError, AttributeError, TypeError):
        found = []
    if not found or not all(type(each.partition) is int and each.partition >= 0 for each in found):
        raise InvalidConfig(f'partitions={text!r} is not allowed; it takes JSON such as {{"topic":[0,1]}}')
    return frozenset(found)


def _bound(which: str, default: int, options: Mapping[str, str]) -> Bound:
    """The most particular of three options wins, as in Spark."""
    timestamp, by_timestamp, by_offset = (
        f"{which}{rest}" for rest in ("Timestamp", "OffsetsByTimestamp", "Offsets")
    )
    if timestamp in options:
        time_ms = _natural(options, timestamp)
        return Bound(option=timestamp, everywhere=time_ms, each={}, is_time=True)
    if by_timestamp in options:
        times = parse(options[by_timestamp], what=by_timestamp)
        return Bound(option=by_timestamp, everywhere=default, each=times, is_time=True)
    text = options.get(by_offset, "")
    if not text:
        return Bound(option=by_offset, everywhere=default, each={})
    if text.lower() in ("earliest", "latest"):
        everywhere = EARLIEST if text.lower() == "earliest" else LATEST
        return Bound(option=by_offset, everywhere=everywhere, each={})
    if not text.startswith("{"):
        raise InvalidConfig(
            f'{by_offset}={text!r} is not allowed; it takes earliest, latest or JSON such as {{"topic":{{"0":23}}}}'
        )
    return Bound(option=by_offset, everywhere=default, each=parse(text, what=by_offset, minimum=EARLIEST))


def _choice(options: Mapping[str, str], name: str, default: E) -> E:
    text = options.get(name, default.value).lower()
    kind = type(default)
    try:
        return kind(text)
    except ValueError:
        raise InvalidConfig(
            f"{name}={options[name]!r} is not allowed; it takes {' or '.join(each.value for each in kind)}"
        ) from None


def _boolean(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise InvalidConfig(f"{name}={options[name]!r} is not allowed; it takes true or false")
    return text == "true"


def _natural(options: Mapping[str, str], name: str) -> int:
    text = options[name]
    if not (text.isascii() and text.isdigit() and int(text) <= INT64_MAX):
        raise InvalidConfig(f"{name}={text!r} is not allowed; it takes a whole number of milliseconds")
    return int(text)


def _positive(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is not None and not (text.isascii() and text.isdigit() and 0 < int(text) <= INT64_MAX):
        raise InvalidConfig(f"{name}={text!r} is not allowed; it takes a whole number from 1 on")
    return None if text is None else int(text)


def _size_bytes(options: Mapping[str, str], name: str, minimum_bytes: int) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,12})\s*([kmg]?b?)", text.lower(), re.ASCII)
    size_bytes = int(found[1]) * _UNITS[found[2].removesuffix("b")] if found is not None else -1
    if size_bytes < minimum_bytes:
        raise InvalidConfig(
            f"{name}={text!r} is not allowed; it takes a size from {minimum_bytes} on, such as 128m"
        )
    return size_bytes
