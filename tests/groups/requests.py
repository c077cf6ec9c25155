"""The requests of a group's members, with the fields that tests care about."""

from __future__ import annotations

from typing import Any

from barnabas.groups.caller import Caller
from barnabas.protocol.message import ZERO_UUID
from barnabas.protocol.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from barnabas.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from barnabas.protocol.messages.delete_groups_response import DeleteGroupsResponse
from barnabas.protocol.messages.heartbeat_request import HeartbeatRequest
from barnabas.protocol.messages.heartbeat_response import HeartbeatResponse
from barnabas.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.leave_group_response import LeaveGroupResponse
from barnabas.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_commit_response import OffsetCommitResponse
from barnabas.protocol.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.protocol.messages.offset_delete_response import OffsetDeleteResponse
from barnabas.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from barnabas.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.protocol.messages.sync_group_response import SyncGroupResponse
from barnabas.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from tests.groups.shell import GROUP, Shell, caller_of


def sync(
    shell: Shell,
    member_id: str,
    generation_id: int,
    assignments: dict[str, bytes] | None = None,
    *,
    instance_id: str | None = None,
    group_id: str = GROUP,
    protocol_name: str | None = None,
    protocol_type: str | None = None,
    version: int = 5,
) -> Caller:
    caller = caller_of(version)
    request = SyncGroupRequest(
        group_id=group_id,
        generation_id=generation_id,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_name=protocol_name,
        protocol_type=protocol_type,
        assignments=[
            SyncGroupRequestAssignment(member_id=assignee, assignment=assignment)
            for assignee, assignment in (assignments or {}).items()
        ],
    )
    shell.carry_out(shell.coordinator.membership.sync(caller, request, shell.now_ms))
    return caller


def synced(shell: Shell, caller: Caller) -> SyncGroupResponse:
    return shell.reply(caller, SyncGroupResponse)


def heartbeat(
    shell: Shell,
    member_id: str,
    generation_id: int,
    *,
    instance_id: str | None = None,
    group_id: str = GROUP,
) -> int:
    code = try_heartbeat(shell, member_id, generation_id, instance_id=instance_id, group_id=group_id)
    assert code is not None
    return code


def try_heartbeat(
    shell: Shell,
    member_id: str,
    generation_id: int,
    *,
    instance_id: str | None = None,
    group_id: str = GROUP,
) -> int | None:
    """None if the reply waits for a commit."""
    caller = caller_of(4)
    request = HeartbeatRequest(
        group_id=group_id, generation_id=generation_id, member_id=member_id, group_instance_id=instance_id
    )
    shell.carry_out(shell.coordinator.membership.heartbeat(caller, request, shell.now_ms))
    return shell.reply(caller, HeartbeatResponse).error_code if caller in shell.replies else None


def leave(
    shell: Shell, *identities: tuple[str, str | None], group_id: str = GROUP, version: int = 5
) -> LeaveGroupResponse:
    caller = send_leave(shell, *identities, group_id=group_id, version=version)
    return shell.reply(caller, LeaveGroupResponse)


def send_leave(
    shell: Shell, *identities: tuple[str, str | None], group_id: str = GROUP, version: int = 5
) -> Caller:
    caller = caller_of(version)
    request = LeaveGroupRequest(group_id=group_id)
    if version < 3:
        request.member_id = identities[0][0]
    else:
        request.members = [
            MemberIdentity(member_id=member_id, group_instance_id=instance_id)
            for member_id, instance_id in identities
        ]
    shell.carry_out(shell.coordinator.membership.leave(caller, request, shell.now_ms))
    return caller


def commit(
    shell: Shell,
    offset: int,
    *,
    partition: int = 0,
    topic: str = "topic",
    member_id: str = "",
    generation_id: int = -1,
    instance_id: str | None = None,
    metadata: str | None = "",
    retention_time_ms: int = -1,
    group_id: str = GROUP,
    topic_id: bytes = ZERO_UUID,
    version: int = 9,
) -> Caller:
    caller = caller_of(version)
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation_id,
        member_id=member_id,
        group_instance_id=instance_id,
        retention_time_ms=retention_time_ms,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                topic_id=topic_id,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata=metadata
                    )
                ],
            )
        ],
    )
    shell.carry_out(shell.coordinator.offsets.commit(caller, request, shell.now_ms))
    return caller


def commit_code(shell: Shell, caller: Caller) -> int:
    [topic] = shell.reply(caller, OffsetCommitResponse).topics
    [partition] = topic.partitions
    return partition.error_code


def send_txn_commit(
    shell: Shell,
    offset: int,
    producer_id: int,
    *,
    partition: int = 0,
    topic: str = "topic",
    member_id: str = "",
    generation_id: int = -1,
    metadata: str = "",
    group_id: str = GROUP,
) -> Caller:
    caller = caller_of(5)
    request = TxnOffsetCommitRequest(
        transactional_id="txn",
        group_id=group_id,
        producer_id=producer_id,
        producer_epoch=0,
        generation_id=generation_id,
        member_id=member_id,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata=metadata
                    )
                ],
            )
        ],
    )
    shell.carry_out(shell.coordinator.offsets.commit_in_transaction(caller, request, shell.now_ms))
    return caller


def txn_commit(shell: Shell, offset: int, producer_id: int, **options: Any) -> int:
    caller = send_txn_commit(shell, offset, producer_id, **options)
    return shell.reply(caller, TxnOffsetCommitResponse).topics[0].partitions[0].error_code


def fetch(
    shell: Shell,
    *,
    partition: int = 0,
    topic: str = "topic",
    group_id: str = GROUP,
    stable: bool = False,
    member_id: str | None = None,
    member_epoch: int = -1,
    topic_id: bytes = ZERO_UUID,
) -> tuple[int, int, str | None]:
    """Error, offset and metadata."""
    request = OffsetFetchRequestGroup(
        group_id=group_id,
        member_id=member_id,
        member_epoch=member_epoch,
        topics=[OffsetFetchRequestTopics(name=topic, topic_id=topic_id, partition_indexes=[partition])],
    )
    [answers] = shell.coordinator.offsets.fetch(request, require_stable=stable).topics
    [answer] = answers.partitions
    return answer.error_code, answer.committed_offset, answer.metadata


def fetch_all(shell: Shell, group_id: str = GROUP) -> dict[tuple[str, int], int]:
    request = OffsetFetchRequestGroup(group_id=group_id, topics=None)
    return {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in shell.coordinator.offsets.fetch(request, require_stable=False).topics
        for partition in topic.partitions
    }


def delete_offsets(
    shell: Shell, *partitions: tuple[str, int], group_id: str = GROUP
) -> tuple[int, list[int]]:
    """The code of the whole, and those of the partitions."""
    caller = caller_of(0)
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=partition)]
            )
            for topic, partition in partitions
        ],
    )
    shell.carry_out(shell.coordinator.offsets.delete(caller, request))
    response = shell.reply(caller, OffsetDeleteResponse)
    return response.error_code, [each.error_code for topic in response.topics for each in topic.partitions]


def delete_groups(shell: Shell, *group_ids: str) -> dict[str, int]:
    caller = caller_of(2)
    shell.carry_out(shell.coordinator.delete_groups(caller, group_ids))
    return {
        result.group_id: result.error_code for result in shell.reply(caller, DeleteGroupsResponse).results
    }


def join_new(shell: Shell, **options: Any) -> tuple[str, Caller]:
    """A new member as modern clients do it: an id first, then the join itself, which parks."""
    member_id = shell.joined(shell.join(**options)).member_id
    return member_id, shell.join(member_id, **options)


def settle(shell: Shell, *callers: Caller, group_id: str = GROUP) -> int:
    """All members have joined: the leader assigns to each its own id. Returns the generation."""
    responses = [shell.joined(caller) for caller in callers]
    generation_id = responses[0].generation_id
    assert all(response.error_code == 0 for response in responses)
    [leader] = [response for response in responses if response.members]
    assignments = {each.member_id: each.member_id.encode() for each in leader.members}
    waiting = [
        sync(
            shell,
            response.member_id,
            generation_id,
            assignments if response is leader else None,
            group_id=group_id,
        )
        for response in responses
    ]
    for response, caller in zip(responses, waiting, strict=True):
        answer = synced(shell, caller)
        assert (answer.error_code, answer.assignment) == (0, response.member_id.encode())
    return generation_id


def state(shell: Shell, group_id: str = GROUP) -> str:
    [described] = shell.coordinator.describe_groups([group_id], version=5)
    return described.group_state


def send_heartbeat(
    shell: Shell,
    member_id: str,
    member_epoch: int = 0,
    *,
    topics: tuple[str, ...] | None = None,
    regex: str | None = None,
    owned: dict[bytes, list[int]] | None = None,
    instance_id: str | None = None,
    rack_id: str | None = None,
    assignor: str | None = None,
    rebalance_timeout_ms: int = -1,
    group_id: str = GROUP,
    version: int = 1,
    client_id: str = "client",
) -> Caller:
    """Of the new protocol."""
    caller = caller_of(version, client_id)
    request = ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=member_epoch,
        instance_id=instance_id,
        rack_id=rack_id,
        rebalance_timeout_ms=rebalance_timeout_ms,
        subscribed_topic_names=None if topics is None else list(topics),
        subscribed_topic_regex=regex,
        server_assignor=assignor,
        topic_partitions=None
        if owned is None
        else [TopicPartitions(topic_id=each, partitions=partitions) for each, partitions in owned.items()],
    )
    shell.carry_out(shell.coordinator.consumers.heartbeat(caller, request, shell.now_ms))
    return caller


def beat(
    shell: Shell, member_id: str, member_epoch: int = 0, **options: Any
) -> ConsumerGroupHeartbeatResponse:
    """Joins with what a first request must have, unless something else is asked for."""
    if member_epoch == 0:
        options = {"rebalance_timeout_ms": 60_000, "owned": {}, **options}
        if "regex" not in options:
            options = {"topics": ("topic",), **options}
    caller = send_heartbeat(shell, member_id, member_epoch, **options)
    return shell.reply(caller, ConsumerGroupHeartbeatResponse)


def assigned(response: ConsumerGroupHeartbeatResponse) -> dict[bytes, list[int]] | None:
    if response.assignment is None:
        return None
    return {each.topic_id: each.partitions for each in response.assignment.topic_partitions}
