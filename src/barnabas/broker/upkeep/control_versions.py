"""Requests of the controller in the versions of older brokers.

Inside this broker they have the form of their newest version. Older versions have no groups of partitions by topic, no
topic ids, and one mark for the deletion of all partitions. `as_sent` gives a request the form of an older version;
`as_received` gives one that came in such a version the newest form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy, deepcopy
from typing import Final, TypeVar

from barnabas.coordination.controller.events import ControlRequest
from barnabas.coordination.controller.links import ControlResponse
from barnabas.coordination.metadata.image import Uuid
from barnabas.peers.versions import ProtocolLevel
from barnabas.protocol.message import ZERO_UUID
from barnabas.protocol.messages.leader_and_isr_request import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from barnabas.protocol.messages.leader_and_isr_response import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from barnabas.protocol.messages.stop_replica_request import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from barnabas.protocol.messages.stop_replica_response import StopReplicaResponse
from barnabas.protocol.messages.update_metadata_request import (
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

# Since this version of LeaderAndIsr, and of UpdateMetadata, topics have ids.
LEADER_AND_ISR_IDS: Final = 5
UPDATE_METADATA_IDS: Final = 7
# Since this version of LeaderAndIsr, leaders recover after an unclean election.
LEADER_AND_ISR_RECOVERY: Final = 6
# Since this version of StopReplica, each partition has its own epoch and mark for deletion.
STOP_REPLICA_STATES: Final = 3

_SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

PartitionState = TypeVar("PartitionState", LeaderAndIsrPartitionState, UpdateMetadataPartitionState)

# The id of a topic that this broker knows, else zeros.
TopicIds = Callable[[str], Uuid]


class OldForm:
    """The form in which the broker of this process gets requests of its own controller, at a level without topic ids.

    No broker must know an id that others do not know: clients would use it with all of them.
    """

    def __init__(self, level: ProtocolLevel, topic_ids: TopicIds) -> None:
        self._roles_version: Final = level.version_of("LeaderAndIsr")
        self._metadata_version: Final = level.version_of("UpdateMetadata")
        self._topic_ids = topic_ids

    def received(self, request: ControlRequest) -> ControlRequest:
        """A copy, since others get the same request."""
        if isinstance(request, LeaderAndIsrRequest):
            [sent] = as_sent(request, self._roles_version)
            assert isinstance(sent, LeaderAndIsrRequest)
            roles = copy(sent)
            roles.topic_states = list(map(copy, sent.topic_states))
            return leader_and_isr_as_received(roles, self._roles_version, self._topic_ids)
        if isinstance(request, UpdateMetadataRequest):
            metadata = copy(request)
            metadata.topic_states = list(map(copy, request.topic_states))
            return update_metadata_as_received(metadata, self._metadata_version, self._topic_ids)
        return request

    def answered(self, received: ControlRequest, response: ControlResponse | None) -> ControlResponse | None:
        if isinstance(received, LeaderAndIsrRequest) and isinstance(response, LeaderAndIsrResponse):
            return leader_and_isr_as_answered(received, response, self._roles_version)
        return response


def old_form(level: ProtocolLevel, topic_ids: TopicIds) -> OldForm | None:
    """None at levels with topic ids."""
    has_ids = (
        level.version_of("LeaderAndIsr") >= LEADER_AND_ISR_IDS
        and level.version_of("UpdateMetadata") >= UPDATE_METADATA_IDS
    )
    return None if has_ids else OldForm(level, topic_ids)


def as_sent(request: ControlRequest, version: int) -> list[ControlRequest]:
    """The requests to send for this one, in their order. Only StopReplica below version 3 may be several."""
    if isinstance(request, LeaderAndIsrRequest) and version < LEADER_AND_ISR_RECOVERY:
        return [_without_recovery(request)]
    if not isinstance(request, StopReplicaRequest) or version >= STOP_REPLICA_STATES:
        return [request]
    requests: list[ControlRequest] = []
    for is_deletion in (False, True):
        topics = [
            StopReplicaTopicV1(name=topic.topic_name, partition_indexes=indexes)
            for topic in request.topic_states
            if (
                indexes := [
                    each.partition_index
                    for each in topic.partition_states
                    if each.delete_partition == is_deletion
                ]
            )
        ]
        if topics or (is_deletion and not requests):
            requests.append(
                StopReplicaRequest(
                    controller_id=request.controller_id,
                    controller_epoch=request.controller_epoch,
                    broker_epoch=request.broker_epoch,
                    delete_partitions=is_deletion,
                    topics=topics,
                )
            )
    return requests


def _without_recovery(request: LeaderAndIsrRequest) -> LeaderAndIsrRequest:
    """A state of a later level may still be in the store: such a leader counts as recovered, as in Apache Kafka."""
    states = [state for topic in request.topic_states for state in topic.partition_states]
    if any(state.leader_recovery_state for state in states):
        request = deepcopy(request)
        for topic in request.topic_states:
            for state in topic.partition_states:
                state.leader_recovery_state = 0
    return request


def as_answered(request: ControlRequest, responses: list[ControlResponse]) -> ControlResponse:
    """The response in its newest form, from the responses to what `as_sent` returned for the request."""
    first = responses[0]
    if isinstance(first, StopReplicaResponse):
        failed = [each for each in responses if each.error_code]
        return StopReplicaResponse(
            error_code=failed[0].error_code if failed else 0,
            partition_errors=[
                error
                for each in responses
                if isinstance(each, StopReplicaResponse)
                for error in each.partition_errors
            ],
        )
    if isinstance(first, LeaderAndIsrResponse) and first.partition_errors:
        assert isinstance(request, LeaderAndIsrRequest)
        ids = {each.topic_name: each.topic_id for each in request.topic_states}
        topics: dict[str, LeaderAndIsrTopicError] = {}
        for error in first.partition_errors:
            topic = topics.get(error.topic_name)
            if topic is None:
                topic = topics[error.topic_name] = LeaderAndIsrTopicError(
                    topic_id=ids.get(error.topic_name, ZERO_UUID)
                )
            topic.partition_errors.append(
                LeaderAndIsrPartitionError(partition_index=error.partition_index, error_code=error.error_code)
            )
        return LeaderAndIsrResponse(error_code=first.error_code, topics=list(topics.values()))
    return first


def leader_and_isr_as_received(
    request: LeaderAndIsrRequest, version: int, topic_ids: TopicIds
) -> LeaderAndIsrRequest:
    if version >= LEADER_AND_ISR_IDS:
        return request
    states = request.topic_states or [
        LeaderAndIsrTopicState(topic_name=name, partition_states=partitions)
        for name, partitions in _by_topic(request.ungrouped_partition_states).items()
    ]
    for topic in states:
        topic.topic_id = topic_ids(topic.topic_name)
    return LeaderAndIsrRequest(
        controller_id=request.controller_id,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
        topic_states=states,
        live_leaders=request.live_leaders,
    )


def leader_and_isr_as_answered(
    request: LeaderAndIsrRequest, response: LeaderAndIsrResponse, version: int
) -> LeaderAndIsrResponse:
    """The response to a request of this version, which was carried out in its newest form."""
    if version >= LEADER_AND_ISR_IDS:
        return response
    return LeaderAndIsrResponse(
        error_code=response.error_code,
        partition_errors=[
            LeaderAndIsrPartitionError(
                topic_name=topic.topic_name,
                partition_index=each.partition_index,
                error_code=each.error_code,
            )
            # Each topic of a request has its place in the response, also those without an id.
            for topic, errors in zip(request.topic_states, response.topics, strict=True)
            for each in errors.partition_errors
        ],
    )


def stop_replica_as_received(request: StopReplicaRequest, version: int) -> StopReplicaRequest:
    if version >= STOP_REPLICA_STATES:
        return request
    indexes: dict[str, list[int]] = {each.name: each.partition_indexes for each in request.topics}
    for each in request.ungrouped_partitions:
        indexes.setdefault(each.topic_name, []).append(each.partition_index)
    return StopReplicaRequest(
        controller_id=request.controller_id,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
        topic_states=[
            StopReplicaTopicState(
                topic_name=name,
                partition_states=[
                    StopReplicaPartitionState(
                        partition_index=index, delete_partition=request.delete_partitions
                    )
                    for index in partitions
                ],
            )
            for name, partitions in indexes.items()
        ],
    )


def update_metadata_as_received(
    request: UpdateMetadataRequest, version: int, topic_ids: TopicIds
) -> UpdateMetadataRequest:
    if version >= UPDATE_METADATA_IDS:
        return request
    request.topic_states = request.topic_states or [
        UpdateMetadataTopicState(topic_name=name, partition_states=partitions)
        for name, partitions in _by_topic(request.ungrouped_partition_states).items()
    ]
    request.ungrouped_partition_states = []
    for topic in request.topic_states:
        topic.topic_id = topic_ids(topic.topic_name)
    for broker in request.live_brokers:
        if version == 0:
            broker.endpoints = [UpdateMetadataEndpoint(host=broker.v0_host, port=broker.v0_port)]
        for endpoint in broker.endpoints:
            # Before listeners had names, they were called like their security protocol.
            endpoint.listener = endpoint.listener or _SECURITY_PROTOCOLS[endpoint.security_protocol]
    return request


def _by_topic(states: Iterable[PartitionState]) -> dict[str, list[PartitionState]]:
    topics: dict[str, list[PartitionState]] = {}
    for state in states:
        topics.setdefault(state.topic_name, []).append(state)
    return topics
