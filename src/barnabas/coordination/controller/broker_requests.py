"""Requests of brokers to the controller: a broker that shuts down, log directories that failed, producer ids."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from barnabas.coordination.controller.events import Send
from barnabas.coordination.controller.leadership import take_offline
from barnabas.coordination.controller.messages import stop_replicas
from barnabas.coordination.controller.state import (
    ATTEMPTS_MAX,
    Change,
    ControllerState,
    change_states,
    changed_topics,
    commit,
    read_nodes,
    tell_brokers,
)
from barnabas.coordination.metadata.identity import PRODUCER_ID_MAX
from barnabas.coordination.metadata.image import BrokerImage, PartitionImage
from barnabas.coordination.metadata.node_reader import MalformedNode
from barnabas.coordination.metadata.tree import (
    PRODUCER_ID_BLOCK,
    PRODUCER_ID_BLOCK_SIZE,
    ProducerIdBlock,
    decode_producer_id_block,
    encode_producer_id_block,
)
from barnabas.coordination.planning.partition_changes import shutdown_election, without_replicas
from barnabas.coordination.store.contract import SetData
from barnabas.errors import (
    NONE,
    BrokerIdNotRegistered,
    BrokerNotAvailable,
    KafkaError,
    KafkaStorageError,
    StaleBrokerEpoch,
    UnknownServerError,
)
from barnabas.model import BrokerId, ProducerId, TopicPartition
from barnabas.protocol.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from barnabas.protocol.messages.allocate_producer_ids_response import AllocateProducerIdsResponse
from barnabas.protocol.messages.controlled_shutdown_request import ControlledShutdownRequest
from barnabas.protocol.messages.controlled_shutdown_response import (
    ControlledShutdownResponse,
    RemainingPartition,
)
from barnabas.protocol.messages.leader_and_isr_request import LeaderAndIsrRequest
from barnabas.protocol.messages.leader_and_isr_response import LeaderAndIsrResponse

log = logging.getLogger(__name__)

# A request without an epoch comes from an old release.
_UNKNOWN_BROKER_EPOCH = -1


def controlled_shutdown(
    state: ControllerState, request: ControlledShutdownRequest
) -> Change[ControlledShutdownResponse]:
    """Moves the leaders of a broker elsewhere and takes it out of the in-sync replicas.

    The answer has the partitions that it still leads. Partitions with one replica do not count.
    """
    broker_id = BrokerId(request.broker_id)
    broker = state.image.brokers.get(broker_id)
    if broker is None:
        return ControlledShutdownResponse(error_code=BrokerNotAvailable.code)
    if _UNKNOWN_BROKER_EPOCH < request.broker_epoch < broker.epoch:
        return ControlledShutdownResponse(error_code=StaleBrokerEpoch.code)
    log.info("Broker %d shuts down", broker_id)
    state.shutting_down.add(broker_id)
    led: list[TopicPartition] = []
    followed: list[TopicPartition] = []
    for at, partition in state.partitions():
        is_replicated = len(partition.replicas) > 1 and partition.has_state
        if is_replicated and broker_id in partition.replicas:
            (led if partition.leader == broker_id else followed).append(at)

    yield from _move_leaders(state, led)
    yield from _stop_following(state, broker, followed)
    remaining = [
        RemainingPartition(topic_name=at.topic, partition_index=at.partition)
        for at in led
        if (found := state.partition(at)) is not None and found.leader == broker_id
    ]
    return ControlledShutdownResponse(error_code=NONE, remaining_partitions=remaining)


def _move_leaders(state: ControllerState, led: Sequence[TopicPartition]) -> Change[None]:
    def elect(at: TopicPartition, partition: PartitionImage) -> PartitionImage:
        online = [each for each in partition.replicas if each in state.image.brokers]
        return shutdown_election(partition, online, state.shutting_down) or partition

    before = {at: state.partition(at) for at in led}
    yield from change_states(state, led, elect)
    changed = [at for at in led if state.partition(at) != before[at]]
    if changed:
        yield from tell_brokers(state, changed_topics(state, changed))


def _stop_following(
    state: ControllerState, broker: BrokerImage, followed: Sequence[TopicPartition]
) -> Change[None]:
    """The broker stops to fetch before the leaders do not wait for it any more."""
    stops: dict[str, list[tuple[int, int]]] = {}
    for at in followed:
        found = state.partition(at)
        if found is not None:
            stops.setdefault(at.topic, []).append((at.partition, found.leader_epoch))
    if not stops:
        return
    yield Send(broker.id, stop_replicas(state.image, broker, stops))
    yield from change_states(state, followed, lambda _, partition: without_replicas(partition, [broker.id]))
    yield from tell_brokers(
        state,
        changed_topics(state, followed),
        skips=lambda topic, index, replica: replica == broker.id,
    )


def ask_for_failed_replicas(state: ControllerState, brokers: Collection[BrokerId]) -> Change[None]:
    """Brokers have lost a log directory: they say in their answers which replicas were in it."""
    asked = set(brokers)
    hosted = [at for at, partition in state.partitions() if not asked.isdisjoint(partition.replicas)]
    if hosted:
        yield from tell_brokers(
            state, changed_topics(state, hosted), skips=lambda topic, index, replica: replica not in asked
        )


def take_roles_answer(
    state: ControllerState, broker_id: BrokerId, request: LeaderAndIsrRequest, response: LeaderAndIsrResponse
) -> Change[None]:
    """Replicas that a broker cannot serve are offline; those that it can serve again are not."""
    if response.error_code != NONE:
        log.error("Broker %d has refused its roles with error %d", broker_id, response.error_code)
        return
    if broker_id not in state.image.brokers:
        return
    offline, online = set(), set()
    names = state.image.topic_names
    answers = [(each.topic_name, each) for each in response.partition_errors]
    for topic in response.topics:
        answers += [(names.get(topic.topic_id, ""), each) for each in topic.partition_errors]
    for name, each in answers:
        if each.error_code == KafkaStorageError.code:
            offline.add(TopicPartition(name, each.partition_index))
        elif each.error_code == NONE:
            online.add(TopicPartition(name, each.partition_index))
    before = state.offline_replicas.get(broker_id, set())
    now = (before - online) | offline
    if now == before:
        return
    if now:
        state.offline_replicas[broker_id] = now
    else:
        state.offline_replicas.pop(broker_id, None)
    new = now - before
    if new:
        log.warning("Broker %d has %d replicas in failed log directories", broker_id, len(new))
        yield from take_offline(state, lambda at, replica: replica == broker_id and at in new)


def allocate_producer_ids(
    state: ControllerState, request: AllocateProducerIdsRequest
) -> Change[AllocateProducerIdsResponse]:
    broker_id = BrokerId(request.broker_id)
    broker = state.image.brokers.get(broker_id)
    if broker is None:
        return AllocateProducerIdsResponse(error_code=BrokerIdNotRegistered.code)
    if broker.epoch != request.broker_epoch:
        return AllocateProducerIdsResponse(error_code=StaleBrokerEpoch.code)
    failure: KafkaError | None = None
    for _ in range(ATTEMPTS_MAX):
        found = yield from read_nodes(state, [PRODUCER_ID_BLOCK])
        node = found.nodes[0]
        if node is None:
            return AllocateProducerIdsResponse(error_code=KafkaStorageError.code)
        try:
            first = decode_producer_id_block(node[0]).last + 1 if node[0] else 0
        except MalformedNode as error:
            log.error(
                "No producer ids can be allocated: %s. Mend the node: its block_end is the last id in use",
                error,
            )
            return AllocateProducerIdsResponse(error_code=UnknownServerError.code)
        last = ProducerId(first + PRODUCER_ID_BLOCK_SIZE - 1)
        if last > PRODUCER_ID_MAX:
            return AllocateProducerIdsResponse(error_code=UnknownServerError.code)
        block = ProducerIdBlock(broker_id=broker_id, first=ProducerId(first), last=last)
        write = SetData(PRODUCER_ID_BLOCK, encode_producer_id_block(block), node[1].version)
        try:
            yield from commit(state, [write])
        except KafkaError as error:
            # Brokers of old releases take blocks too, without the controller.
            if state.lost is not None:
                raise
            failure = error
            continue
        return AllocateProducerIdsResponse(
            producer_id_start=block.first, producer_id_len=block.last + 1 - block.first
        )
    assert failure is not None
    return AllocateProducerIdsResponse(error_code=failure.code)
