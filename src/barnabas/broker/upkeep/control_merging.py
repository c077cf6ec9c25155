"""Merges requests that wait for a broker which takes none: what is left are at most four, with the same effect.

All of them are of one controller for one registration of the broker. Their order is that in which a broker that joins
needs them:

    UpdateMetadata   topics that have been deleted
    StopReplica      replicas that have ended
    UpdateMetadata   the live brokers, and the latest state of each partition
    LeaderAndIsr     the latest role in each partition

For each partition the last request counts. A role that follows a deletion is that of another topic with the same name,
or of a replica that has come back: both are kept, the deletion first. A broker that has missed the states in between
cannot tell this from having been slow: only later leader epochs count. A merged request has one partition once, so its
size depends on how many partitions there are, and not on how often they have changed.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.coordination.controller.events import ControlRequest
from barnabas.coordination.controller.messages import EPOCH_DURING_DELETE
from barnabas.coordination.metadata.image import Uuid
from barnabas.coordination.metadata.updates import LEADER_DURING_DELETE
from barnabas.protocol.messages.leader_and_isr_request import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from barnabas.protocol.messages.stop_replica_request import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from barnabas.protocol.messages.update_metadata_request import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)


def partition_count(request: ControlRequest) -> int:
    """How many partitions a request has, which is what its memory depends on."""
    return sum(len(topic.partition_states) for topic in request.topic_states)


def merged(requests: Iterable[ControlRequest]) -> list[ControlRequest]:
    """Requests that have the effect of these, which were to be sent in this order."""
    merging = _Merging()
    for request in requests:
        if isinstance(request, UpdateMetadataRequest):
            merging.add_metadata(request)
        elif isinstance(request, StopReplicaRequest):
            merging.add_stops(request)
        else:
            merging.add_roles(request)
    return merging.requests()


class _Metadata:
    __slots__ = ("partitions", "topic_id")

    def __init__(self, topic_id: Uuid) -> None:
        self.topic_id = topic_id
        self.partitions: dict[int, UpdateMetadataPartitionState] = {}


class _Roles:
    __slots__ = ("partitions", "topic_id")

    def __init__(self, topic_id: Uuid) -> None:
        self.topic_id = topic_id
        self.partitions: dict[int, LeaderAndIsrPartitionState] = {}


class _Merging:
    def __init__(self) -> None:
        self._update: UpdateMetadataRequest | None = None
        self._stop: StopReplicaRequest | None = None
        self._give: LeaderAndIsrRequest | None = None
        # By topic.
        self._deleted: dict[str, _Metadata] = {}
        self._metadata: dict[str, _Metadata] = {}
        self._stops: dict[str, dict[int, StopReplicaPartitionState]] = {}
        self._roles: dict[str, _Roles] = {}
        self._leaders: dict[int, LeaderAndIsrLiveLeader] = {}

    def add_metadata(self, request: UpdateMetadataRequest) -> None:
        self._update = request
        for topic in request.topic_states:
            if any(each.leader == LEADER_DURING_DELETE for each in topic.partition_states):
                # A topic is deleted as a whole.
                self._metadata.pop(topic.topic_name, None)
                into = self._deleted
            else:
                into = self._metadata
            found = into.get(topic.topic_name)
            if found is None:
                found = into[topic.topic_name] = _Metadata(topic.topic_id)
            found.topic_id = topic.topic_id
            for each in topic.partition_states:
                found.partitions[each.partition_index] = each

    def add_stops(self, request: StopReplicaRequest) -> None:
        self._stop = request
        for topic in request.topic_states:
            stops = self._stops.setdefault(topic.topic_name, {})
            roles = self._roles.get(topic.topic_name)
            for each in topic.partition_states:
                if roles is not None:
                    roles.partitions.pop(each.partition_index, None)
                before = stops.get(each.partition_index)
                stops[each.partition_index] = each if before is None else _merged_stop(before, each)

    def add_roles(self, request: LeaderAndIsrRequest) -> None:
        self._give = request
        for topic in request.topic_states:
            found = self._roles.get(topic.topic_name)
            if found is None or found.topic_id != topic.topic_id:
                found = self._roles[topic.topic_name] = _Roles(topic.topic_id)
            stops = self._stops.get(topic.topic_name, {})
            for each in topic.partition_states:
                stop = stops.get(each.partition_index)
                if stop is not None and not stop.delete_partition:
                    # A role replaces the one before it, whether that was stopped or not.
                    del stops[each.partition_index]
                before = found.partitions.get(each.partition_index)
                is_new = before is not None and before.is_new and not each.is_new
                found.partitions[each.partition_index] = _as_new(each) if is_new else each
        for leader in request.live_leaders:
            self._leaders[leader.broker_id] = leader

    def requests(self) -> list[ControlRequest]:
        requests: list[ControlRequest] = []
        if self._update is not None and self._deleted:
            requests.append(_update(self._update, self._deleted))
        if self._stop is not None and any(self._stops.values()):
            requests.append(_stop(self._stop, self._stops))
        if self._update is not None:
            requests.append(_update(self._update, self._metadata))
        if self._give is not None and any(each.partitions for each in self._roles.values()):
            requests.append(self._give_roles(self._give))
        return requests

    def _give_roles(self, latest: LeaderAndIsrRequest) -> LeaderAndIsrRequest:
        topics = [
            LeaderAndIsrTopicState(
                topic_name=name, topic_id=roles.topic_id, partition_states=list(roles.partitions.values())
            )
            for name, roles in self._roles.items()
            if roles.partitions
        ]
        leaders = {each.leader for topic in topics for each in topic.partition_states}
        return LeaderAndIsrRequest(
            controller_id=latest.controller_id,
            controller_epoch=latest.controller_epoch,
            broker_epoch=latest.broker_epoch,
            topic_states=topics,
            live_leaders=[leader for each, leader in self._leaders.items() if each in leaders],
        )


def _merged_stop(
    before: StopReplicaPartitionState, after: StopReplicaPartitionState
) -> StopReplicaPartitionState:
    is_topic_gone = EPOCH_DURING_DELETE in (before.leader_epoch, after.leader_epoch)
    return StopReplicaPartitionState(
        partition_index=after.partition_index,
        # No role of a topic that is gone is later than its deletion.
        leader_epoch=EPOCH_DURING_DELETE if is_topic_gone else after.leader_epoch,
        delete_partition=before.delete_partition or after.delete_partition,
    )


def _as_new(state: LeaderAndIsrPartitionState) -> LeaderAndIsrPartitionState:
    """The replica has not been made yet. Brokers may have the same object in their queues."""
    return LeaderAndIsrPartitionState(
        partition_index=state.partition_index,
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        partition_epoch=state.partition_epoch,
        replicas=state.replicas,
        adding_replicas=state.adding_replicas,
        removing_replicas=state.removing_replicas,
        is_new=True,
        leader_recovery_state=state.leader_recovery_state,
    )


def _update(latest: UpdateMetadataRequest, topics: dict[str, _Metadata]) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        controller_id=latest.controller_id,
        controller_epoch=latest.controller_epoch,
        broker_epoch=latest.broker_epoch,
        topic_states=[
            UpdateMetadataTopicState(
                topic_name=name, topic_id=each.topic_id, partition_states=list(each.partitions.values())
            )
            for name, each in topics.items()
        ],
        live_brokers=latest.live_brokers,
    )


def _stop(
    latest: StopReplicaRequest, topics: dict[str, dict[int, StopReplicaPartitionState]]
) -> StopReplicaRequest:
    return StopReplicaRequest(
        controller_id=latest.controller_id,
        controller_epoch=latest.controller_epoch,
        broker_epoch=latest.broker_epoch,
        topic_states=[
            StopReplicaTopicState(topic_name=name, partition_states=list(states.values()))
            for name, states in topics.items()
            if states
        ],
    )
