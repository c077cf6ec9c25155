"""Groups that Apache Kafka has stored: read as Kafka describes them, and written as Kafka writes them."""

from __future__ import annotations

import json
import tarfile
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

import pytest

from barnabas.groups.coordinator import GroupCoordinator
from barnabas.groups.records import OtherGroupRecord, parse_record
from barnabas.groups.settings import GroupSettings
from barnabas.model import NO_LEADER_EPOCH
from barnabas.protocol.codec import decode_prefix
from barnabas.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from barnabas.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup
from barnabas.records.header import BatchHeader
from barnabas.records.reader import iterate_batches
from barnabas.records.record import Record
from tests.groups.topics import Image, Topic
from tests.log.golden.images import ALL, ARCHIVE


class StoredGroups:
    """What an image holds of `__consumer_offsets`, and what Kafka says of its groups."""

    def __init__(self) -> None:
        self.groups: dict[str, Any] = {}
        self.segments: dict[str, dict[str, bytes]] = {}
        self.topic_ids: dict[str, bytes] = {}

    def coordinators(self) -> list[GroupCoordinator]:
        coordinators = []
        image = Image({name: Topic(topic_id, range(0)) for name, topic_id in self.topic_ids.items()})
        for segments in self.segments.values():
            coordinator = GroupCoordinator(GroupSettings(), lambda: "")
            for _, segment in sorted(segments.items()):
                for header, records in iterate_batches(segment):
                    coordinator.replay(header, records)
            coordinator.topics_changed(image, (), has_new=True)
            coordinator.loaded(0)
            coordinators.append(coordinator)
        return coordinators

    def batches(self) -> Iterator[tuple[BatchHeader, list[Record]]]:
        for segments in self.segments.values():
            for segment in segments.values():
                yield from iterate_batches(segment)


@pytest.fixture(scope="module")
def images() -> dict[str, StoredGroups]:
    images: dict[str, StoredGroups] = {}
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            path = PurePath(member.name)
            file = archive.extractfile(member)
            if file is None:
                continue
            if path.name == "manifest.json":
                stored = images.setdefault(path.parent.name, StoredGroups())
                stored.groups = json.loads(file.read())["groups"]
            elif path.suffix == ".log" and path.parent.name.startswith("__consumer_offsets-"):
                stored = images.setdefault(path.parents[2].name, StoredGroups())
                stored.segments.setdefault(path.parent.name, {})[path.name] = file.read()
            elif path.name == "partition.metadata":
                stored = images.setdefault(path.parents[2].name, StoredGroups())
                encoded = file.read().decode().split("topic_id: ")[1].strip()
                stored.topic_ids[path.parent.name.rpartition("-")[0]] = urlsafe_b64decode(encoded + "==")
    return images


@pytest.fixture
def stored(images: dict[str, StoredGroups], request: pytest.FixtureRequest) -> StoredGroups:
    return images[request.param]


def _assignment(data: bytes) -> list[str]:
    if not data:
        return []
    assignment, _ = decode_prefix(ConsumerProtocolAssignment, data, 0, 2)
    return sorted(
        f"{assigned.topic}-{partition}"
        for assigned in assignment.assigned_partitions
        for partition in assigned.partitions
    )


@pytest.mark.parametrize("stored", ALL, indirect=True)
def test_groups_are_as_kafka_describes_them(stored: StoredGroups) -> None:
    found: dict[str, Any] = {}
    for coordinator in stored.coordinators():
        listed = [group.group_id for group in coordinator.list_groups(types=["classic"])]
        for group in coordinator.describe_groups(listed, version=6):
            found[group.group_id] = {
                "state": group.group_state,
                "assignor": group.protocol_data,
                "members": [
                    {
                        "memberId": member.member_id,
                        "instanceId": member.group_instance_id,
                        "clientId": member.client_id,
                        "assignment": _assignment(member.member_assignment),
                    }
                    for member in group.members
                ],
            }
        for listed_group in coordinator.list_groups(types=["Consumer"]):
            consumer_group = coordinator.describe_consumer_group(listed_group.group_id)
            found[consumer_group.group_id] = {
                "state": consumer_group.group_state,
                "assignor": consumer_group.assignor_name,
                "members": [
                    {
                        "memberId": member.member_id,
                        "instanceId": member.instance_id,
                        "clientId": member.client_id,
                        "assignment": sorted(
                            f"{assigned.topic_name}-{partition}"
                            for assigned in member.assignment.topic_partitions
                            for partition in assigned.partitions
                        ),
                    }
                    for member in consumer_group.members
                ],
            }
    expected = {
        group_id: {key: group[key] for key in ("state", "assignor", "members")}
        for group_id, group in stored.groups.items()
    }
    assert found == expected


@pytest.mark.parametrize("stored", ALL, indirect=True)
def test_offsets_are_as_kafka_fetches_them(stored: StoredGroups) -> None:
    coordinators = stored.coordinators()
    for group_id, group in stored.groups.items():
        found = {}
        for coordinator in coordinators:
            fetched = coordinator.offsets.fetch(
                OffsetFetchRequestGroup(group_id=group_id, topics=None), require_stable=True
            )
            for topic in fetched.topics:
                for partition in topic.partitions:
                    assert partition.error_code == 0
                    epoch = partition.committed_leader_epoch
                    found[f"{topic.name}-{partition.partition_index}"] = [
                        partition.committed_offset,
                        None if epoch == NO_LEADER_EPOCH else epoch,
                        partition.metadata,
                    ]
        assert found == group["offsets"], group_id


@pytest.mark.parametrize("stored", ALL, indirect=True)
def test_records_are_written_as_kafka_writes_them(stored: StoredGroups) -> None:
    rewritten = 0
    for header, records in stored.batches():
        if header.is_control:
            continue
        for record in records:
            parsed = parse_record(record)
            if parsed is None or isinstance(parsed, OtherGroupRecord):
                continue
            assert parsed.key_bytes() == record.key
            # Kafka 3.9 writes offsets in version 3, which has the same fields and no topic id.
            if record.value is None or record.value[:2] != b"\x00\x03" or record.key[:2] == b"\x00\x02":
                assert parsed.value_bytes() == record.value
                rewritten += 1
    assert rewritten > 0
