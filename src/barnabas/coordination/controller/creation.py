"""Changes that make topics and partitions."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from barnabas.coordination.controller.events import (
    AdoptTopics,
    CreatePartitions,
    CreateTopics,
    ReadTopics,
    StoreRefused,
    TopicsRead,
)
from barnabas.coordination.controller.messages import Changed, whole
from barnabas.coordination.controller.state import (
    Change,
    ControllerState,
    commit,
    refusal,
    tell_brokers,
)
from barnabas.coordination.controller.takeover import plan_topic
from barnabas.coordination.metadata.image import TopicImage
from barnabas.coordination.metadata.nodes import create_partitions as partition_nodes
from barnabas.coordination.metadata.nodes import create_topic, topic_node
from barnabas.coordination.metadata.tree import config_path, encode_config, encode_uuid, topic_path
from barnabas.coordination.planning.partition_changes import initial_state
from barnabas.coordination.planning.topic_adoption import plan_adoption
from barnabas.coordination.planning.topic_creation import (
    Planned,
    PlannedTopic,
    TopicPlanner,
    plan_partitions,
    repeated_names,
)
from barnabas.coordination.store.contract import Create, Operation, SetData
from barnabas.errors import InvalidRequest, InvalidTopicException, KafkaError
from barnabas.model import TopicPartition
from barnabas.value import replace

log = logging.getLogger(__name__)


def create_topics(state: ControllerState, request: CreateTopics) -> Change[list[Planned]]:
    planner = TopicPlanner(
        state.image,
        state.settings.current,
        state.rng,
        deleting=state.deleting.keys(),
        unreadable=state.unreadable,
        charge=request.charge,
    )
    planned = planner.plan(request.new)
    if not request.validate_only:
        topics = [each for each in planned if isinstance(each, PlannedTopic)]
        stored = yield from _store_topics(state, topics, is_new=True)
        planned = [
            stored.get(each.topic.name, each) if isinstance(each, PlannedTopic) else each for each in planned
        ]
    return planned


def adopt_topics(state: ControllerState, request: AdoptTopics) -> Change[list[TopicImage]]:
    unknown = {at: each for at, each in request.found.items() if at.topic not in state.deleting}
    planned = plan_adoption(state.image, request.broker_id, state.settings.current, unknown, state.rng)
    # The logs exist already.
    stored = yield from _store_topics(state, planned, is_new=False)
    return [each.topic for each in stored.values()]


def create_partitions(
    state: ControllerState, request: CreatePartitions
) -> Change[list[TopicImage | KafkaError]]:
    repeated = repeated_names(each.name for each in request.new)
    results: list[TopicImage | KafkaError] = []
    grown: list[Changed] = []
    for each in request.new:
        try:
            if each.name in repeated:
                raise InvalidRequest("Duplicate topic name.")
            if each.name in state.deleting:
                raise InvalidTopicException("The topic is queued for deletion.")
            topic = plan_partitions(state.image, each, state.rng)
            first = len(state.image.topics[topic.name].partitions)
            topic = _with_states(state, topic, first)
            request.charge(len(topic.partitions) - first)
        except KafkaError as error:
            results.append(error)
            continue
        results.append(topic)
        grown.append(Changed(topic, range(first, len(topic.partitions))))
    if grown and not request.validate_only:
        yield from commit(state, (operation for each in grown for operation in _growth(state, each)))
        state.image = state.image.with_topics(each.topic for each in grown)
        yield from tell_brokers(state, grown, is_new=True)
        for topic, _ in grown:
            log.info("Topic %s has %s now", topic.name, topic.size)
    return results


def take_in_topics(state: ControllerState, names: Sequence[str]) -> Change[None]:
    """Completes topics that brokers have created without the controller: it gives them partition states.

    Topics that somebody has removed from the store without the controller are forgotten, as in Apache Kafka.
    """
    state.unreadable.intersection_update(names)
    gone = state.image.topics.keys() - set(names)
    if gone:
        log.warning("Topics %s are not in the store any more: somebody has removed them", sorted(gone))
        state.image = state.image.without_topics(gone)
    known = (state.image.topics, state.deleting, state.unreadable)
    unknown = [name for name in names if not any(name in each for each in known)]
    if unknown:
        yield from read_in_topics(state, unknown)


def read_in_topics(state: ControllerState, names: Sequence[str]) -> Change[None]:
    """Completes topics that the controller does not know yet. Those that it cannot read wait for a change."""
    result = yield ReadTopics(names)
    if isinstance(result, StoreRefused):
        raise refusal(state, result.error)
    assert isinstance(result, TopicsRead)
    state.unreadable.difference_update(names)
    state.unreadable.update(result.unreadable)
    yield from _settle_features(state)
    topics: list[TopicImage] = []
    repairs: list[Operation] = []
    for name, stored in result.topics.items():
        topic = plan_topic(state, name, stored, repairs)
        topics.append(topic)
        state.configured.add(name)
    yield from commit(state, repairs)
    state.image = state.image.with_topics(topics)
    yield from tell_brokers(state, whole(topics), is_new=True)
    for topic in topics:
        _log_creation(topic)


def _settle_features(state: ControllerState) -> Change[None]:
    """Before the first topic, and so before the first record that a broker without the features would misread."""
    if state.are_features_open:
        from barnabas.coordination.controller.features import settle_features

        yield from settle_features(state, state.image.brokers, is_first_topic=True)


def _store_topics(
    state: ControllerState, planned: Sequence[PlannedTopic], *, is_new: bool
) -> Change[dict[str, PlannedTopic]]:
    """Returns the topics by name, with the states that they got."""
    if not planned:
        return {}
    yield from _settle_features(state)
    planned = [PlannedTopic(_with_states(state, each.topic), each.configs) for each in planned]
    yield from commit(state, (operation for each in planned for operation in _creation(state, each)))
    topics = [each.topic for each in planned]
    state.image = state.image.with_topics(topics)
    yield from tell_brokers(state, whole(topics), is_new=is_new)
    for each in planned:
        _log_creation(each.topic, dict(each.configs))
    return {each.topic.name: each for each in planned}


def _with_states(state: ControllerState, topic: TopicImage, first: int = 0) -> TopicImage:
    """The topic with the first states of its partitions from this one on: replicas that are not online are missing."""
    epoch = state.claim.controller_epoch
    partitions = list(topic.partitions)
    for index in range(first, len(partitions)):
        partition = replace(partitions[index], controller_epoch=epoch)
        online = state.online(TopicPartition(topic.name, index), partition)
        partitions[index] = initial_state(partition, online)
    return replace(topic, partitions=tuple(partitions))


def _creation(state: ControllerState, planned: PlannedTopic) -> Iterator[Operation]:
    name = planned.topic.name
    path, data = config_path("topics", name), encode_config(planned.configs)
    # A topic that was deleted halfway may have left its settings.
    yield SetData(path, data) if name in state.configured else Create(path, data)
    yield from create_topic(planned.topic, state.claim.controller_epoch)


def _growth(state: ControllerState, grown: Changed) -> Iterator[Operation]:
    topic = grown.topic
    yield SetData(topic_path(topic.name), topic_node(topic))
    yield from partition_nodes(topic, grown.indexes[0], state.claim.controller_epoch)


def _log_creation(topic: TopicImage, configs: dict[str, str] | None = None) -> None:
    topic_id = encode_uuid(topic.id)
    log.info(
        "Created topic %s with %s, topic id %s%s",
        topic.name,
        topic.size,
        topic_id,
        "" if configs is None else f", settings {configs}",
        extra={"topic": topic.name, "topic_id": topic_id, "partitions": len(topic.partitions)},
    )
