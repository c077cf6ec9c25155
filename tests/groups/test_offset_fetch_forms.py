"""OffsetFetch in every version, from its bytes to the bytes of the answer."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.errors import NONE, NotCoordinator, UnstableOffsetCommit
from barnabas.groups.offset_fetch_forms import group_error, requested_groups, response_of_groups
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.offset_fetch_response import OffsetFetchResponse
from tests.groups.requests import commit, txn_commit
from tests.groups.shell import GROUP, Shell

TOPIC_ID = bytes(range(16))
FIRST_BATCHED = 8
FIRST_WITH_STABLE = 7
FIRST_WITH_ALL = 2


def request_in(
    version: int, *, names_topics: bool = True, require_stable: bool = False
) -> OffsetFetchRequest:
    """A request as it arrives: encoded and decoded."""
    request: OffsetFetchRequest
    if version >= FIRST_BATCHED:
        # From version 10 topics go by id: whoever knows the names puts them in.
        topic = OffsetFetchRequestTopics(partition_indexes=[0, 1])
        if version >= 10:
            topic.topic_id = TOPIC_ID
        else:
            topic.name = "topic"
        group = OffsetFetchRequestGroup(group_id=GROUP, topics=[topic] if names_topics else None)
        request = OffsetFetchRequest(groups=[group], require_stable=require_stable)
    else:
        old_topic = OffsetFetchRequestTopic(name="topic", partition_indexes=[0, 1])
        request = OffsetFetchRequest(group_id=GROUP, topics=[old_topic] if names_topics else None)
        if version >= FIRST_WITH_STABLE:
            request.require_stable = require_stable
    received = decode(OffsetFetchRequest, encode(request, version), version)
    for asked in received.groups:
        for each in asked.topics or ():
            each.name = "topic"
    return received


def exchange(shell: Shell, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
    fetched = [
        shell.coordinator.offsets.fetch(group, require_stable=request.require_stable)
        for group in requested_groups(request, version)
    ]
    response = response_of_groups(fetched, version)
    return decode(OffsetFetchResponse, encode(response, version), version)


def partitions(response: OffsetFetchResponse, version: int) -> list[Any]:
    groups: list[Any] = response.groups if version >= FIRST_BATCHED else [response]
    return [partition for group in groups for topic in group.topics for partition in topic.partitions]


@pytest.mark.parametrize("version", range(11))
def test_named_partitions(version: int) -> None:
    shell = Shell()
    commit(shell, 7, metadata="m")
    response = exchange(shell, request_in(version), version)
    found = [
        (each.committed_offset, each.metadata, each.error_code) for each in partitions(response, version)
    ]
    assert found == [(7, "m", NONE), (-1, "", NONE)]
    if version >= FIRST_BATCHED:
        assert response.groups[0].group_id == GROUP
    if version >= 10:
        assert response.groups[0].topics[0].topic_id == TOPIC_ID


@pytest.mark.parametrize("version", range(FIRST_WITH_ALL, 10))
def test_all_partitions(version: int) -> None:
    shell = Shell()
    commit(shell, 7)
    response = exchange(shell, request_in(version, names_topics=False), version)
    assert [each.committed_offset for each in partitions(response, version)] == [7]


@pytest.mark.parametrize("version", range(FIRST_WITH_STABLE, 11))
def test_stable_offsets(version: int) -> None:
    shell = Shell()
    commit(shell, 7)
    txn_commit(shell, 9, 1)
    response = exchange(shell, request_in(version, require_stable=True), version)
    codes = [each.error_code for each in partitions(response, version)]
    assert codes == [UnstableOffsetCommit.code, NONE]


@pytest.mark.parametrize("version", range(11))
def test_an_error_of_the_group(version: int) -> None:
    [asked] = requested_groups(request_in(version), version)
    code = NotCoordinator.code
    response = response_of_groups([group_error(asked, code, version)], version)
    received = decode(OffsetFetchResponse, encode(response, version), version)
    if version >= FIRST_BATCHED:
        assert (received.groups[0].error_code, received.groups[0].topics) == (code, [])
    elif version >= FIRST_WITH_ALL:
        assert (received.error_code, received.topics) == (code, [])
    else:
        found = [(each.error_code, each.committed_offset) for each in partitions(received, version)]
        assert found == [(code, -1), (code, -1)]
