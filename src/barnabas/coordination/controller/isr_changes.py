"""AlterPartition: leaders propose their in-sync replicas, and the controller stores them.

Checks come in the order of Apache Kafka 3.9. A proposal that is stored already succeeds: its answer may have been lost.
No LeaderAndIsr follows a change: the leader learns of it by the answer, the followers not at all.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from barnabas.coordination.controller.state import (
    Change,
    ControllerState,
    Results,
    change_states,
    changed_topics,
    refresh_states,
    tell_brokers,
)
from barnabas.coordination.metadata.image import PartitionImage
from barnabas.coordination.metadata.tree import LEADER_RECOVERING
from barnabas.errors import (
    NONE,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    KafkaError,
    NotController,
    OperationNotAttempted,
    StaleBrokerEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.model import BrokerId, TopicPartition
from barnabas.protocol.message import ZERO_UUID
from barnabas.protocol.messages.alter_partition_request import AlterPartitionRequest
from barnabas.protocol.messages.alter_partition_request import PartitionData as Proposal
from barnabas.protocol.messages.alter_partition_response import (
    AlterPartitionResponse,
    PartitionData,
    TopicData,
)
from barnabas.value import replace

log = logging.getLogger(__name__)

_FIRST_VERSION_WITH_IDS: Final = 2
_FIRST_VERSION_WITH_EPOCHS: Final = 3


def alter_partition(
    state: ControllerState, request: AlterPartitionRequest, version: int
) -> Change[AlterPartitionResponse]:
    broker = state.image.brokers.get(BrokerId(request.broker_id))
    if broker is None or broker.epoch != request.broker_epoch:
        log.info(
            "Ignoring AlterPartition of broker %d with epoch %d", request.broker_id, request.broker_epoch
        )
        return AlterPartitionResponse(error_code=StaleBrokerEpoch.code)
    proposals: dict[TopicPartition, Proposal] = {}
    unknown_ids = []
    for topic in request.topics:
        name: str | None = topic.topic_name
        if version >= _FIRST_VERSION_WITH_IDS:
            name = state.image.topic_names.get(topic.topic_id)
        if name is None:
            unknown_ids.append(topic)
            continue
        for each in topic.partitions:
            proposals[TopicPartition(name, each.partition_index)] = each

    def decide(at: TopicPartition, partition: PartitionImage) -> PartitionImage:
        return _proposed(state, partition, BrokerId(request.broker_id), proposals[at], version)

    results = yield from change_states(state, proposals, decide)
    yield from tell_brokers(state, metadata=changed_topics(state, proposals))
    reassigned = [
        at
        for at, error in results.items()
        if error is None and (found := state.partition(at)) is not None and found.is_reassigned
    ]
    if reassigned:
        # The leader has its answer before its reassignment is completed.
        state.follow_ups.append(lambda state: _complete(state, reassigned))
    response = AlterPartitionResponse(
        topics=[
            TopicData(
                topic_id=topic.topic_id,
                partitions=[
                    PartitionData(partition_index=each.partition_index, error_code=UnknownTopicId.code)
                    for each in topic.partitions
                ],
            )
            for topic in unknown_ids
        ]
    )
    response.topics += _answers(state, results)
    return response


def _proposed(
    state: ControllerState, current: PartitionImage, broker_id: BrokerId, proposal: Proposal, version: int
) -> PartitionImage:
    """The partition as its leader proposes it. Raises the KafkaError that the leader gets."""
    if not current.has_state:
        raise UnknownTopicOrPartition("The partition does not exist.")
    if proposal.partition_epoch > current.partition_epoch or proposal.leader_epoch > current.leader_epoch:
        # The leader knows more than this controller, which has perhaps been replaced.
        raise NotController("The leader has a later epoch than this controller.")
    if proposal.leader_epoch < current.leader_epoch:
        raise FencedLeaderEpoch("The leader epoch is over.")
    if version >= _FIRST_VERSION_WITH_EPOCHS:
        isr = tuple(BrokerId(each.broker_id) for each in proposal.new_isr_with_epochs)
    else:
        isr = tuple(map(BrokerId, proposal.new_isr))
    recovery = proposal.leader_recovery_state
    wanted = (broker_id, isr, recovery)
    if wanted == (current.leader, current.isr, current.leader_recovery_state):
        return current
    if proposal.partition_epoch < current.partition_epoch:
        raise InvalidUpdateVersion("The state of the partition has changed.")
    if recovery == LEADER_RECOVERING and (len(isr) > 1 or current.leader_recovery_state != LEADER_RECOVERING):
        raise InvalidRequest(
            "A leader that recovers is the only replica in sync, and a recovered one stays so."
        )
    if any(each not in state.image.brokers or each in state.shutting_down for each in isr):
        refusal = IneligibleReplica if version >= _FIRST_VERSION_WITH_IDS else OperationNotAttempted
        raise refusal("A replica is not alive or shuts down.")
    return replace(current, leader=broker_id, isr=isr, leader_recovery_state=recovery)


def _answers(state: ControllerState, results: Results) -> list[TopicData]:
    topics: dict[str, TopicData] = {}
    for at, error in results.items():
        if at.topic not in topics:
            known = state.image.topics.get(at.topic)
            topics[at.topic] = TopicData(
                topic_name=at.topic, topic_id=ZERO_UUID if known is None else known.id
            )
        topics[at.topic].partitions.append(_answer(state, at, error))
    return list(topics.values())


def _answer(state: ControllerState, at: TopicPartition, error: KafkaError | None) -> PartitionData:
    partition = state.partition(at)
    if error is not None or partition is None:
        return PartitionData(
            partition_index=at.partition,
            error_code=UnknownTopicOrPartition.code if error is None else error.code,
        )
    return PartitionData(
        partition_index=at.partition,
        error_code=NONE,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )


def _complete(state: ControllerState, partitions: Iterable[TopicPartition]) -> Change[None]:
    from barnabas.coordination.controller.reassignment import complete_reassignments

    return complete_reassignments(state, partitions)


def take_in_isr_changes(state: ControllerState, partitions: list[TopicPartition]) -> Change[None]:
    """Brokers of old releases change in-sync replicas in the store themselves, and leave notices."""
    known = [at for at in dict.fromkeys(partitions) if state.partition(at) is not None]
    if known:
        yield from refresh_states(state, known)
        yield from tell_brokers(state, metadata=changed_topics(state, known))
        yield from _complete(state, known)
