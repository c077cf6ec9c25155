"""Changes that delete topics.

A topic is marked for deletion first. From then on it is in no broker's metadata. Its replicas are stopped and their
logs deleted. When all brokers have confirmed this, the topic is removed from the store, its mark last. The next
controller, or the next start, completes a failed deletion.

A replica whose broker is gone, or cannot delete its log, halts the deletion until a broker comes.

The requester gets its reply when the topic is in no metadata, and when the broker in this process has deleted its logs:
other brokers may take their time.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from barnabas.coordination.controller.events import DeleteTopics, ReadTree, Send, StoreRefused, TreeRead
from barnabas.coordination.controller.messages import EPOCH_DURING_DELETE, stop_replicas
from barnabas.coordination.controller.state import (
    OPERATIONS_AT_ONCE,
    Change,
    ControllerState,
    Deletion,
    commit,
    read_nodes,
    refusal,
    tell_brokers,
)
from barnabas.coordination.metadata.image import TopicImage
from barnabas.coordination.metadata.tree import config_path, delete_topic_path, encode_uuid, topic_path
from barnabas.coordination.store.contract import Create, Delete, Operation
from barnabas.errors import (
    NONE,
    KafkaError,
    KafkaStorageError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.model import BrokerId
from barnabas.protocol.messages.stop_replica_request import StopReplicaRequest
from barnabas.protocol.messages.stop_replica_response import StopReplicaResponse

log = logging.getLogger(__name__)

DeletionResults = dict[str, KafkaError | None]


class Deferred(NamedTuple):
    """The outcome of a request that is complete when the deletions of these topics are, as far as they matter here.

    `outcome` is a map of errors by topic, to which these are added, or something else.
    """

    names: Collection[str]
    outcome: DeletionResults | None


def delete_topics(state: ControllerState, request: DeleteTopics) -> Change[Deferred]:
    names = list(dict.fromkeys(request.names))
    unknown = UnknownTopicOrPartition("This server does not host this topic-partition.")
    unknown_id = UnknownTopicId("This server does not host this topic ID.")
    results: DeletionResults = {name: unknown_id if name in request.ids else unknown for name in names}
    topics = []
    for topic in (state.image.topics[name] for name in names if name in state.image.topics):
        try:
            if request.ids.get(topic.name, topic.id) != topic.id:
                raise unknown_id
            request.charge(len(topic.partitions))
            topics.append(topic)
        except KafkaError as refused:
            results[topic.name] = refused
    yield from _mark(state, [topic.name for topic in topics])
    for topic in topics:
        topic_id = encode_uuid(topic.id)
        log.info(
            "Deleted topic %s with %s, topic id %s",
            topic.name,
            topic.size,
            topic_id,
            extra={"topic": topic.name, "topic_id": topic_id, "partitions": len(topic.partitions)},
        )
    yield from begin_deletions(state, [topic.name for topic in topics])
    return Deferred([topic.name for topic in topics], results)


def _mark(state: ControllerState, names: Sequence[str]) -> Change[None]:
    """Marks topics as being deleted. Somebody else may have marked some of them a moment ago."""
    marks = [Create(delete_topic_path(name)) for name in names]
    try:
        yield from commit(state, marks)
    except KafkaError:
        if state.lost is not None:
            raise
        found = yield from read_nodes(state, [mark.path for mark in marks])
        missing = [mark for mark, node in zip(marks, found.nodes, strict=True) if node is None]
        if missing == marks:
            raise
        yield from commit(state, missing)


def take_in_marks(state: ControllerState, names: Collection[str]) -> Change[None]:
    """Topics that others have marked for deletion."""
    gone = [name for name in names if name not in state.image.topics and name not in state.deleting]
    if gone:
        yield from commit(state, [Delete(delete_topic_path(name)) for name in sorted(gone)], leaves_full=True)
    marked = [name for name in names if name in state.image.topics]
    if not marked:
        return
    if state.settings.current.delete_topic_enable:
        yield from begin_deletions(state, marked)
    else:
        log.info("Topics %s are not deleted, since delete.topic.enable is false", marked)
        yield from commit(state, [Delete(delete_topic_path(name)) for name in marked], leaves_full=True)


def begin_deletions(state: ControllerState, names: Iterable[str]) -> Change[None]:
    """Deletes marked topics of the image, also those that are being reassigned, as Apache Kafka does."""
    topics = [state.image.topics[name] for name in names]
    if not topics:
        return
    state.image = state.image.without_topics(topic.name for topic in topics)
    for topic in topics:
        state.deleting[topic.name] = Deletion(topic)
    yield from tell_brokers(state, deleted=topics)
    yield from _stop_replicas(state, topics)
    yield from _finish(state, [topic.name for topic in topics])


def resume_deletions(state: ControllerState, came: Collection[BrokerId] = ()) -> Change[None]:
    """Asks brokers again that could not delete before, and those that came: they do not know what they were asked."""
    if state.deleting:
        for deletion in state.deleting.values():
            deletion.asked -= {each for each in deletion.asked if each[1] in came}
        topics = [deletion.topic for deletion in state.deleting.values()]
        yield from _stop_replicas(state, topics)
        yield from _finish(state, [topic.name for topic in topics])


def take_stopped(
    state: ControllerState,
    broker_id: BrokerId,
    request: StopReplicaRequest,
    response: StopReplicaResponse | None,
) -> Change[None]:
    """The answer of a broker that was asked to delete replicas."""
    code = None if response is None else response.error_code
    errors = {} if response is None else _errors(response)
    done = []
    for topic in request.topic_states:
        deletion = state.deleting.get(topic.topic_name)
        if deletion is None:
            continue
        for each in topic.partition_states:
            replica = (each.partition_index, broker_id)
            if not each.delete_partition or replica not in deletion.asked:
                continue
            deletion.asked.discard(replica)
            error = code or errors.get((topic.topic_name, each.partition_index), NONE)
            if code is not None and error == NONE:
                deletion.remaining.discard(replica)
                continue
            why = "is gone" if code is None else f"answered with error {error}"
            problem = f"broker {broker_id} {why}"
            log.error("Topic %s cannot be deleted yet: %s", topic.topic_name, problem)
            if broker_id == state.image.controller_id:
                deletion.error = KafkaStorageError(problem)
        done.append(topic.topic_name)
    yield from _finish(state, done)


def settled(state: ControllerState, deferred: Deferred) -> bool:
    own = state.image.controller_id
    for name in deferred.names:
        deletion = state.deleting.get(name)
        if deletion is not None and any(each[1] == own for each in deletion.asked):
            return False
    return True


def outcome_of(state: ControllerState, deferred: Deferred) -> DeletionResults | None:
    if deferred.outcome is not None:
        for name in deferred.names:
            deletion = state.deleting.get(name)
            deferred.outcome[name] = None if deletion is None else deletion.error
    return deferred.outcome


def _errors(response: StopReplicaResponse) -> dict[tuple[str, int], int]:
    return {(each.topic_name, each.partition_index): each.error_code for each in response.partition_errors}


def _stop_replicas(state: ControllerState, topics: Sequence[TopicImage]) -> Change[None]:
    """Asks each broker once for all of its replicas of these topics that are still there.

    All of them are stopped before the first is deleted: a follower does not fetch what its leader has deleted.
    """
    requests = []
    for broker in state.image.brokers.values():
        stops: dict[str, list[tuple[int, int]]] = {}
        for topic in topics:
            deletion = state.deleting[topic.name]
            for index, _ in enumerate(topic.partitions):
                replica = (index, broker.id)
                if replica in deletion.remaining and replica not in deletion.asked:
                    deletion.asked.add(replica)
                    stops.setdefault(topic.name, []).append((index, EPOCH_DURING_DELETE))
        if stops:
            requests.append((broker, stops))
    for delete in (False, True):
        for broker, stops in requests:
            yield Send(broker.id, stop_replicas(state.image, broker, stops, delete=delete))


def _finish(state: ControllerState, names: Iterable[str]) -> Change[None]:
    """Removes topics from the store that have no replica any more."""
    done = [name for name in names if name in state.deleting and not state.deleting[name].remaining]
    try:
        yield from _remove_nodes(state, done)
    except KafkaError as failure:
        log.error("Topics %s cannot be removed from the store yet: %s", done, failure)
        for name in done:
            if name in state.deleting:
                state.deleting[name].error = failure


def _remove_nodes(state: ControllerState, names: Sequence[str]) -> Change[None]:
    """Removes topics from the store, each mark last. Many topics are read and removed in parts."""
    operations: list[Operation] = []
    removed: list[str] = []
    for name in names:
        result = yield ReadTree([topic_path(name), config_path("topics", name), delete_topic_path(name)])
        if isinstance(result, StoreRefused):
            raise refusal(state, result.error)
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
    # A topic of the same name that comes later is not offline.
    for failed in state.offline_replicas.values():
        failed.difference_update([at for at in failed if at.topic in names])
