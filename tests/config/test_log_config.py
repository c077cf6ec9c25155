"""A topic's settings: defaults, texts, bounds, and what follows from them."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from barnabas.config.definition import InvalidSetting, UnknownSetting
from barnabas.config.log_config import LONG_MAX, TOPIC_SETTINGS, LogConfig
from barnabas.errors import InvalidConfig


def test_properties_become_fields_and_the_rest_comes_from_the_defaults() -> None:
    broker = LogConfig(retention_ms=5, index_interval_bytes=10)
    config = LogConfig.from_properties(
        {
            "segment.bytes": " 1024 ",
            "cleanup.policy": "compact, delete",
            "min.cleanable.dirty.ratio": "0.01",
            "preallocate": "TRUE",
            "retention.ms": "-1",
            "message.timestamp.type": "LogAppendTime",
            "leader.replication.throttled.replicas": "0:1,1:2",
        },
        defaults=broker,
    )
    assert config == LogConfig(
        segment_bytes=1024,
        cleanup_policy=("compact", "delete"),
        min_cleanable_dirty_ratio=0.01,
        preallocate=True,
        retention_ms=-1,
        message_timestamp_type="LogAppendTime",
        leader_replication_throttled_replicas=("0:1", "1:2"),
        index_interval_bytes=10,
    )
    assert "segment.bytes" in config.overridden
    assert "index.interval.bytes" not in config.overridden
    assert config.value_of("segment.bytes") == 1024
    assert config.compact
    assert config.delete
    assert config.initial_file_bytes == 1024


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("segment.bytes", "13", "Value must be at least 14"),
        ("segment.bytes", "2147483648", "Not a number of type INT. segment.bytes takes"),
        ("segment.bytes", "1_000", "whole number"),
        ("segment.bytes", "\u0663\u0663", "whole number"),
        ("segment.bytes", "1" * 100_000, "whole number"),
        ("retention.ms", "9223372036854775808", "Not a number of type LONG. retention.ms takes"),
        ("retention.ms", "-2", "Value must be at least -1"),
        ("preallocate", "yes", "Expected value to be either true or false"),
        ("min.cleanable.dirty.ratio", "1.1", "Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "nan", "Not a number of type DOUBLE"),
        ("cleanup.policy", "compact,shred", "String must be one of: compact, delete"),
        ("compression.type", "GZIP", "gzip"),
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("compression.lz4.level", "18", "Value must be no more than 17"),
        ("compression.zstd.level", "23", "Value must be no more than 22"),
        ("message.format.version", "new", "3.0-IV1"),
        ("leader.replication.throttled.replicas", "1", "must be the literal '*' or a list of replicas"),
    ],
)
def test_a_bad_value_is_refused_in_kafkas_words(name: str, text: str, reason: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        LogConfig.from_properties({name: text})
    message = str(caught.value)
    assert message.startswith("Invalid value ")
    assert f" for configuration {name}: " in message
    assert reason in message.split(f"for configuration {name}: ")[1]
    assert len(message) < 500
    assert caught.value.code == 40


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UnknownSetting, match=r"segment\.byte$"):
        LogConfig.from_properties({"segment.byte": "1"})


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(
        InvalidConfig, match=r"min\.compaction\.lag\.ms \(11\) > max\.compaction\.lag\.ms \(10\)"
    ):
        LogConfig.from_properties({"min.compaction.lag.ms": "11", "max.compaction.lag.ms": "10"})


def test_every_default_satisfies_its_own_bounds() -> None:
    assert len(TOPIC_SETTINGS) == 37
    for setting in TOPIC_SETTINGS.values():
        assert setting.allows(setting.default), setting


def test_a_compacted_topic_rolls_in_time_for_its_lag() -> None:
    config = LogConfig(segment_ms=1000, max_compaction_lag_ms=10)
    assert config.max_segment_ms == 1000
    assert replace(config, cleanup_policy=("compact",)).max_segment_ms == 10


def test_the_setting_of_old_bounds_timestamps_on_both_sides() -> None:
    config = LogConfig(message_timestamp_difference_max_ms=7)
    assert (config.timestamp_before_max_ms, config.timestamp_after_max_ms) == (7, 7)
    config = replace(config, message_timestamp_after_max_ms=3)
    assert (config.timestamp_before_max_ms, config.timestamp_after_max_ms) == (7, 3)
    assert LogConfig().timestamp_before_max_ms == LONG_MAX


def test_jitter_stays_below_both_bounds() -> None:
    rng = random.Random(1)
    assert LogConfig().random_segment_jitter_ms(rng) == 0
    assert {LogConfig(segment_jitter_ms=3).random_segment_jitter_ms(rng) for _ in range(100)} == {0, 1, 2}
    assert {
        LogConfig(segment_jitter_ms=9, segment_ms=2).random_segment_jitter_ms(rng) for _ in range(100)
    } == {0, 1}


@pytest.mark.parametrize(
    ("version", "magic"),
    [("0.8.2", 0), ("0.9.0", 0), ("0.10.0-IV1", 1), ("0.10.2", 1), ("0.11.0", 2), ("3.0-IV1", 2), ("4.0", 2)],
)
def test_a_release_stands_for_a_record_format(version: str, magic: int) -> None:
    assert LogConfig.from_properties({"message.format.version": version}).message_magic == magic
