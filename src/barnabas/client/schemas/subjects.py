"""The names under which schemas are registered: subject name strategies, as in Confluent's serializers.

A strategy is one of the names below or a function of topic, field ("key" or "value") and the name of the record, None
where a schema has no name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias, cast

from barnabas.client.failures import SerializationError
from barnabas.errors import InvalidConfig

SubjectStrategy: TypeAlias = str | Callable[[str, str, str | None], str]
NameOf: TypeAlias = Callable[[str, str, str | None], str]


def topic_subject(topic: str, field: str, record: str | None) -> str:
    """`orders-value`: one kind of record per topic. This is the default."""
    return f"{topic}-{field}"


def record_subject(topic: str, field: str, record: str | None) -> str:
    """`shop.Order`: one schema for a kind of record in all topics."""
    return _named(record, topic)


def topic_record_subject(topic: str, field: str, record: str | None) -> str:
    """`orders-shop.Order`: several kinds of records in one topic."""
    return f"{topic}-{_named(record, topic)}"


STRATEGIES: Final[dict[str, NameOf]] = {
    "topic": topic_subject,
    "record": record_subject,
    "topic_record": topic_record_subject,
}


def strategy_of(given: SubjectStrategy) -> NameOf:
    if isinstance(given, str):
        found = STRATEGIES.get(given.lower())
        if found is None:
            raise InvalidConfig(f"subject_strategy={given!r}: use {', '.join(STRATEGIES)}, or a function")
        return found
    # A caller without type checks may have passed anything.
    if not callable(cast(object, given)):
        raise InvalidConfig(
            f"subject_strategy takes {', '.join(STRATEGIES)} or a function, and not {given!r}"
        )
    return given


def _named(record: str | None, topic: str) -> str:
    if record is None:
        raise SerializationError(
            f"the schema for topic {topic!r} has no name, and the subject is named after it: name the record (Avro:"
            ' "name", JSON Schema: "title"), or use subject_strategy="topic"'
        )
    return record
