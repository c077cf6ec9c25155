from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.log.names import (
    NAME_LENGTH_MAX,
    BadDirectoryName,
    marked_partition_dir,
    parse_partition_dir,
    parse_segment_file,
    partition_dir,
    segment_file,
)
from barnabas.model import TopicPartition

SETTINGS = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])

UNIQUE_ID = "0123456789abcdef0123456789abcdef"

topics = st.text(alphabet="abcXYZ019._-", min_size=1, max_size=249)
partitions = st.builds(TopicPartition, topics, st.integers(0, 2**31 - 1))


def test_a_segment_file_has_20_digits() -> None:
    assert segment_file(42, ".timeindex", ".swap") == "00000000000000000042.timeindex.swap"
    assert segment_file(2**63 - 1, ".log") == "09223372036854775807.log"


@given(
    st.integers(0, 2**63 - 1),
    st.sampled_from([".log", ".index", ".timeindex", ".txnindex", ".snapshot"]),
    st.sampled_from(["", ".deleted", ".cleaned", ".swap"]),
)
@SETTINGS
def test_a_segment_file_is_read_back(base_offset: int, kind: str, state: str) -> None:
    assert parse_segment_file(segment_file(base_offset, kind, state)) == (base_offset, kind, state)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".log",
        "42.log",
        "00000000000000000042",
        "00000000000000000042.log.tmp",
        "00000000000000000042.log.swap.deleted",
        "0000000000000000004x.log",
        "00000000000000000042.logs",
        "99999999999999999999.log",
        "leader-epoch-checkpoint",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠.log",
    ],
)
def test_other_files_are_no_segment_files(name: str) -> None:
    assert parse_segment_file(name) is None


@given(partitions)
@SETTINGS
def test_a_partition_dir_is_read_back(partition: TopicPartition) -> None:
    assert parse_partition_dir(partition_dir(partition)) == (partition, "")


@given(partitions, st.sampled_from(["-delete", "-stray", "-future"]))
@SETTINGS
def test_a_marked_dir_is_read_back_unless_its_topic_was_cut(partition: TopicPartition, mark: str) -> None:
    name = marked_partition_dir(partition, UNIQUE_ID, mark)
    parsed = parse_partition_dir(name)
    assert parsed.mark == mark
    assert parsed.partition.partition == partition.partition
    assert partition.topic.startswith(parsed.partition.topic)
    assert mark == "-future" or len(name) <= NAME_LENGTH_MAX
    assert parsed.partition.topic == partition.topic or len(name) == NAME_LENGTH_MAX


def test_a_long_topic_is_cut_as_kafka_cuts_it() -> None:
    name = marked_partition_dir(TopicPartition("t" * 249, 7), UNIQUE_ID, "-delete")
    assert name == "t" * (255 - 42) + f"-7.{UNIQUE_ID}-delete"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "topic",
        "-0",
        "topic-",
        "topic-x",
        "topic--1x",
        "topic-2147483648",
        "topic-0-delete",
        "topic-0.-delete",
        "topic.abc-delete",
        "topic-٣",
        "lost+found",
        ".lock",
    ],
)
def test_other_directories_are_refused(name: str) -> None:
    with pytest.raises(BadDirectoryName, match="is named neither"):
        parse_partition_dir(name)
