"""Settings of the broker and levels of its loggers, changed while it runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import errors
from barnabas.broker.upkeep import config_updates
from barnabas.broker.upkeep.maintenance import Pace
from barnabas.clock import SystemClock
from barnabas.log.cleaner.exclusion import CleaningAborted
from barnabas.model import TopicPartition
from barnabas.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from tests.broker.config_requests import (
    APPEND,
    BROKER,
    BROKER_LOGGER,
    DELETE,
    SET,
    TOPIC,
    alter,
    describe,
    describe_result,
    incremental,
)
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import batch, create_topic, produce
from tests.broker.running import RunningBroker

DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC_BROKER, DEFAULT, LOGGER = 2, 3, 4, 5, 6
ID = "3"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    settings = {"broker.id": ID, "log.retention.ms": "70000", "password.encoder.secret": "a secret"}
    with RunningBroker(tmp_path_factory.mktemp("broker"), settings) as running:
        yield running


@pytest.fixture(autouse=True)
def _nothing_set(client: RawClient) -> Iterator[None]:
    yield
    assert alter(client, BROKER, "", {}) == (0, None)
    assert alter(client, BROKER, ID, {}) == (0, None)


def test_a_brokers_settings_with_their_sources(client: RawClient) -> None:
    entries = describe(client, BROKER, ID, include_synonyms=True)
    assert len(entries) > 250
    assert (entries["broker.id"].value, entries["broker.id"].read_only) == (ID, True)
    retention = entries["log.retention.ms"]
    assert (retention.value, retention.config_source, retention.read_only) == ("70000", STATIC_BROKER, False)
    assert [(each.name, each.value, each.source) for each in retention.synonyms] == [
        ("log.retention.ms", "70000", STATIC_BROKER),
        ("log.retention.hours", "168", DEFAULT),
    ]
    password = entries["password.encoder.secret"]
    assert (password.value, password.is_sensitive) == (None, True)
    assert password.synonyms[0].value is None
    assert entries["num.partitions"].config_source == DEFAULT
    # Kept from whoever does not set them: nothing but tools that move partitions use them.
    assert "replica.alter.log.dirs.io.max.bytes.per.second" not in entries


def test_the_strongest_source_wins_at_run_time(client: RawClient) -> None:
    create_topic(client, "sources")
    assert incremental(client, BROKER, "", ("log.retention.ms", SET, "200")) == (0, None)
    assert incremental(client, BROKER, ID, ("log.retention.ms", SET, "100")) == (0, None)
    retention = describe(client, TOPIC, "sources", include_synonyms=True)["retention.ms"]
    assert (retention.value, retention.config_source) == ("100", DYNAMIC_BROKER)
    assert [(each.value, each.source) for each in retention.synonyms] == [
        ("100", DYNAMIC_BROKER),
        ("200", DYNAMIC_DEFAULT),
        ("70000", STATIC_BROKER),
        ("168", DEFAULT),
    ]
    assert incremental(client, BROKER, ID, ("log.retention.ms", DELETE, None)) == (0, None)
    assert describe(client, BROKER, ID)["log.retention.ms"].value == "200"


def test_the_default_for_all_brokers_shows_what_was_set_for_it(client: RawClient) -> None:
    assert describe(client, BROKER, "") == {}
    assert incremental(client, BROKER, "", ("message.max.bytes", SET, "4000")) == (0, None)
    assert incremental(client, BROKER, ID, ("message.max.bytes", SET, "5000")) == (0, None)
    entries = describe(client, BROKER, "", include_synonyms=True)
    assert [(name, entry.value) for name, entry in entries.items()] == [("message.max.bytes", "4000")]
    assert entries["message.max.bytes"].config_source == DYNAMIC_DEFAULT
    assert [each.source for each in entries["message.max.bytes"].synonyms] == [DYNAMIC_DEFAULT]


def test_defaults_of_topics_reach_open_logs(broker: RunningBroker, client: RawClient) -> None:
    create_topic(client, "defaults")
    create_topic(client, "own", max_message_bytes="100000")
    large = batch(b"x" * 5_000)
    assert incremental(client, BROKER, "", ("message.max.bytes", SET, "4000")) == (0, None)
    assert produce(client, "defaults", large).error_code == errors.MessageTooLarge.code
    assert produce(client, "own", large).error_code == 0
    create_topic(client, "later")
    assert produce(client, "later", large).error_code == errors.MessageTooLarge.code
    assert alter(client, BROKER, "", {}) == (0, None)
    assert produce(client, "defaults", large).error_code == 0


def test_many_topics_follow_in_turns(
    broker: RunningBroker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_updates, "TOPICS_AT_ONCE", 3)
    names = [f"many-{index}" for index in range(20)]
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    answer = client.ask("CreateTopics", 7, CreateTopicsRequest(topics=topics, timeout_ms=30_000))
    assert {each.error_code for each in answer.topics} == {0}
    assert incremental(client, BROKER, "", ("log.segment.bytes", SET, "123456")) == (0, None)
    manager = broker.server.broker.log_manager
    logs = [manager.log(TopicPartition(name, 0)) for name in names]
    # Requests are answered between the turns.
    for _ in range(10_000):
        describe(client, BROKER, "")
        if all(log is not None and log.config.segment_bytes == 123456 for log in logs):
            break
    assert {log.config.segment_bytes for log in logs if log is not None} == {123456}
    assert len(logs) == len(names)


def test_bounds_on_connections_change_at_run_time(broker: RunningBroker, client: RawClient) -> None:
    assert incremental(client, BROKER, ID, ("max.connections.per.ip", SET, "2")) == (0, None)
    with broker.client() as second:
        describe(second, BROKER, "")
        with broker.client() as third:
            assert third.is_closed_by_broker()
        assert incremental(client, BROKER, ID, ("max.connections.per.ip", DELETE, None)) == (0, None)
        with broker.client() as third:
            describe(third, BROKER, "")


def test_the_cleaners_settings_change_at_run_time(broker: RunningBroker, client: RawClient) -> None:
    manager = broker.server.broker.log_manager
    assert incremental(client, BROKER, "", ("log.cleaner.io.max.bytes.per.second", SET, "1000000")) == (
        0,
        None,
    )
    assert manager.settings.log_cleaner_io_max_bytes_per_second == 1_000_000
    assert alter(client, BROKER, "", {}) == (0, None)
    assert manager.settings.log_cleaner_io_max_bytes_per_second > 1e300


@pytest.mark.parametrize(
    ("name", "change", "code", "message"),
    [
        (
            ID,
            ("broker.rack", SET, "r"),
            errors.InvalidRequest,
            "Cannot update these configs dynamically: [broker.rack]",
        ),
        (ID, ("message.max.bytes", SET, "x"), errors.InvalidRequest, "message.max.bytes: Not a number"),
        (ID, ("listeners", SET, "PLAINTEXT://:1"), errors.InvalidRequest, "dynamically: [listeners]"),
        (ID, ("ssl.keystore.location", SET, "/f"), errors.InvalidRequest, "only per-listener"),
        ("", ("principal.builder.class", SET, "C"), errors.InvalidRequest, "broker id must be specified"),
        ("", ("log.cleaner.dedupe.buffer.size", SET, "1000"), errors.InvalidRequest, "more than 1048576"),
        (ID, ("message.max.bytes", APPEND, "1"), errors.InvalidConfig, "value append is not allowed"),
        (ID, ("no.such.name", APPEND, "1"), errors.InvalidConfig, "Unknown config name: no.such.name"),
        ("", ("log.cleaner.threads", SET, "0"), errors.InvalidRequest, "=0, value should be at least 1"),
        ("", ("background.threads", SET, "4"), errors.InvalidRequest, "at least half the current value 10"),
        ("", ("background.threads", SET, "21"), errors.InvalidRequest, "double the current value 10"),
        ("4", ("message.max.bytes", SET, "1"), errors.InvalidRequest, "expected 3, but received 4"),
        ("me", ("message.max.bytes", SET, "1"), errors.InvalidRequest, "must be an integer, but it is: me"),
    ],
)
def test_what_may_not_be_set(
    client: RawClient, name: str, change: tuple[str, int, str], code: type[errors.KafkaError], message: str
) -> None:
    answer = incremental(client, BROKER, name, change)
    assert answer[0] == code.code
    assert message in str(answer[1])
    assert describe(client, BROKER, "") == {}


def test_a_quota_for_moves_is_shown_once_it_is_set(client: RawClient) -> None:
    name = "replica.alter.log.dirs.io.max.bytes.per.second"
    assert incremental(client, BROKER, ID, (name, SET, "1000")) == (0, None)
    entry = describe(client, BROKER, ID)[name]
    assert (entry.value, entry.config_source, entry.is_sensitive) == ("1000", DYNAMIC_BROKER, False)
    code, _ = incremental(client, BROKER, ID, (name, SET, "-1"))
    assert code == errors.InvalidRequest.code


def test_settings_in_the_store_that_cannot_be_are_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with RunningBroker(tmp_path) as broker:
        parts = broker.server.broker
        bad = {"message.max.bytes": "many", "broker.rack": "r", "log.retention.ms": "5"}
        assert broker.call(lambda: parts.writer.alter_broker_configs({"": lambda _: bad})) == {"": None}
        assert parts.config.dynamic_default == {"log.retention.ms": "5"}
    assert "Invalid value many for configuration message.max.bytes" in caplog.text
    with RunningBroker(tmp_path) as broker:
        assert broker.server.broker.config.log_defaults.retention_ms == 5


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger("barnabas.tests.loggers")
    yield found
    found.setLevel(logging.NOTSET)


def test_levels_of_loggers(client: RawClient, logger: logging.Logger) -> None:
    assert incremental(client, BROKER_LOGGER, ID, (logger.name, SET, "WARN")) == (0, None)
    assert logger.level == logging.WARNING
    levels = describe(client, BROKER_LOGGER, ID)
    assert levels[logger.name].value == "WARN"
    assert levels[logger.name].config_source == LOGGER
    assert "root" in levels
    assert incremental(client, BROKER_LOGGER, ID, (logger.name, SET, "TRACE"), validate_only=True) == (
        0,
        None,
    )
    assert logger.level == logging.WARNING
    assert incremental(client, BROKER_LOGGER, ID, (logger.name, DELETE, None)) == (0, None)
    assert logger.level == logging.NOTSET


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (("no.such.logger", SET, "INFO"), errors.InvalidConfig, "Logger no.such.logger does not exist!"),
        (("root", SET, "LOUD"), errors.InvalidConfig, "DEBUG, ERROR, FATAL, INFO, TRACE, WARN"),
        (("root", DELETE, None), errors.InvalidRequest, "root logger is not allowed"),
        (("root", APPEND, "INFO"), errors.InvalidRequest, "APPEND operation is not allowed"),
    ],
)
def test_levels_that_cannot_be(
    client: RawClient, change: tuple[str, int, str | None], code: type[errors.KafkaError], message: str
) -> None:
    answer = incremental(client, BROKER_LOGGER, ID, change)
    assert answer[0] == code.code
    assert message in str(answer[1])
    # AlterConfigs is older than levels.
    assert alter(client, BROKER_LOGGER, ID, {"root": "INFO"})[0] == errors.InvalidRequest.code
    assert describe_result(client, BROKER_LOGGER, "4").error_code == errors.InvalidRequest.code


@pytest.mark.slow
def test_a_cleaner_that_may_not_read_goes_on_when_it_may() -> None:
    bounds = [0.0, float("inf")]
    asked: list[float] = []

    def bytes_per_second() -> float:
        asked.append(bounds[min(len(asked), 1)])
        return asked[-1]

    pace = Pace(bytes_per_second, threading.Event(), SystemClock())
    while not asked:
        pace.on_bytes(1 << 40)
    assert asked == bounds
    stopping = threading.Event()
    stopping.set()
    with pytest.raises(CleaningAborted):
        Pace(bytes_per_second, stopping, SystemClock()).on_bytes(1)
