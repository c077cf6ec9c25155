"""The small text files beside the segments, in Kafka's formats.

An offset checkpoint (recovery-point-, log-start-, replication- and cleaner-offset-checkpoint) of a log directory, and
the leader-epoch-checkpoint of a partition, have a version, a count and this many lines:

    0                          0
    2                          2
    topic 0 4711               0 0         epoch, start offset
    topic 1 42                 3 1017

`partition.metadata` contains the topic's id; `meta.properties` names the owner of a log directory;
`.kafka_cleanshutdown` exists if the last broker was shut down cleanly. All are replaced as a whole, so that a crash
leaves the old or the new one (those of a log of which nothing was flushed yet are not synced: local_log.py). Other
content raises BadCheckpoint, with the file and the line.

Kafka's formats have no checksums. An offset checkpoint of Barnabas has one as its last entry, under a name that no
topic can have, and partition.metadata has one as its third line; Kafka ignores both. Files of Kafka are read without.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from barnabas.config.properties import MalformedProperties, parse_properties
from barnabas.errors import KafkaStorageError
from barnabas.log.file_system import FileSystem, NoSuchFile
from barnabas.model import LeaderEpoch, Offset, TopicPartition
from barnabas.primitives.crc32c import crc32c
from barnabas.primitives.unhurried import unhurried
from barnabas.value import Value

logger = logging.getLogger(__name__)

CHECKPOINT_VERSION: Final = 0
PARTITION_METADATA_VERSION: Final = 0
META_PROPERTIES_VERSIONS: Final = (0, 1)
NO_BROKER_EPOCH: Final = -1
CHECKSUM_TOPIC: Final = "barnabas:crc32c"
_CHECKSUM_LINE: Final = "crc32c"

_ID_BYTES: Final = 16
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_INT32_MAX: Final = (1 << 31) - 1
_INT64_MAX: Final = (1 << 63) - 1


class BadCheckpoint(KafkaStorageError):
    """A checkpoint or another of the small files is not what it should be."""


class MetaProperties(Value, kw_only=True):
    """Whose a log directory is. In version 0 all but the version may be missing; version 1 calls the broker a node."""

    version: int = 0
    cluster_id: str | None = None
    broker_id: int | None = None
    directory_id: str | None = None
    # All log directories of the broker, if there are several; Kafka does not know this one and leaves it alone.
    log_dirs: tuple[str, ...] = ()


class CheckedOffsets(NamedTuple):
    """The entries of an offset checkpoint, and whether a checksum vouches for them."""

    offsets: dict[TopicPartition, Offset]
    is_checked: bool
    # Whether another broker has written it: it has entries and no checksum, not even one with a damaged name.
    is_foreign: bool = False


class CleanStop(NamedTuple):
    """The clean-shutdown file of a broker; only Barnabas also leaves lists of side files."""

    broker_epoch: int
    lists_side_files: bool


def read_offsets(fs: FileSystem, path: str) -> dict[TopicPartition, Offset]:
    """The content of an offset checkpoint; nothing where there is no file."""
    found = read_checked_offsets(fs, path)
    return {} if found is None else found.offsets


def read_checked_offsets(fs: FileSystem, path: str) -> CheckedOffsets | None:
    """The same with whether a checksum vouches for it; None where there is no file."""
    data = _read(fs, path)
    return None if data is None else parse_checked_offsets(data, path)


def write_offsets(fs: FileSystem, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    # Topic by topic: to sort all of them at once would keep other threads waiting.
    by_topic: dict[str, list[tuple[int, int]]] = {}
    for (topic, partition), offset in unhurried(offsets.items()):
        by_topic.setdefault(topic, []).append((partition, offset))
    lines = [
        f"{topic} {partition} {offset}"
        for topic, entries in sorted(by_topic.items())
        for partition, offset in unhurried(sorted(entries))
    ]
    fs.write_atomically(path, _format_lines([*lines, f"{CHECKSUM_TOPIC} 0 {_checksum(lines)}"]))


def parse_offsets(data: bytes, path: str) -> dict[TopicPartition, Offset]:
    return parse_checked_offsets(data, path).offsets


def parse_checked_offsets(data: bytes, path: str) -> CheckedOffsets:
    offsets: dict[TopicPartition, Offset] = {}
    lines: list[str] = []
    for number, line in _parse_lines(data, path):
        fields = line.split()
        if len(fields) != 3:
            raise _malformed(path, number, line)
        partition = _integer(fields[1], _INT32_MAX, path, number, line)
        offset = _integer(fields[2], _INT64_MAX, path, number, line)
        if fields[0] == CHECKSUM_TOPIC:
            if offset != _checksum(lines):
                raise BadCheckpoint(f"{path} is damaged: its entries do not have the checksum {offset}")
            return CheckedOffsets(offsets, True)
        offsets[TopicPartition(fields[0], partition)] = Offset(offset)
        lines.append(line)
    is_foreign = bool(lines) and lines[-1].split()[2] != str(_checksum(lines[:-1]))
    return CheckedOffsets(offsets, False, is_foreign)


def _checksum(lines: list[str]) -> int:
    return crc32c("\n".join(lines).encode())


def read_epochs(fs: FileSystem, path: str) -> list[tuple[LeaderEpoch, Offset]]:
    """The content of a leader-epoch-checkpoint; nothing where there is no file."""
    data = _read(fs, path)
    return [] if data is None else parse_epochs(data, path)


def write_epochs(fs: FileSystem, path: str, epochs: Iterable[tuple[int, int]], *, syncs: bool = True) -> None:
    fs.write_atomically(path, format_epochs(epochs), syncs=syncs)


def format_epochs(epochs: Iterable[tuple[int, int]]) -> bytes:
    return _format_lines([f"{epoch} {start_offset}" for epoch, start_offset in epochs])


def parse_epochs(data: bytes, path: str) -> list[tuple[LeaderEpoch, Offset]]:
    epochs: list[tuple[LeaderEpoch, Offset]] = []
    for number, line in _parse_lines(data, path):
        fields = line.split()
        if len(fields) != 2:
            raise _malformed(path, number, line)
        epoch = _integer(fields[0], _INT32_MAX, path, number, line)
        start_offset = _integer(fields[1], _INT64_MAX, path, number, line)
        if epoch < 0 or start_offset < 0:
            raise _malformed(path, number, line)
        epochs.append((LeaderEpoch(epoch), Offset(start_offset)))
    return epochs


def read_topic_id(fs: FileSystem, path: str) -> bytes | None:
    """The topic's id, 16 bytes, from a partition.metadata; None if there is no file, or a damaged one.

    A file that was not synced may have any content after a crash. Code that knows the topic knows its id.
    """
    data = _read(fs, path)
    if data is None:
        return None
    try:
        return parse_topic_id(data, path)
    except BadCheckpoint as error:
        logger.warning("%s is ignored: %s", path, error)
        return None


def write_topic_id(fs: FileSystem, path: str, topic_id: bytes, *, syncs: bool = True) -> None:
    assert len(topic_id) == _ID_BYTES
    assert any(topic_id)
    lines = [f"version: {PARTITION_METADATA_VERSION}", f"topic_id: {id_to_text(topic_id)}"]
    text = "\n".join([*lines, f"{_CHECKSUM_LINE}: {_checksum(lines)}"])
    fs.write_atomically(path, text.encode(), syncs=syncs)


def parse_topic_id(data: bytes, path: str) -> bytes:
    lines = _lines(data, path)
    values: list[str] = []
    for number, name in enumerate(("version", "topic_id"), start=1):
        line = lines[number - 1] if number <= len(lines) else ""
        key, colon, value = line.partition(":")
        if key != name or not colon or not value.strip():
            raise _malformed(path, number, line)
        values.append(value.strip())
    version = _integer(values[0], _INT32_MAX, path, 1, lines[0])
    if version < PARTITION_METADATA_VERSION:
        raise BadCheckpoint(f"{path} has the unknown version {version}")
    topic_id = id_from_text(values[1])
    if topic_id is None or not any(topic_id):
        raise _malformed(path, 2, lines[1])
    # Kafka's has no third line, and its later versions may have others.
    is_ours = len(lines) > 2 and (
        lines[2].startswith(_CHECKSUM_LINE) or version == PARTITION_METADATA_VERSION
    )
    if is_ours and lines[2:] != [f"{_CHECKSUM_LINE}: {_checksum(lines[:2])}"]:
        raise BadCheckpoint(f"{path} is damaged: its lines do not have the checksum {lines[2][:200]!r}")
    return topic_id


def read_meta_properties(fs: FileSystem, path: str) -> MetaProperties | None:
    """None if there is no file: the directory is new, or has no owner."""
    data = _read(fs, path)
    return None if data is None else parse_meta_properties(data, path)


def write_meta_properties(fs: FileSystem, path: str, meta: MetaProperties) -> None:
    properties = {
        "version": str(meta.version),
        "cluster.id": meta.cluster_id,
        "broker.id" if meta.version == 0 else "node.id": meta.broker_id,
        "directory.id": meta.directory_id,
        "barnabas.log.dirs": ",".join(meta.log_dirs) or None,
    }
    lines = [
        f"{name}={value}".replace("\\", "\\\\") for name, value in properties.items() if value is not None
    ]
    fs.write_atomically(path, ("\n".join(lines) + "\n").encode())


def parse_meta_properties(data: bytes, path: str) -> MetaProperties:
    try:
        properties = parse_properties(_decode(data, path), source=path)
    except MalformedProperties as error:
        raise BadCheckpoint(str(error)) from error
    version = _property_integer(properties, "version", path)
    if version is None:
        version = 0
    if version not in META_PROPERTIES_VERSIONS:
        raise BadCheckpoint(f"{path} has the unknown version {version}")
    broker_id = _property_integer(properties, "broker.id" if version == 0 else "node.id", path)
    cluster_id = properties.get("cluster.id") or None
    directory_id = properties.get("directory.id")
    if version > 0 and (cluster_id is None or broker_id is None):
        raise BadCheckpoint(f"{path} of version {version} lacks cluster.id or node.id")
    if directory_id is not None and id_from_text(directory_id) is None:
        raise BadCheckpoint(f"directory.id {directory_id!r} in {path} is no id")
    return MetaProperties(
        version=version,
        cluster_id=cluster_id,
        broker_id=broker_id,
        directory_id=directory_id,
        log_dirs=tuple(filter(None, properties.get("barnabas.log.dirs", "").split(","))),
    )


def read_clean_shutdown(fs: FileSystem, path: str) -> CleanStop | None:
    """The clean-shutdown file; None if there is none, or if it is not reliable.

    Older releases of Kafka leave an empty file. Any content that no broker writes is damage.
    """
    data = _read(fs, path)
    if data is None:
        return None
    if not data:
        return CleanStop(NO_BROKER_EPOCH, False)
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        content = None
    if isinstance(content, dict) and content.get("version") == 0:
        epoch = content.get("brokerEpoch")
        lists_side_files = content.get("sideFiles", False)
        is_known = content.keys() <= {"version", "brokerEpoch", "sideFiles"}
        if is_known and isinstance(epoch, int) and isinstance(lists_side_files, bool):
            return CleanStop(epoch, lists_side_files)
    logger.error("%s is damaged: the logs are opened as after a crash", path)
    return None


def write_clean_shutdown(fs: FileSystem, path: str, broker_epoch: int = NO_BROKER_EPOCH) -> None:
    content = {"version": 0, "brokerEpoch": broker_epoch, "sideFiles": True}
    fs.write_atomically(path, json.dumps(content, separators=(",", ":")).encode())


def id_to_text(identifier: bytes) -> str:
    """Kafka's text of an id: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(identifier).rstrip(b"=").decode()


def id_from_text(text: str) -> bytes | None:
    """None for a text that is no id."""
    try:
        identifier = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        return None
    return identifier if len(identifier) == _ID_BYTES else None


def _read(fs: FileSystem, path: str) -> bytes | None:
    try:
        return fs.read_file(path)
    except NoSuchFile:
        return None


def _decode(data: bytes, path: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadCheckpoint(f"{path} is no text: {error}") from error


def _lines(data: bytes, path: str) -> list[str]:
    lines = _decode(data, path).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def _parse_lines(data: bytes, path: str) -> list[tuple[int, str]]:
    """The lines after version and count, numbered as an editor does; a file of no lines is one without entries."""
    lines = _lines(data, path)
    if not lines:
        return []
    version = _integer(lines[0], _INT32_MAX, path, 1, lines[0])
    if version != CHECKPOINT_VERSION:
        raise BadCheckpoint(f"{path} has the unknown version {version}")
    if len(lines) == 1:
        return []
    count = _integer(lines[1], _INT32_MAX, path, 2, lines[1])
    if count != len(lines) - 2:
        raise BadCheckpoint(f"{path} has {len(lines) - 2} entries where it says it has {count}")
    return list(enumerate(lines[2:], start=3))


def _format_lines(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in (CHECKPOINT_VERSION, len(lines), *lines)).encode()


def _integer(text: str, largest: int, path: str, number: int, line: str) -> int:
    if _INTEGER.fullmatch(text) and -largest - 1 <= (value := int(text)) <= largest:
        return value
    raise _malformed(path, number, line)


def _property_integer(properties: Mapping[str, str], name: str, path: str) -> int | None:
    text = properties.get(name)
    if text is None:
        return None
    if _INTEGER.fullmatch(text) and -_INT32_MAX - 1 <= (value := int(text)) <= _INT32_MAX:
        return value
    raise BadCheckpoint(f"{name} {text!r} in {path} is no number")


def _malformed(path: str, number: int, line: str) -> BadCheckpoint:
    return BadCheckpoint(f"line {number} of {path} is malformed: {line[:200]!r}")
