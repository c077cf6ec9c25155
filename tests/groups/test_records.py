"""Records that are not what they should be."""

from __future__ import annotations

import pytest

from barnabas.errors import InvalidRecord
from barnabas.groups.classic_group import ClassicGroup
from barnabas.groups.records import (
    GroupMetadataRecord,
    OffsetCommitRecord,
    group_tombstone,
    offset_tombstone,
    parse_record,
)
from barnabas.model import Offset, TimestampMs
from barnabas.protocol.codec import encode
from barnabas.protocol.messages.group_metadata_key import GroupMetadataKey
from barnabas.protocol.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from barnabas.protocol.messages.offset_commit_key import OffsetCommitKey
from barnabas.protocol.messages.offset_commit_value import OffsetCommitValue
from barnabas.records.record import Record

OFFSET_KEY = OffsetCommitKey(group="group", topic="topic", partition=3)
GROUP_KEY = GroupMetadataKey(group="group")


def stored(key: bytes | None, value: bytes | None) -> Record:
    return Record(Offset(42), TimestampMs(0), key, value)


@pytest.mark.parametrize("version", range(5))
def test_offsets_are_read_in_every_version(version: int) -> None:
    value = OffsetCommitValue(offset=7, metadata="m", commit_timestamp=9)
    data = version.to_bytes(2, "big") + encode(value, version)
    record = stored(OffsetCommitRecord(OFFSET_KEY, None).key_bytes(), data)
    parsed = parse_record(record)
    assert isinstance(parsed, OffsetCommitRecord)
    assert (parsed.key, parsed.value) == (OFFSET_KEY, value)


@pytest.mark.parametrize("version", range(5))
def test_groups_are_read_in_every_version(version: int) -> None:
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=4,
        protocol="range",
        leader="m",
        members=[MemberMetadata(member_id="m", session_timeout=10_000)],
    )
    data = version.to_bytes(2, "big") + encode(value, version)
    parsed = parse_record(stored(GroupMetadataRecord(GROUP_KEY, None).key_bytes(), data))
    assert isinstance(parsed, GroupMetadataRecord)
    assert (parsed.key, parsed.value) == (GROUP_KEY, value)
    group = ClassicGroup.from_value("group", value)
    assert (group.generation_id, group.leader_id, group.state.value) == (4, "m", "Stable")
    # Version 0 had no rebalance time-out: the session's counted for both.
    assert group.members["m"].rebalance_timeout_ms == 10_000


def test_an_offset_with_a_time_of_expiry_is_written_in_version_1() -> None:
    value = OffsetCommitValue(offset=7, expire_timestamp=5)
    record = OffsetCommitRecord(OFFSET_KEY, value)
    data = record.value_bytes()
    assert data is not None
    assert data[:2] == b"\x00\x01"
    parsed = parse_record(stored(record.key_bytes(), data))
    assert isinstance(parsed, OffsetCommitRecord)
    assert (parsed.key, parsed.value) == (OFFSET_KEY, value)


def test_tombstones() -> None:
    for record in (offset_tombstone("group", "topic", 3), group_tombstone("group")):
        assert record.value_bytes() is None
        parsed = parse_record(stored(record.key_bytes(), None))
        assert isinstance(parsed, type(record))
        assert (parsed.key, parsed.value) == (record.key, None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"", b""),
        (b"\x00", b""),
        (b"\x00\x01", b"\x00\x03"),
        (b"\x00\x02\x00\x09group", b"\x00\x03"),
        (b"\x00\x02\x00\x05group\x00", None),
        (b"\x00\x02\x00\x05group", b""),
        (b"\x00\x02\x00\x05group", b"\x00\x03\x00"),
        (b"\x00\x02\x00\x05group", b"\x00\x05"),
        (b"\x00\x02\x00\x05group", b"\xff\xff"),
        (b"\x00\x03\x00\x09group", b""),
    ],
)
def test_bytes_that_are_no_record(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(InvalidRecord):
        parse_record(stored(key, value))


def test_records_of_a_later_kafka_are_skipped() -> None:
    assert parse_record(stored(b"\x7f\xff\x00\x01x", b"")) is None


@pytest.mark.parametrize(
    "members",
    [
        [MemberMetadata(member_id="a"), MemberMetadata(member_id="a")],
        [
            MemberMetadata(member_id="a", group_instance_id="i"),
            MemberMetadata(member_id="b", group_instance_id="i"),
        ],
    ],
)
def test_a_group_with_the_same_member_twice(members: list[MemberMetadata]) -> None:
    value = GroupMetadataValue(protocol_type="consumer", protocol="range", members=members)
    with pytest.raises(InvalidRecord):
        ClassicGroup.from_value("group", value)


def test_a_group_whose_leader_and_protocol_are_lost() -> None:
    value = GroupMetadataValue(
        protocol_type="consumer", protocol=None, leader="gone", members=[MemberMetadata(member_id="a")]
    )
    group = ClassicGroup.from_value("group", value)
    assert (group.leader_id, group.protocol_name, group.subscribed_topics) == ("a", "", None)
