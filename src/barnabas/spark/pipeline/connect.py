"""Compares a file with reality: brokers that answer, topics that exist. Nothing here needs Spark."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from barnabas.client.admin.admin import Admin
from barnabas.client.settings import parse_address
from barnabas.errors import KafkaError, NetworkException, RequestTimedOut, UnknownTopicOrPartition
from barnabas.spark.pipeline.group import admin_of, source_partitions
from barnabas.spark.pipeline.model import MirrorSink, Pipeline, TopicSink, TopicSource
from barnabas.spark.pipeline.tables import nearest

CONNECT_TIMEOUT_S: Final = 5.0
BOOTSTRAP: Final = "bootstrap.servers"


class NoBroker(NetworkException):
    """None of the brokers that a file names can be connected to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One object that was checked; `error` is its fault."""

    where: str
    what: str
    state: Literal["ok", "missing", "failed"]
    told: str
    error: KafkaError | None = None


def connect(pipeline: Pipeline) -> list[Check]:
    """All checks, those that failed among them; clusters are asked once each."""
    return list(_checks(pipeline))


def require_connected(pipeline: Pipeline) -> None:
    """Raises what the first check has found that cannot run, before anything is started for it."""
    for check in _checks(pipeline):
        if check.error is not None:
            raise check.error


def _checks(pipeline: Pipeline) -> Iterator[Check]:
    reached: dict[str, Check] = {}
    for where, kafka in clusters(pipeline):
        bootstrap = kafka[BOOTSTRAP]
        if bootstrap not in reached:
            reached[bootstrap] = _reach(where, bootstrap)
            yield reached[bootstrap]
    for name, source in pipeline.topic_sources.items():
        if reached[source.kafka[BOOTSTRAP]].error is None:
            yield _look_for(f"sources.{name}", source)
    for key, sink in pipeline.sinks_by_key.items():
        if (
            isinstance(sink, TopicSink)
            and reached[sink.kafka[BOOTSTRAP]].error is None
            and sink.topic is not None
        ):
            yield _target(f"{key}.topic", sink.topic, sink.kafka)
    letters = pipeline.dead_letters
    if letters is not None and letters.topic is not None:
        kafka = pipeline.letters_kafka
        if reached[kafka[BOOTSTRAP]].error is None:
            yield _target("dead_letters.topic", letters.topic, kafka)


def clusters(pipeline: Pipeline) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Where the file names them, and the settings of their clients."""
    for name, source in pipeline.topic_sources.items():
        yield f"sources.{name}", source.kafka
    for key, sink in pipeline.sinks_by_key.items():
        if isinstance(sink, TopicSink | MirrorSink):
            yield key, sink.kafka
    if pipeline.dead_letters is not None and pipeline.dead_letters.topic is not None:
        yield "dead_letters", pipeline.letters_kafka


def _reach(where: str, bootstrap: str) -> Check:
    reasons = []
    for text in bootstrap.split(","):
        host, port = parse_address(text.strip())
        try:
            socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S).close()
        except OSError as error:
            reasons.append(f"{host}:{port} ({(error.strerror or str(error)).lower()})")
        else:
            return Check(where=where, what=f"broker {bootstrap}", state="ok", told="answers")
    message = f"{where}: no broker answers at {', '.join(reasons)}; kafka.{BOOTSTRAP} names them"
    return Check(
        where=where, what=f"broker {bootstrap}", state="failed", told=message, error=NoBroker(message)
    )


def _look_for(where: str, source: TopicSource) -> Check:
    what = f"topic {','.join(source.topics)}" if source.pattern is None else f"topics {source.pattern}"
    try:
        with admin_of(source.kafka) as admin:
            if source.pattern is None:
                for topic in source.topics:
                    _require_topic(admin, f"{where}.topics", topic)
            partitions = source_partitions(admin, source)
    except KafkaError as error:
        return _failed(where, what, error)
    topics = len({each.topic for each in partitions})
    return Check(
        where=where,
        what=what,
        state="ok",
        told=f"{_count(topics, 'topic')}, {_count(len(partitions), 'partition')}",
    )


def _require_topic(admin: Admin, where: str, topic: str) -> None:
    try:
        admin.describe_topics([topic])
    except UnknownTopicOrPartition:
        known = [each.name for each in admin.list_topics()]
        raise UnknownTopicOrPartition(
            f"{where}: there is no topic {topic}{nearest(topic, known)} (barnabas topics create {topic} makes it)"
        ) from None


def _target(where: str, topic: str, kafka: Mapping[str, str]) -> Check:
    """A topic to write to may be made by the broker when it is first written to."""
    what = f"topic {topic}"
    try:
        with admin_of(kafka) as admin:
            described = admin.describe_topics([topic])[topic]
    except UnknownTopicOrPartition:
        told = "does not exist yet; brokers create it if auto.create.topics.enable is true"
        return Check(where=where, what=what, state="missing", told=told)
    except KafkaError as error:
        return _failed(where, what, error)
    return Check(where=where, what=what, state="ok", told=_count(len(described.partitions), "partition"))


def _failed(where: str, what: str, error: KafkaError) -> Check:
    if isinstance(error, RequestTimedOut):
        error = NoBroker(f"{where}: {error}")
    return Check(where=where, what=what, state="failed", told=str(error), error=error)


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
