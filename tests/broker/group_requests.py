"""Requests about groups, with the fields that tests care about, for a client that asks one at a time."""

from __future__ import annotations

from typing import Any

from barnabas.protocol.messages.delete_groups_request import DeleteGroupsRequest
from barnabas.protocol.messages.describe_groups_request import DescribeGroupsRequest
from barnabas.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from barnabas.protocol.messages.heartbeat_request import HeartbeatRequest
from barnabas.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.list_groups_request import ListGroupsRequest
from barnabas.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.raw_client import Asking, RawClient
from tests.groups.shell import subscription
from tests.waiting import wait_until

SESSION_MS = 30_000


def find(client: Asking, group_id: str, *, version: int = 6, key_type: int = 0) -> Any:
    """The coordinator's row, whichever form the version has."""
    request = FindCoordinatorRequest(key=group_id, key_type=key_type, coordinator_keys=[group_id])
    if version < 4:
        request.coordinator_keys = []
    else:
        request.key = ""
    response = client.ask("FindCoordinator", version, request)
    return response if version < 4 else response.coordinators[0]


def wait_for_coordinator(client: RawClient, group_id: str) -> None:
    """Has the topic created, and waits until the group's partition is loaded."""
    wait_until(lambda: find(client, group_id).error_code == 0)
    wait_until(lambda: describe(client, group_id, version=5).error_code == 0)


def join_request(
    group_id: str,
    member_id: str = "",
    *,
    instance_id: str | None = None,
    session_timeout_ms: int = SESSION_MS,
    rebalance_timeout_ms: int = SESSION_MS,
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        member_id=member_id,
        group_instance_id=instance_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription("topic"))],
    )


def join(client: RawClient, group_id: str, *, version: int = 9, **options: Any) -> Any:
    """Joins with an id, which a new member is first given from version 4 on."""
    response = client.ask("JoinGroup", version, join_request(group_id, **options))
    if response.error_code == 79:
        request = join_request(group_id, response.member_id, **options)
        response = client.ask("JoinGroup", version, request)
    return response


def sync(
    client: RawClient,
    group_id: str,
    joined: Any,
    assignments: dict[str, bytes] | None = None,
    *,
    version: int = 5,
    instance_id: str | None = None,
) -> Any:
    request = SyncGroupRequest(
        group_id=group_id,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=instance_id,
        assignments=[
            SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in (assignments or {}).items()
        ],
    )
    if version >= 5:
        request.protocol_type, request.protocol_name = "consumer", "range"
    return client.ask("SyncGroup", version, request)


def join_alone(client: RawClient, group_id: str, **options: Any) -> Any:
    """The only member of its group, with an assignment."""
    joined = join(client, group_id, **options)
    assert joined.error_code == 0, joined
    instance_id = options.get("instance_id")
    synced = sync(client, group_id, joined, {joined.member_id: b"assigned"}, instance_id=instance_id)
    assert (synced.error_code, synced.assignment) == (0, b"assigned")
    return joined


def heartbeat(client: RawClient, group_id: str, joined: Any, *, version: int = 4) -> int:
    request = HeartbeatRequest(
        group_id=group_id, generation_id=joined.generation_id, member_id=joined.member_id
    )
    code: int = client.ask("Heartbeat", version, request).error_code
    return code


def leave(client: RawClient, group_id: str, member_id: str, *, version: int = 5) -> int:
    """The member's own error, in whichever place the version has it."""
    if version < 3:
        request = LeaveGroupRequest(group_id=group_id, member_id=member_id)
    else:
        request = LeaveGroupRequest(group_id=group_id, members=[MemberIdentity(member_id=member_id)])
    response = client.ask("LeaveGroup", version, request)
    code: int = response.error_code or (response.members[0].error_code if version >= 3 else 0)
    return code


def commit(
    client: RawClient,
    group_id: str,
    offsets: dict[tuple[str, int], int],
    *,
    version: int = 9,
    joined: Any = None,
    topic_ids: dict[str, bytes] | None = None,
    metadata: str = "",
) -> dict[tuple[str, int], int]:
    """The error of each partition. From version 10 on names are those that `topic_ids` has."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (topic, partition), offset in offsets.items():
        by_name = topics.setdefault(topic, OffsetCommitRequestTopic(name=topic))
        by_name.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=metadata
            )
        )
    names = {topic_id: name for name, topic_id in (topic_ids or {}).items()}
    if version >= 10:
        for named in topics.values():
            named.topic_id = (topic_ids or {})[named.name]
            named.name = ""
    request = OffsetCommitRequest(group_id=group_id, topics=list(topics.values()))
    if joined is not None:
        request.generation_id_or_member_epoch = joined.generation_id
        request.member_id = joined.member_id
    response = client.ask("OffsetCommit", version, request)
    return {
        (topic.name or names[topic.topic_id], partition.partition_index): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }


def fetch_offsets(
    client: RawClient,
    group_id: str,
    partitions: dict[str, list[int]] | None,
    *,
    version: int = 9,
    topic_ids: dict[str, bytes] | None = None,
) -> Any:
    """Offsets by topic and partition, or the error of the group."""
    names = {topic_id: name for name, topic_id in (topic_ids or {}).items()}
    if version < 8:
        topics = [
            OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
            for name, indexes in (partitions or {}).items()
        ]
        request = OffsetFetchRequest(group_id=group_id, topics=None if partitions is None else topics)
        response = client.ask("OffsetFetch", version, request)
        if response.error_code:
            return response.error_code
        found = response.topics
    else:
        by_id = version >= 10
        asked = [
            OffsetFetchRequestTopics(
                name="" if by_id else name,
                topic_id=(topic_ids or {})[name] if by_id else bytes(16),
                partition_indexes=indexes,
            )
            for name, indexes in (partitions or {}).items()
        ]
        group = OffsetFetchRequestGroup(group_id=group_id, topics=None if partitions is None else asked)
        [answer] = client.ask("OffsetFetch", version, OffsetFetchRequest(groups=[group])).groups
        assert answer.group_id == group_id
        if answer.error_code:
            return answer.error_code
        found = answer.topics
    return {
        (topic.name if version < 10 else names[topic.topic_id], partition.partition_index): (
            partition.committed_offset if partition.error_code == 0 else f"error {partition.error_code}"
        )
        for topic in found
        for partition in topic.partitions
    }


def delete_offsets(client: RawClient, group_id: str, partitions: dict[str, list[int]]) -> Any:
    """The error of each partition, or that of the group."""
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=name,
                partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes],
            )
            for name, indexes in partitions.items()
        ],
    )
    response = client.ask("OffsetDelete", 0, request)
    return response.error_code or {
        (topic.name, partition.partition_index): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }


def describe(client: RawClient, group_id: str, *, version: int = 6, operations: bool = False) -> Any:
    request = DescribeGroupsRequest(groups=[group_id])
    if version >= 3:
        request.include_authorized_operations = operations
    [described] = client.ask("DescribeGroups", version, request).groups
    assert described.group_id == group_id
    return described


def listed(client: RawClient, *, version: int = 5, states: tuple[str, ...] = ()) -> dict[str, str]:
    """Groups and their states, which are empty before version 4. Waits until all partitions are loaded."""
    wait_until(lambda: client.ask("ListGroups", 0, ListGroupsRequest()).error_code == 0)
    response = client.ask("ListGroups", version, ListGroupsRequest(states_filter=list(states)))
    assert response.error_code == 0
    return {group.group_id: group.group_state for group in response.groups}


def delete_groups(client: RawClient, *group_ids: str, version: int = 2) -> dict[str, int]:
    response = client.ask("DeleteGroups", version, DeleteGroupsRequest(groups_names=list(group_ids)))
    return {result.group_id: result.error_code for result in response.results}
