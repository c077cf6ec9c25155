"""The options of a query that writes to topics: those of Spark's kafka format, by their names and their meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from barnabas.client.settings import PRODUCER, ProducerSettings
from barnabas.errors import InvalidConfig
from barnabas.spark.option_checks import check_client_settings, unknown_option
from barnabas.spark.topics.offsets import KAFKA_PREFIX

CLIENT_ID: Final = "barnabas-spark"
OPTIONS: Final = ("topic", "includeHeaders", "checkpointLocation")
_BY_LOWER: Final = {name.lower(): name for name in OPTIONS}

# Settings of a producer that have no meaning here, and what to do instead.
FORBIDDEN: Final[Mapping[str, str]] = {
    "transactional.id": "this sink writes at least once; barnabas.spark.exactly_once writes in transactions",
    "key.serializer": "keys are string or binary columns",
    "value.serializer": "values are string or binary columns; encode them by functions of Spark, such as to_json",
    "interceptor.classes": "an interceptor could change what is written",
}
# Common mistakes, and the intended option.
HINTS: Final[Mapping[str, str]] = {
    "subscribe": "subscribe is for reading, and the topic to write to is named by topic",
    "topics": "the topic to write to is named by topic; rows may name others in a column 'topic'",
    "path": "a topic has no path: call save() or start() without one, and name it by topic",
    "bootstrap.servers": "settings of the client begin with kafka.: kafka.bootstrap.servers",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    producer: Mapping[str, str]
    topic: str | None


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """All errors are found here, before any request to a broker; InvalidConfig names the option and the remedy."""
    kafka: dict[str, str] = {}
    topic: str | None = None
    for spelled, value in given.items():
        lower = spelled.lower()
        if lower.startswith(KAFKA_PREFIX):
            kafka[lower] = value
        elif lower not in _BY_LOWER:
            raise unknown_option(
                spelled,
                what="a query that writes to topics",
                known=_BY_LOWER,
                hints=HINTS,
                available="topic, includeHeaders and kafka.*",
            )
        elif lower == "topic":
            topic = value.strip()
            if not topic:
                raise InvalidConfig("topic is empty: name the topic to write to")
    return SinkOptions(producer=producer_settings(kafka), topic=topic)


def producer_settings(kafka_options: Mapping[str, str]) -> dict[str, str]:
    """The settings of a producer, given with or without the prefix `kafka.`, checked."""
    settings = {name.removeprefix(KAFKA_PREFIX): str(value) for name, value in kafka_options.items()}
    settings.setdefault("client.id", CLIENT_ID)
    check_client_settings(
        settings,
        _check_producer,
        kind="producer",
        known=[setting.name for setting in PRODUCER],
        forbidden=FORBIDDEN,
    )
    return settings


def _check_producer(settings: Mapping[str, str]) -> None:
    if ProducerSettings(settings).acks_number == 0:
        raise InvalidConfig(
            "acks=0: what is written must be acknowledged before a batch is done; leave it out"
        )
