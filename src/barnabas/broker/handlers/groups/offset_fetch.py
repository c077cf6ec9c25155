"""OffsetFetch, versions 0 to 10: the committed offsets of groups.

- From version 2 on a client may ask for all partitions of a group, and an error is the group's.
- From version 7 on it may insist on offsets that no open transaction is about to change.
- From version 8 on a request asks about several groups, from version 10 on topics are given by their id.
- A client needs DESCRIBE on the group and on each topic. All topics of a group are those that it may describe.
- Many partitions are looked up in turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.handlers.permissions import Permission, authorize, denies
from barnabas.broker.requests.exchange import Answer, AnyExchange, Exchange
from barnabas.broker.waiting.turns import AT_ONCE, STEP
from barnabas.coordination.metadata.image import MetadataImage
from barnabas.errors import NONE, KafkaError, TopicAuthorizationFailed, UnknownTopicId
from barnabas.groups.offset_fetch_forms import group_error, requested_groups, response_of_groups
from barnabas.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from barnabas.security.acls import DESCRIBE, GROUP

_FIRST_WITH_IDS: Final = 10
# All offsets of a group that has no more of them are looked up together.
ALL_AT_ONCE: Final = 1_000


class _Question(NamedTuple):
    """A group of the request, by its number, with some of the partitions that are named for it."""

    number: int
    group: OffsetFetchRequestGroup
    # Whether the partitions are of the last topic of the question before.
    continues_topic: bool


_Result = OffsetFetchResponseGroup | KafkaError


def handle(
    broker: Broker, exchange: Exchange[OffsetFetchResponse], request: OffsetFetchRequest
) -> Answer[OffsetFetchResponse]:
    image = broker.image
    version = exchange.version
    groups = _requested_once(request, version)
    has_ids = version >= _FIRST_WITH_IDS
    permission = Permission(broker, exchange, DESCRIBE)
    refused = [_take_refused(broker, exchange, group, permission) for group in groups]
    questions = [each for number, group in enumerate(groups) for each in _questions(broker, number, group)]

    def finish(results: list[_Result]) -> OffsetFetchResponse:
        responses = _merged(groups, questions, results, version)
        for group, response, topics in zip(groups, responses, refused, strict=True):
            if response.error_code == NONE:
                if group.topics is None:
                    response.topics = [topic for topic in response.topics if topic.name in permission]
                    if has_ids:
                        _add_ids(image, response)
                response.topics += topics
        return response_of_groups(responses, version)

    return exchange.answer_in_turns(
        broker.turns, questions, lambda question: _fetch(broker, exchange, question.group, request), finish
    )


HANDLER: Final = Handler(OffsetFetchRequest, OffsetFetchResponse, handle)


def _requested_once(request: OffsetFetchRequest, version: int) -> list[OffsetFetchRequestGroup]:
    """A group that is named several times for all its offsets is answered once."""
    groups = []
    complete: set[str] = set()
    for group in requested_groups(request, version):
        if group.topics is None:
            if group.group_id in complete:
                continue
            complete.add(group.group_id)
        groups.append(group)
    return groups


def _questions(broker: Broker, number: int, group: OffsetFetchRequestGroup) -> list[_Question]:
    topics = group.topics if group.topics is not None else _all_topics(broker, group.group_id)
    if topics is None or sum(len(topic.partition_indexes) + 1 for topic in topics) <= AT_ONCE:
        return [_Question(number, group, continues_topic=False)]
    return [
        _Question(number, _part(group, topic, start), continues_topic=start > 0)
        for topic in topics
        for start in range(0, max(len(topic.partition_indexes), 1), STEP)
    ]


def _all_topics(broker: Broker, group_id: str) -> list[OffsetFetchRequestTopics] | None:
    """The partitions of a group that has offsets for many of them."""
    try:
        offsets = broker.groups.shell_of(group_id).coordinator.offsets
    except KafkaError:
        return None
    if offsets.count(group_id) <= ALL_AT_ONCE:
        return None
    return [
        OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
        for name, indexes in offsets.committed_partitions(group_id).items()
    ]


def _part(
    group: OffsetFetchRequestGroup, topic: OffsetFetchRequestTopics, start: int
) -> OffsetFetchRequestGroup:
    part = OffsetFetchRequestTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_indexes=topic.partition_indexes[start : start + STEP],
    )
    return OffsetFetchRequestGroup(
        group_id=group.group_id, member_id=group.member_id, member_epoch=group.member_epoch, topics=[part]
    )


def _fetch(
    broker: Broker, exchange: AnyExchange, group: OffsetFetchRequestGroup, request: OffsetFetchRequest
) -> _Result:
    try:
        authorize(broker, exchange, DESCRIBE, GROUP, group.group_id)
        shell = broker.groups.shell_of(group.group_id)
        return shell.coordinator.offsets.fetch(group, require_stable=request.require_stable)
    except KafkaError as error:
        return error


def _merged(
    groups: Sequence[OffsetFetchRequestGroup],
    questions: Sequence[_Question],
    results: Sequence[_Result],
    version: int,
) -> list[OffsetFetchResponseGroup]:
    """One response for each group. An error of any part is the group's."""
    merged = [OffsetFetchResponseGroup(group_id=group.group_id) for group in groups]
    for question, result in zip(questions, results, strict=True):
        response = merged[question.number]
        if response.error_code != NONE:
            continue
        if isinstance(result, KafkaError):
            merged[question.number] = group_error(groups[question.number], result.code, version)
        elif question.continues_topic:
            response.topics[-1].partitions += result.topics[0].partitions
        else:
            response.topics += result.topics
    return merged


def _take_refused(
    broker: Broker, exchange: AnyExchange, group: OffsetFetchRequestGroup, permission: Permission
) -> list[OffsetFetchResponseTopics]:
    """Takes topics out of the request that are unknown or that the client may not describe; returns their answers.

    Topics that are given by their ids get their names.
    """
    # A group that the client may not describe is refused with all of its topics.
    if group.topics is None or denies(broker, exchange, DESCRIBE, GROUP, group.group_id, is_logged=False):
        return []
    names = broker.image.topic_names
    taken, refused = [], []
    for topic in group.topics:
        if exchange.version >= _FIRST_WITH_IDS:
            topic.name = names.get(topic.topic_id, "")
            if not topic.name:
                refused.append(_refused_topic(topic, UnknownTopicId.code))
                continue
        if topic.name in permission:
            taken.append(topic)
        else:
            refused.append(_refused_topic(topic, TopicAuthorizationFailed.code))
    group.topics = taken
    return refused


def _add_ids(image: MetadataImage, response: OffsetFetchResponseGroup) -> None:
    for topic in response.topics:
        found = image.topics.get(topic.name)
        if found is not None:
            topic.topic_id = found.id
    # A topic that is being deleted has no id any more.
    response.topics = [topic for topic in response.topics if topic.topic_id in image.topic_names]


def _refused_topic(topic: OffsetFetchRequestTopics, code: int) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, error_code=code)
            for index in topic.partition_indexes
        ],
    )
