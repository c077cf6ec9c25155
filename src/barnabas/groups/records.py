"""Records of `__consumer_offsets`, as Kafka writes them.

    key    int16 type     | the message of that type, version 0
    value  int16 version  | the message in that version; null is a tombstone

The type determines both messages: 1 (formerly 0) is a committed offset of a group for a partition, 2 is a classic group
with its members; `consumer_records` has those of consumer groups. 11 and 17 are the epochs of groups of other
protocols, which are not changed.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from barnabas.errors import InvalidRecord
from barnabas.groups.consumer_records import (
    CONSUMER_GROUP_KEYS,
    ConsumerGroupRecord,
    parse_consumer_record,
)
from barnabas.protocol.codec import decode, decode_prefix, encode
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.messages.group_metadata_key import GroupMetadataKey
from barnabas.protocol.messages.group_metadata_value import GroupMetadataValue
from barnabas.protocol.messages.offset_commit_key import OffsetCommitKey
from barnabas.protocol.messages.offset_commit_value import OffsetCommitValue
from barnabas.records.record import Record

_TYPE: Final = Struct(
    ">h"  # key: the type; value: version
)
assert _TYPE.size == 2

LEGACY_OFFSET_COMMIT: Final = 0
OFFSET_COMMIT: Final = 1
GROUP_METADATA: Final = 2
# The key whose value exists as long as the group does, for protocols that are not spoken here.
GROUP_TYPE_OF_KEY: Final = {11: "share", 17: "streams"}

_KEY_VERSION: Final = 0
_GROUP_METADATA_VERSION: Final = 3
_OFFSET_COMMIT_VERSION: Final = 4
# The last version that has a time of expiry, which only clients before 2.1 ask for.
_OFFSET_COMMIT_VERSION_WITH_EXPIRY: Final = 1
_OFFSET_COMMIT_VERSIONS: Final = range(5)
_GROUP_METADATA_VERSIONS: Final = range(5)
NO_EXPIRY: Final = -1

# The most common first bytes of records.
_OFFSET_COMMIT_TYPE: Final = _TYPE.pack(OFFSET_COMMIT)
_OFFSET_COMMIT_VALUE_TYPE: Final = _TYPE.pack(_OFFSET_COMMIT_VERSION)


class OffsetCommitRecord:
    __slots__ = ("key", "value")

    def __init__(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        self.key: Final = key
        self.value: Final = value

    def key_bytes(self) -> bytes:
        return _OFFSET_COMMIT_TYPE + encode(self.key, _KEY_VERSION)

    def value_bytes(self) -> bytes | None:
        value = self.value
        if value is None:
            return None
        if value.expire_timestamp == NO_EXPIRY:
            return _OFFSET_COMMIT_VALUE_TYPE + encode(value, _OFFSET_COMMIT_VERSION)
        version = _OFFSET_COMMIT_VERSION_WITH_EXPIRY
        return _TYPE.pack(version) + encode(value, version)


class GroupMetadataRecord:
    __slots__ = ("key", "value")

    def __init__(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        self.key: Final = key
        self.value: Final = value

    def key_bytes(self) -> bytes:
        return _TYPE.pack(GROUP_METADATA) + encode(self.key, _KEY_VERSION)

    def value_bytes(self) -> bytes | None:
        if self.value is None:
            return None
        return _TYPE.pack(_GROUP_METADATA_VERSION) + encode(self.value, _GROUP_METADATA_VERSION)


class OtherGroupRecord(NamedTuple):
    """A group of another protocol: it exists, or no longer does."""

    group_id: str
    group_type: str
    exists: bool


GroupRecord: TypeAlias = OffsetCommitRecord | GroupMetadataRecord | ConsumerGroupRecord


def parse_record(record: Record) -> GroupRecord | OtherGroupRecord | None:
    """The contents of a record; None if a later release of Kafka or another kind of group has written it.

    Raises InvalidRecord if the bytes do not match their first two.
    """
    key = record.key
    if key is None or len(key) < _TYPE.size:
        raise InvalidRecord(f"the key {key!r} of the group record at offset {record.offset} is too short")
    (about,) = _TYPE.unpack_from(key)
    try:
        if about in (LEGACY_OFFSET_COMMIT, OFFSET_COMMIT):
            offset_key = decode(OffsetCommitKey, key, _KEY_VERSION, _TYPE.size)
            return OffsetCommitRecord(offset_key, _parse_offset_commit(record))
        if about == GROUP_METADATA:
            group_key = decode(GroupMetadataKey, key, _KEY_VERSION, _TYPE.size)
            return GroupMetadataRecord(group_key, _parse_group_metadata(record))
        if about in CONSUMER_GROUP_KEYS:
            return parse_consumer_record(about, record)
        group_type = GROUP_TYPE_OF_KEY.get(about)
        if group_type is None:
            return None
        # These keys are a group's id alone, laid out as in the key of a classic group.
        other, _ = decode_prefix(GroupMetadataKey, key, _KEY_VERSION, _TYPE.size)
        return OtherGroupRecord(other.group, group_type, record.value is not None)
    except DecodeError as error:
        raise InvalidRecord(f"the group record at offset {record.offset} does not decode: {error}") from error


def _parse_offset_commit(record: Record) -> OffsetCommitValue | None:
    value = record.value
    if value is None:
        return None
    return decode(OffsetCommitValue, value, _version(record, value, _OFFSET_COMMIT_VERSIONS), _TYPE.size)


def _parse_group_metadata(record: Record) -> GroupMetadataValue | None:
    value = record.value
    if value is None:
        return None
    return decode(GroupMetadataValue, value, _version(record, value, _GROUP_METADATA_VERSIONS), _TYPE.size)


def _version(record: Record, value: bytes, known: range) -> int:
    if len(value) < _TYPE.size:
        raise InvalidRecord(f"the value of the group record at offset {record.offset} has no version")
    (version,) = _TYPE.unpack_from(value)
    if version not in known:
        raise InvalidRecord(
            f"the value of the group record at offset {record.offset} has version {version}, not 0 to {known[-1]}"
        )
    return int(version)


def offset_tombstone(group_id: str, topic: str, partition: int) -> OffsetCommitRecord:
    return OffsetCommitRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


def group_tombstone(group_id: str) -> GroupMetadataRecord:
    return GroupMetadataRecord(GroupMetadataKey(group=group_id), None)
