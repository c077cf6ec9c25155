"""Changes that delete topics.

A topic is marked for deletion first. From then on it is in no broker's metadata. Its replicas are stopped and their
logs deleted. When all brokers have confirmed this, the topic is removed from the store, its mark last. The next
controller, or the next start, completes a failed deletion.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from barnabas.coordination.controller.events import (
    Answered,
    Ask,
    DeleteTopics,
    ReadTree,
    StoreRefused,
    TreeRead,
)
from barnabas.coordination.controller.messages import stop_deleted_replicas
from barnabas.coordination.controller.state import (
    OPERATIONS_AT_ONCE,
    Change,
    ControllerState,
    commit,
    refusal,
    tell_brokers,
)
from barnabas.coordination.metadata.image import TopicImage
from barnabas.coordination.metadata.tree import config_path, delete_topic_path, encode_uuid, topic_path
from barnabas.coordination.store.contract import Create, Delete, Operation
from barnabas.errors import NONE, KafkaError, KafkaStorageError, UnknownTopicId, UnknownTopicOrPartition

log = logging.getLogger(__name__)


def delete_topics(state: ControllerState, request: DeleteTopics) -> Change[dict[str, KafkaError | None]]:
    names = list(dict.fromkeys(request.names))
    unknown = UnknownTopicOrPartition("This server does not host this topic-partition.")
    unknown_id = UnknownTopicId("This server does not host this topic ID.")
    results: dict[str, KafkaError | None] = {
        name: unknown_id if name in request.ids else unknown for name in names
    }
    topics = []
    for topic in (state.image.topics[name] for name in names if name in state.image.topics):
        try:
            if request.ids.get(topic.name, topic.id) != topic.id:
                raise unknown_id
            request.charge(len(topic.partitions))
            topics.append(topic)
        except KafkaError as refused:
            results[topic.name] = refused
    if not topics:
        return results
    yield from commit(state, [Create(delete_topic_path(topic.name)) for topic in topics])
    state.deleting.update((topic.name, topic) for topic in topics)
    state.image = state.image.without_topics(topic.name for topic in topics)
    yield from tell_brokers(state, deleted=topics)
    for topic in topics:
        topic_id = encode_uuid(topic.id)
        log.info(
            "Deleted topic %s with %s, topic id %s",
            topic.name,
            topic.size,
            topic_id,
            extra={"topic": topic.name, "topic_id": topic_id, "partitions": len(topic.partitions)},
        )
    results.update((yield from _finish(state, topics)))
    return results


def resume_deletions(state: ControllerState) -> Change[None]:
    """Continues the deletions of an earlier controller. A log in an offline directory has to wait."""
    if state.deleting:
        results = yield from _finish(state, list(state.deleting.values()))
        for name, error in results.items():
            if error is not None:
                log.error("Topic %s cannot be deleted yet: %s", name, error)


def _finish(state: ControllerState, topics: Sequence[TopicImage]) -> Change[dict[str, KafkaError | None]]:
    """Errors by topic: these topics are gone for clients, and not yet from disks or the store."""
    results = yield from _delete_logs(state, topics)
    try:
        yield from _remove_nodes(state, [name for name, error in results.items() if error is None])
    except KafkaError as failure:
        for name, error in results.items():
            if error is None and name in state.deleting:
                results[name] = failure
    return results


def _delete_logs(
    state: ControllerState, topics: Sequence[TopicImage]
) -> Change[dict[str, KafkaError | None]]:
    results: dict[str, KafkaError | None] = {topic.name: None for topic in topics}
    asked = {
        broker.id: (broker, request)
        for broker in state.image.brokers.values()
        if (request := stop_deleted_replicas(state.image, broker, topics)) is not None
    }
    if not asked:
        return results
    result = yield Ask({broker_id: request for broker_id, (_, request) in asked.items()})
    assert isinstance(result, Answered)
    for broker_id, response in result.responses.items():
        _, request = asked[broker_id]
        if response is None or response.error_code != NONE:
            why = "is gone" if response is None else f"answered with error {response.error_code}"
            failed = [each.topic_name for each in request.topic_states]
            results.update(dict.fromkeys(failed, KafkaStorageError(f"broker {broker_id} {why}")))
            continue
        for each in response.partition_errors:
            if each.error_code != NONE:
                results[each.topic_name] = KafkaStorageError(
                    f"broker {broker_id} cannot delete partition {each.partition_index}: error {each.error_code}"
                )
    return results


def _remove_nodes(state: ControllerState, names: Sequence[str]) -> Change[None]:
    """Removes topics from the store, each mark last. Many topics are read and removed in parts."""
    operations: list[Operation] = []
    removed: list[str] = []
    for name in names:
        result = yield ReadTree([topic_path(name), config_path("topics", name), delete_topic_path(name)])
        if isinstance(result, StoreRefused):
            raise refusal(state, result)
        assert isinstance(result, TreeRead)
        operations += [Delete(path) for path in result.paths]
        removed.append(name)
        if len(operations) >= OPERATIONS_AT_ONCE:
            yield from _remove(state, operations, removed)
            operations, removed = [], []
    yield from _remove(state, operations, removed)


def _remove(state: ControllerState, operations: Sequence[Operation], names: Sequence[str]) -> Change[None]:
    yield from commit(state, operations)
    for name in names:
        state.configured.discard(name)
        del state.deleting[name]
