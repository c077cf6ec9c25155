"""Requests for thousands of offsets or groups: done in pieces, and answered as if they were not."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.handlers.groups.offset_fetch import ALL_AT_ONCE
from barnabas.broker.handlers.groups.wide_commit import PIECE_PARTITIONS, pieces
from barnabas.broker.waiting.turns import AT_ONCE
from barnabas.errors import (
    GroupIdNotFound,
    NotCoordinator,
    UnknownMemberId,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.broker.group_requests import commit, delete_groups, listed, wait_for_coordinator
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import create_topic
from tests.broker.running import RunningBroker
from tests.sampling import sample

PARTITIONS = 50
NAMES = ("one", "two")


@pytest.fixture(scope="module")
def topic_ids(broker: RunningBroker) -> dict[str, bytes]:
    with broker.client() as client:
        ids = {name: create_topic(client, name, PARTITIONS).topic_id for name in NAMES}
        wait_for_coordinator(client, "group")
    return ids


@pytest.fixture(scope="module")
def committed(broker: RunningBroker, topic_ids: dict[str, bytes]) -> dict[tuple[str, int], int]:
    offsets = {
        (name, index): 100 * number + index for number, name in enumerate(NAMES) for index in range(20)
    }
    with broker.client() as client:
        wait_for_coordinator(client, "committed")
        assert set(commit(client, "committed", offsets).values()) == {0}
    return offsets


def asked_partitions(count: int, metadata: str = "") -> list[OffsetCommitRequestPartition]:
    """Each existing partition many times, with rising offsets, and now and then one that does not exist."""
    return [
        OffsetCommitRequestPartition(
            partition_index=PARTITIONS if number % 100 == 99 else number % PARTITIONS,
            committed_offset=number,
            committed_metadata=metadata,
        )
        for number in range(count)
    ]


def test_a_commit_larger_than_a_batch(client: RawClient, topic_ids: dict[str, bytes]) -> None:
    """In one batch it would be refused: its records take more than `message.max.bytes`."""
    count = 2 * PIECE_PARTITIONS + 500
    request = OffsetCommitRequest(
        group_id="group",
        topics=[
            OffsetCommitRequestTopic(name=name, partitions=asked_partitions(count, "m" * 500))
            for name in NAMES
        ],
    )
    response = client.ask("OffsetCommit", 9, request)
    assert [topic.name for topic in response.topics] == list(NAMES)
    for asked, answered in zip(request.topics, response.topics, strict=True):
        known = [each.partition_index for each in asked.partitions if each.partition_index < PARTITIONS]
        codes = [(each.partition_index, each.error_code) for each in answered.partitions]
        assert codes[: len(known)] == [(index, 0) for index in known]
        refused = (PARTITIONS, UnknownTopicOrPartition.code)
        assert codes[len(known) :] == [refused] * (count - len(known))
    fetched = client.ask("OffsetFetch", 9, one_group("group", {"two": list(range(PARTITIONS))})).groups[0]
    last = {each.partition_index: each.committed_offset for each in asked_partitions(count)}
    assert {each.partition_index: each.committed_offset for each in fetched.topics[0].partitions} == {
        index: last[index] for index in range(PARTITIONS)
    }


@pytest.mark.usefixtures("committed")
def test_a_wide_commit_of_a_member_that_is_none(client: RawClient) -> None:
    topic = OffsetCommitRequestTopic(name="one", partitions=asked_partitions(PIECE_PARTITIONS + 100))
    request = OffsetCommitRequest(
        group_id="committed", generation_id_or_member_epoch=5, member_id="nobody", topics=[topic]
    )
    response = client.ask("OffsetCommit", 9, request)
    codes = {each.error_code for each in response.topics[0].partitions if each.partition_index < PARTITIONS}
    assert codes == {UnknownMemberId.code}


@pytest.mark.parametrize(
    "sizes", [(7,), (10,), (11,), (25,), (3, 7, 10, 1), (9, 2, 30), (0, 10, 0, 1), (0, 0)]
)
def test_pieces_are_the_request_in_order(sizes: tuple[int, ...]) -> None:
    topics = [
        OffsetCommitRequestTopic(name=f"topic-{number}", partitions=asked_partitions(size))
        for number, size in enumerate(sizes)
    ]
    request = OffsetCommitRequest(group_id="group", member_id="member", topics=topics)
    merged: list[OffsetCommitRequestTopic] = []
    for piece in pieces(request, size=10):
        assert (piece.request.group_id, piece.request.member_id) == ("group", "member")
        assert 0 <= sum(len(topic.partitions) for topic in piece.request.topics) <= 10
        if piece.continues_topic:
            first, *rest = piece.request.topics
            assert merged[-1].name == first.name
            merged[-1].partitions += first.partitions
            merged += rest
        else:
            merged += piece.request.topics
    assert merged == topics


def one_group(group_id: str, partitions: dict[str, list[int]]) -> OffsetFetchRequest:
    topics = [
        OffsetFetchRequestTopics(name=name, partition_indexes=each) for name, each in partitions.items()
    ]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics)])


@pytest.mark.parametrize("version", [1, 7, 9, 10])
def test_a_fetch_of_many_offsets(
    client: RawClient,
    topic_ids: dict[str, bytes],
    committed: dict[tuple[str, int], int],
    version: int,
) -> None:
    indexes = [number % PARTITIONS for number in range(10 * AT_ONCE)]
    by_id = version >= 10
    topics = [
        OffsetFetchRequestTopics(
            name="" if by_id else name,
            topic_id=topic_ids[name] if by_id else bytes(16),
            partition_indexes=part,
        )
        # The same topic twice, and one without partitions.
        for name, part in (("one", indexes), ("two", []), ("two", indexes[:3]), ("one", [7]))
    ]
    if by_id:
        topics.insert(1, OffsetFetchRequestTopics(topic_id=b"u" * 16, partition_indexes=[4, 5]))
    group = OffsetFetchRequestGroup(group_id="committed", topics=topics)
    if version < 8:
        request = OffsetFetchRequest(group_id=group.group_id, topics=topics)  # type: ignore[arg-type]
        found = client.ask("OffsetFetch", version, request).topics
    else:
        other = OffsetFetchRequestGroup(group_id="another", topics=topics[:1])
        response = client.ask("OffsetFetch", version, OffsetFetchRequest(groups=[group, other, group]))
        assert [each.group_id for each in response.groups] == ["committed", "another", "committed"]
        assert response.groups[0] == response.groups[2]
        assert {each.committed_offset for each in response.groups[1].topics[0].partitions} == {-1}
        found = response.groups[0].topics
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    if by_id:
        unknown = found.pop()
        assert unknown.topic_id == b"u" * 16
        assert [(each.partition_index, each.error_code) for each in unknown.partitions] == [
            (4, UnknownTopicId.code),
            (5, UnknownTopicId.code),
        ]
    assert [
        (
            names[topic.topic_id] if by_id else topic.name,
            [(each.partition_index, each.committed_offset) for each in topic.partitions],
        )
        for topic in found
    ] == [
        (name, [(index, committed.get((name, index), -1)) for index in part])
        for name, part in (("one", indexes), ("two", []), ("two", indexes[:3]), ("one", [7]))
    ]


@pytest.mark.parametrize("version", [1, 9])
def test_an_error_in_a_wide_fetch_is_the_groups(tmp_path: Path, version: int) -> None:
    """Nobody has asked for a coordinator yet, so there is none."""
    indexes = list(range(10 * AT_ONCE))
    with RunningBroker(tmp_path) as broker, broker.client() as client:
        if version == 1:
            topic = OffsetFetchRequestTopic(name="one", partition_indexes=indexes)
            response = client.ask("OffsetFetch", 1, OffsetFetchRequest(group_id="group", topics=[topic]))
            assert [(each.partition_index, each.error_code) for each in response.topics[0].partitions] == [
                (index, NotCoordinator.code) for index in indexes
            ]
        else:
            [group] = client.ask("OffsetFetch", version, one_group("group", {"one": indexes})).groups
            assert (group.error_code, group.topics) == (NotCoordinator.code, [])


def test_many_groups_are_deleted(client: RawClient, topic_ids: dict[str, bytes]) -> None:
    existing = [f"deleted-{number}" for number in range(30)]
    for group_id in existing:
        wait_for_coordinator(client, group_id)
        assert commit(client, group_id, {("one", 0): 1}) == {("one", 0): 0}
    # One coordinator has more groups than are deleted at once.
    names = [
        each
        for number, name in enumerate(existing)
        for each in (name, *(f"{number}-{n}" for n in range(100)))
    ]
    expected = {name: 0 if name in existing else GroupIdNotFound.code for name in names}
    assert list(delete_groups(client, *names).items()) == list(expected.items())
    assert not set(existing) & set(listed(client))


@pytest.mark.slow
@pytest.mark.parametrize("version", sample([10, 7, 9], fast=1))
def test_all_offsets_of_groups_that_have_many(client: RawClient, version: int) -> None:
    """They are looked up in turns; groups with many offsets are deleted one after the other."""
    name, count = f"all-v{version}", ALL_AT_ONCE // 2 + 50
    ids = {each: create_topic(client, each, count).topic_id for each in (f"{name}-1", f"{name}-2")}
    offsets = {(each, index): index for each in ids for index in range(count)}
    wait_for_coordinator(client, name)
    assert set(commit(client, name, offsets).values()) == {0}
    wait_for_coordinator(client, f"{name}-few")
    assert commit(client, f"{name}-few", {(f"{name}-1", 3): 8}) == {(f"{name}-1", 3): 0}
    if version < 8:
        topics = client.ask("OffsetFetch", version, OffsetFetchRequest(group_id=name, topics=None)).topics
    else:
        asked = [OffsetFetchRequestGroup(group_id=each, topics=None) for each in (f"{name}-few", name)]
        few, many = client.ask("OffsetFetch", version, OffsetFetchRequest(groups=asked)).groups
        assert [(each.partition_index, each.committed_offset) for each in few.topics[0].partitions] == [
            (3, 8)
        ]
        topics = many.topics
    names = {topic_id: each for each, topic_id in ids.items()}
    assert offsets == {
        (names[topic.topic_id] if version >= 10 else topic.name, each.partition_index): each.committed_offset
        for topic in topics
        for each in topic.partitions
    }
    assert sum(len(topic.partitions) for topic in topics) == len(offsets)
    assert delete_groups(client, name, f"{name}-few", "none") == {
        name: 0,
        f"{name}-few": 0,
        "none": GroupIdNotFound.code,
    }
