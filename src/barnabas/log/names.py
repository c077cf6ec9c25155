"""Names of files and directories in a log directory.

A segment's files carry its base offset in 20 digits, so that a listing is in order of offsets. A partition's
directory is `topic-partition`; while it is moved in, waits for its deletion, or has no known owner, it is
`topic-partition.uniqueId` with `-future`, `-delete` or `-stray` after it.
"""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple

from barnabas.errors import KafkaStorageError
from barnabas.model import Offset, TopicPartition

LOG_SUFFIX: Final = ".log"
OFFSET_INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
PRODUCER_SNAPSHOT_SUFFIX: Final = ".snapshot"
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"

DELETE_DIR_SUFFIX: Final = "-delete"
FUTURE_DIR_SUFFIX: Final = "-future"
STRAY_DIR_SUFFIX: Final = "-stray"

# KRaft keeps its own log among the partition directories. No broker serves it as a topic.
METADATA_TOPIC: Final = "__cluster_metadata"

LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
SIDE_FILES: Final = "barnabas.side-files"
RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT: Final = "log-start-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT: Final = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT: Final = "cleaner-offset-checkpoint"
# A second copy of a checkpoint that cannot be found out again.
COPY_SUFFIX: Final = ".copy"
META_PROPERTIES: Final = "meta.properties"
PARTITION_REGISTER: Final = "barnabas-partitions"
# Below the log directories of the first broker of a host, those of the others: see server/host/plan.py.
HOST_BROKERS: Final = "barnabas-brokers"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
LOCK: Final = ".lock"

NAME_LENGTH_MAX: Final = 255

_SEGMENT_FILE: Final = re.compile(
    r"(?P<offset>[0-9]{20})(?P<kind>\.log|\.index|\.timeindex|\.txnindex|\.snapshot)"
    r"(?P<state>|\.deleted|\.cleaned|\.swap)",
    re.ASCII,
)
_MARKED_DIR: Final = re.compile(
    r"(?P<partition>\S+-\S+)\.(?P<unique_id>\S+)(?P<mark>-delete|-future|-stray)", re.ASCII
)
_MARKS: Final = (DELETE_DIR_SUFFIX, FUTURE_DIR_SUFFIX, STRAY_DIR_SUFFIX)
_OFFSET_MAX: Final = (1 << 63) - 1
_PARTITION_MAX: Final = (1 << 31) - 1


class BadDirectoryName(KafkaStorageError):
    """A directory beside the partitions' directories without a partition's name."""


class SegmentFileName(NamedTuple):
    """A name taken apart: `00000000000000000042.index.swap` is (42, ".index", ".swap")."""

    base_offset: Offset
    kind: str
    state: str


class PartitionDirName(NamedTuple):
    """The mark is "", or why the directory is not (yet, any more) the partition's own."""

    partition: TopicPartition
    mark: str


def host_directories(directory: str) -> list[str]:
    """A log directory, and those of the other brokers of a host below it, if it has any."""
    below = os.path.join(directory, HOST_BROKERS)
    try:
        listed = os.listdir(below)
    except OSError:
        listed = []
    numbers = sorted(int(name) for name in listed if name.isascii() and name.isdigit() and len(name) <= 5)
    return [directory, *(os.path.join(below, str(number)) for number in numbers)]


def segment_file(base_offset: int, kind: str, state: str = "") -> str:
    return f"{base_offset:020d}{kind}{state}"


def parse_segment_file(name: str) -> SegmentFileName | None:
    """None for the name of any other file; callers decide whether it is foreign."""
    match = _SEGMENT_FILE.fullmatch(name)
    if match is None:
        return None
    base_offset = int(match["offset"])
    if base_offset > _OFFSET_MAX:
        return None
    return SegmentFileName(Offset(base_offset), match["kind"], match["state"])


def partition_dir(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def marked_partition_dir(partition: TopicPartition, unique_id: str, mark: str) -> str:
    """The name while a partition is moved in, waits for deletion, or is a stray.

    A long topic is cut off so that a file system takes the name; but not that of a future directory, whose topic
    must be read from it again.
    """
    assert mark in _MARKS
    suffix = f"-{partition.partition}.{unique_id}{mark}"
    topic = partition.topic
    if mark != FUTURE_DIR_SUFFIX:
        topic = topic[: NAME_LENGTH_MAX - len(suffix)]
    return topic + suffix


def parse_partition_dir(name: str) -> PartitionDirName:
    """Raises BadDirectoryName for anything that is not the directory of a partition."""
    mark = ""
    partition_name = name
    if name.endswith(_MARKS):
        match = _MARKED_DIR.fullmatch(name)
        if match is None:
            raise _bad_name(name)
        partition_name, mark = match["partition"], match["mark"]
    topic, dash, digits = partition_name.rpartition("-")
    if not topic or not dash or not digits.isascii() or not digits.isdigit() or int(digits) > _PARTITION_MAX:
        raise _bad_name(name)
    return PartitionDirName(TopicPartition(topic, int(digits)), mark)


def _bad_name(name: str) -> BadDirectoryName:
    return BadDirectoryName(
        f"directory {name!r} is named neither topic-partition nor topic-partition.uniqueId with -delete, -future"
        " or -stray after it; only topic data belongs here"
    )
