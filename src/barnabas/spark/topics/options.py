"""The options of a query that reads topics: the names and meanings of Spark's kafka format.

Spark passes the names in lower case; messages spell them as the documentation does. All errors are found here, before
any request to a broker: InvalidConfig names the option, its value and the remedy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from barnabas.client.settings import CONSUMER, ConsumerSettings
from barnabas.errors import InvalidConfig
from barnabas.model import TopicPartition
from barnabas.spark.option_checks import check_client_settings, unknown_option
from barnabas.spark.topics.offsets import EARLIEST, KAFKA_PREFIX, LATEST, Offsets, parse

T = TypeVar("T")

SUBSCRIBE: Final = "subscribe"
SUBSCRIBE_PATTERN: Final = "subscribePattern"
ASSIGN: Final = "assign"
SELECTIONS: Final = (SUBSCRIBE, SUBSCRIBE_PATTERN, ASSIGN)
ENDINGS: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
OPTIONS: Final = (
    *SELECTIONS,
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    *ENDINGS,
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "failOnDataLoss",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
    "groupIdPrefix",
    "pushFilters",
)
_BY_LOWER: Final = {name.lower(): name for name in OPTIONS}

# Settings of a consumer that have no meaning here, and what to do instead.
FORBIDDEN: Final[Mapping[str, str]] = {
    "auto.offset.reset": "a query starts at startingOffsets, and afterwards at its checkpoint",
    "enable.auto.commit": "progress is kept in the checkpoint, and committed to kafka.group.id if that is given",
    "interceptor.classes": "an interceptor could change what is read",
    "key.deserializer": "keys are bytes; decode the column key by functions of Spark",
    "value.deserializer": "values are bytes; decode the column value by functions of Spark",
}
# Common mistakes, and the intended option.
HINTS: Final[Mapping[str, str]] = {
    "topic": "topics to read are named by subscribe, and topic is for writing",
    "topics": "topics to read are named by subscribe",
    "path": "a topic has no path: call load() without one, and name the topics by subscribe",
    "bootstrap.servers": "settings of the client begin with kafka.: kafka.bootstrap.servers",
    "group.id": "settings of the client begin with kafka.: kafka.group.id",
}

POLL_TIMEOUT_MS: Final = 120_000
ATTEMPTS: Final = 3
RETRY_INTERVAL_MS: Final = 1_000
MAX_TRIGGER_DELAY_MS: Final = 15 * 60_000
CLIENT_ID: Final = "barnabas-spark"
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
_UNITS_MS: Final[Mapping[str, float]] = {
    "": 1,
    "us": 0.001,
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where reading begins or ends: an offset or a time, the same everywhere or of each partition.

    Offsets may be EARLIEST and LATEST; times are in milliseconds, and the first record that is not before counts.
    """

    option: str
    everywhere: int | None = None
    each: Mapping[TopicPartition, int] | None = None
    is_time: bool = False
    # Whether a time after all records means the latest offset; otherwise it is an error.
    latest_if_none: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOptions:
    """The options of a query. Exactly one of topics, pattern and assigned is given."""

    kafka: Mapping[str, str]
    topics: tuple[str, ...]
    pattern: str | None
    assigned: tuple[TopicPartition, ...]
    starting: Position | None
    ending: Position | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: float
    min_partitions: int | None
    max_records_per_partition: int | None
    include_headers: bool
    fail_on_data_loss: bool
    attempts: int
    retry_interval_ms: int
    poll_timeout_ms: int
    # Not Spark's. In PySpark 4.2.0 what filters leave of a frame is all that any later use of the frame sees.
    push_filters: bool

    @property
    def group(self) -> str | None:
        """The group that progress is committed to."""
        return self.kafka.get("group.id")

    @property
    def is_read_committed(self) -> bool:
        return self.kafka.get("isolation.level") == "read_committed"


def parse_options(given: Mapping[str, str]) -> TopicOptions:
    """Checks the options that batch and stream share; the next two functions check the others."""
    options: dict[str, str] = {}
    kafka: dict[str, str] = {}
    for spelled, value in given.items():
        lower = spelled.lower()
        if lower.startswith(KAFKA_PREFIX):
            kafka[lower.removeprefix(KAFKA_PREFIX)] = value
        elif lower in _BY_LOWER:
            options[_BY_LOWER[lower]] = value
        else:
            raise unknown_option(
                spelled,
                what="a query that reads topics",
                known=_BY_LOWER,
                hints=HINTS,
                available=f"{', '.join(OPTIONS)} and kafka.*",
            )
    chosen = [name for name in SELECTIONS if name in options]
    if len(chosen) != 1:
        raise InvalidConfig(
            f"{' and '.join(chosen)} are given, and only one of them may be"
            if chosen
            else f"one of {', '.join(SELECTIONS)} must be given: it tells which topics to read"
        )
    minimum = _get(options, "minOffsetsPerTrigger", _positive)
    maximum = _get(options, "maxOffsetsPerTrigger", _positive)
    if minimum is not None and maximum is not None and minimum > maximum:
        raise InvalidConfig(
            f"minOffsetsPerTrigger={minimum} is above maxOffsetsPerTrigger={maximum}: lower the one or raise the other"
        )
    topics = _get(options, SUBSCRIBE, _names) or ()
    assigned = _get(options, ASSIGN, _partitions) or ()
    return TopicOptions(
        kafka=_client_settings(kafka, options.get("groupIdPrefix")),
        topics=topics,
        pattern=_get(options, SUBSCRIBE_PATTERN, _pattern),
        assigned=assigned,
        starting=_position("starting", options),
        ending=_position("ending", options),
        max_offsets_per_trigger=maximum,
        min_offsets_per_trigger=minimum,
        max_trigger_delay_ms=_or(_get(options, "maxTriggerDelay", _duration_ms), MAX_TRIGGER_DELAY_MS),
        min_partitions=_get(options, "minPartitions", _positive),
        max_records_per_partition=_get(options, "maxRecordsPerPartition", _positive),
        include_headers=_or(_get(options, "includeHeaders", _boolean), False),
        fail_on_data_loss=_or(_get(options, "failOnDataLoss", _boolean), True),
        attempts=_or(_get(options, "fetchOffset.numRetries", _positive), ATTEMPTS),
        retry_interval_ms=_or(_get(options, "fetchOffset.retryIntervalMs", _natural), RETRY_INTERVAL_MS),
        poll_timeout_ms=_or(_get(options, "kafkaConsumer.pollTimeoutMs", _positive), POLL_TIMEOUT_MS),
        push_filters=_or(_get(options, "pushFilters", _boolean), False),
    )


def check_stream(options: TopicOptions) -> None:
    if options.ending is not None:
        raise InvalidConfig(f"{options.ending.option} is given, and a stream has no end: leave it out")


def check_batch(options: TopicOptions) -> None:
    starting, ending = options.starting, options.ending
    if starting is not None and not starting.is_time:
        _refuse_special(starting, LATEST, "latest", "a batch that begins there reads nothing")
    if ending is not None and not ending.is_time:
        _refuse_special(ending, EARLIEST, "earliest", "a batch that ends there reads nothing")
    if starting is None or ending is None or starting.is_time != ending.is_time:
        return
    if starting.everywhere is not None and ending.everywhere is not None and starting.is_time:
        _check_order(starting, ending, None, starting.everywhere, ending.everywhere)
    if starting.each is not None and ending.each is not None:
        for partition in starting.each.keys() ^ ending.each.keys():
            raise InvalidConfig(
                f"{starting.option} and {ending.option} must name the same partitions, and {partition} is in one of"
                " them only"
            )
        for partition, first in starting.each.items():
            _check_order(starting, ending, partition, first, ending.each[partition])


def _check_order(
    starting: Position, ending: Position, partition: TopicPartition | None, first: int, last: int
) -> None:
    if first >= 0 and last >= 0 and first > last:
        where = "" if partition is None else f" of {partition}"
        raise InvalidConfig(f"{starting.option}={first}{where} is behind {ending.option}={last}")


def _refuse_special(position: Position, special: int, name: str, why: str) -> None:
    if position.everywhere == special:
        raise InvalidConfig(f"{position.option}={name}: {why}")
    for partition, offset in (position.each or {}).items():
        if offset == special:
            raise InvalidConfig(f"{position.option}={special} ({name}) of {partition}: {why}")


def _client_settings(kafka: dict[str, str], prefix: str | None) -> dict[str, str]:
    kafka.setdefault("client.id", prefix or CLIENT_ID)
    check_client_settings(
        kafka,
        ConsumerSettings,
        kind="consumer",
        known=[setting.name for setting in CONSUMER],
        forbidden=FORBIDDEN,
    )
    return kafka


def _position(which: str, options: Mapping[str, str]) -> Position | None:
    """The most particular of three options wins, as in Spark."""
    latest_if_none = True
    if which == "starting":
        strategy = options.get("startingOffsetsByTimestampStrategy", "error").strip().lower()
        if strategy not in ("error", "latest"):
            raise InvalidConfig(
                f"startingOffsetsByTimestampStrategy={strategy!r} is not allowed; it takes error or latest"
            )
        latest_if_none = strategy == "latest"
    timestamp, by_timestamp, by_offset = (
        f"{which}{rest}" for rest in ("Timestamp", "OffsetsByTimestamp", "Offsets")
    )
    if timestamp in options:
        everywhere = _get(options, timestamp, _natural)
        return Position(option=timestamp, everywhere=everywhere, is_time=True, latest_if_none=latest_if_none)
    if by_timestamp in options:
        each = parse(options[by_timestamp], what=by_timestamp)
        return Position(option=by_timestamp, each=each, is_time=True, latest_if_none=latest_if_none)
    if by_offset not in options:
        return None
    text = options[by_offset].strip()
    if text.lower() in ("earliest", "latest"):
        return Position(option=by_offset, everywhere=EARLIEST if text.lower() == "earliest" else LATEST)
    if not text.startswith("{"):
        raise InvalidConfig(
            f'{by_offset}={text!r} is not allowed; it takes earliest, latest or JSON such as {{"topic":{{"0":23}}}}'
        )
    offsets: Offsets = parse(text, what=by_offset, minimum=EARLIEST)
    return Position(option=by_offset, each=offsets)


def _get(options: Mapping[str, str], name: str, convert: Callable[[str, str], T]) -> T | None:
    return convert(name, options[name].strip()) if name in options else None


def _or(value: T | None, default: T) -> T:
    return default if value is None else value


def _boolean(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidConfig(f"{name}={text!r} is not allowed; it takes true or false")
    return text.lower() == "true"


def _natural(name: str, text: str, minimum: int = 0) -> int:
    if not (text.isascii() and text.isdigit() and minimum <= int(text) <= INT64_MAX):
        raise InvalidConfig(f"{name}={text!r} is not allowed; it takes a whole number from {minimum} on")
    return int(text)


def _positive(name: str, text: str) -> int:
    return _natural(name, text, 1)


def _duration_ms(name: str, text: str) -> float:
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", text.lower(), re.ASCII)
    if found is None or found[2] not in _UNITS_MS:
        raise InvalidConfig(f"{name}={text!r} is not allowed; it takes a time such as 500ms, 30s, 15m or 2h")
    return int(found[1]) * _UNITS_MS[found[2]]


def _names(name: str, text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise InvalidConfig(f"{name} names no topic: give one, or several with commas")
    return names


def _pattern(name: str, text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise InvalidConfig(f"{name}={text!r} is no regular expression: {error}") from None
    if not text:
        raise InvalidConfig(
            f"{name} is empty: give a regular expression that names of topics match as a whole"
        )
    return text


def _partitions(name: str, text: str) -> tuple[TopicPartition, ...]:
    """`{"topic":[0,1]}`."""
    try:
        form = json.loads(text)
        found = [TopicPartition(topic, each) for topic, numbers in form.items() for each in numbers]
    except (ValueError, AttributeError, TypeError):
        found = []
    if not found or not all(
        type(each.partition) is int and 0 <= each.partition <= INT32_MAX for each in found
    ):
        raise InvalidConfig(f'{name}={text!r} is not allowed; it takes JSON such as {{"topic":[0,1]}}')
    return tuple(sorted(set(found)))
