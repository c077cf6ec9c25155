"""Partitions that older tools have added to the node of a topic, without asking the controller."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from barnabas.coordination.controller.creation import read_in_topics
from barnabas.coordination.controller.events import ReadTopics, StoreRefused, TopicsRead
from barnabas.coordination.controller.messages import Changed
from barnabas.coordination.controller.state import (
    Change,
    ControllerState,
    commit,
    refusal,
    tell_brokers,
)
from barnabas.coordination.controller.takeover import plan_topic
from barnabas.coordination.metadata.image import TopicImage
from barnabas.coordination.metadata.nodes import topic_node
from barnabas.coordination.metadata.tree import topic_path
from barnabas.coordination.store.contract import Operation, SetData
from barnabas.value import replace

log = logging.getLogger(__name__)


def take_in_partitions(state: ControllerState, counts: Mapping[str, int]) -> Change[None]:
    """Gives states to partitions that the controller does not know yet. A topic that is being deleted does not grow."""
    mended = [name for name in counts if name in state.unreadable]
    if mended:
        yield from read_in_topics(state, mended)
    restored: list[Operation] = []
    grown = []
    for name, count in counts.items():
        topic = _deleted(state, name)
        if topic is not None:
            if count > len(topic.partitions):
                log.warning("Topic %s gets no more partitions, since it is being deleted", name)
                restored.append(SetData(topic_path(name), topic_node(topic)))
        elif name in state.image.topics and count > len(state.image.topics[name].partitions):
            grown.append(name)
    yield from commit(state, restored)
    if not grown:
        return
    result = yield ReadTopics(grown)
    if isinstance(result, StoreRefused):
        raise refusal(state, result.error)
    assert isinstance(result, TopicsRead)
    repairs: list[Operation] = []
    changed = []
    for name, stored in result.topics.items():
        known = state.image.topics[name]
        first = len(known.partitions)
        planned = plan_topic(state, name, stored._replace(topic_id=known.id), repairs)
        topic = replace(known, partitions=(*known.partitions, *planned.partitions[first:]))
        if stored.topic_id != known.id:
            # Tools from before Kafka 2.8 know no ids, and leave them out.
            repairs.append(SetData(topic_path(name), topic_node(topic)))
        changed.append(Changed(topic, range(first, len(topic.partitions))))
    yield from commit(state, repairs)
    state.image = state.image.with_topics(topic for topic, _ in changed)
    yield from tell_brokers(state, changed, is_new=True)
    for topic, _ in changed:
        log.info("Topic %s has %s now: its node says so", topic.name, topic.size)


def _deleted(state: ControllerState, name: str) -> TopicImage | None:
    """A topic that is being deleted."""
    deletion = state.deleting.get(name)
    return None if deletion is None else deletion.topic
