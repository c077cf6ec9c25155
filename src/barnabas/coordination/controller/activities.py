"""What the controller does when nodes of the store change, and when brokers answer, as its metrics name it."""

from __future__ import annotations

from typing import Final

from barnabas.coordination.controller.events import ControlRequest
from barnabas.coordination.controller.work import Activity
from barnabas.coordination.metadata.tree import (
    BROKER_IDS,
    DELETE_TOPICS,
    ISR_CHANGES,
    LOG_DIR_EVENTS,
    PREFERRED_REPLICA_ELECTION,
    REASSIGN_PARTITIONS,
)
from barnabas.protocol.messages.leader_and_isr_request import LeaderAndIsrRequest
from barnabas.protocol.messages.stop_replica_request import StopReplicaRequest
from barnabas.protocol.messages.update_metadata_request import UpdateMetadataRequest

_CHANGES: Final = {
    BROKER_IDS: Activity.BROKER_CHANGE,
    DELETE_TOPICS: Activity.TOPIC_DELETION,
    ISR_CHANGES: Activity.ISR_CHANGE,
    LOG_DIR_EVENTS: Activity.LOG_DIR_CHANGE,
    PREFERRED_REPLICA_ELECTION: Activity.MANUAL_LEADER_BALANCE,
    REASSIGN_PARTITIONS: Activity.ALTER_PARTITION_REASSIGNMENT,
}
_ANSWERS: Final[dict[type[ControlRequest], Activity]] = {
    LeaderAndIsrRequest: Activity.LEADER_AND_ISR_RESPONSE_RECEIVED,
    StopReplicaRequest: Activity.TOPIC_DELETION,
    UpdateMetadataRequest: Activity.UPDATE_METADATA_RESPONSE_RECEIVED,
}


def activity_of_change(path: str) -> Activity:
    """The node that has changed is the list of topics or a topic, if it is none of those above."""
    return _CHANGES.get(path, Activity.TOPIC_CHANGE)


def activity_of_answer(request: ControlRequest) -> Activity:
    return _ANSWERS[type(request)]
