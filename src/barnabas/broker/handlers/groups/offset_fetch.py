"""OffsetFetch, versions 0 to 10: the committed offsets of groups.

- From version 2 on a client may ask for all partitions of a group, and an error is the group's.
- From version 7 on it may insist on offsets that no open transaction is about to change.
- From version 8 on a request asks about several groups, from version 10 on topics are given by their id.
- Many partitions are looked up in turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.requests.exchange import Answer, Exchange
from barnabas.broker.waiting.turns import AT_ONCE, STEP
from barnabas.coordination.metadata.image import MetadataImage
from barnabas.errors import NONE, KafkaError, UnknownTopicId
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

_FIRST_WITH_IDS: Final = 10


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
    unknown = [_name_topics(image, group) if has_ids else [] for group in groups]
    questions = [each for number, group in enumerate(groups) for each in _questions(number, group)]

    def finish(results: list[_Result]) -> OffsetFetchResponse:
        responses = _merged(groups, questions, results, version)
        if has_ids:
            for group, response, unknown_topics in zip(groups, responses, unknown, strict=True):
                if response.error_code == NONE:
                    _add_ids(image, group, response, unknown_topics)
        return response_of_groups(responses, version)

    return exchange.answer_in_turns(
        broker.turns, questions, lambda question: _fetch(broker, question.group, request), finish
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


def _questions(number: int, group: OffsetFetchRequestGroup) -> list[_Question]:
    topics = group.topics
    if topics is None or sum(len(topic.partition_indexes) + 1 for topic in topics) <= AT_ONCE:
        return [_Question(number, group, continues_topic=False)]
    return [
        _Question(number, _part(group, topic, start), continues_topic=start > 0)
        for topic in topics
        for start in range(0, max(len(topic.partition_indexes), 1), STEP)
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


def _fetch(broker: Broker, group: OffsetFetchRequestGroup, request: OffsetFetchRequest) -> _Result:
    try:
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


def _name_topics(image: MetadataImage, group: OffsetFetchRequestGroup) -> list[OffsetFetchRequestTopics]:
    """Takes topics with unknown ids out of the request, and gives the others their names."""
    if group.topics is None:
        return []
    unknown = [topic for topic in group.topics if topic.topic_id not in image.topic_names]
    group.topics = [topic for topic in group.topics if topic.topic_id in image.topic_names]
    for topic in group.topics:
        topic.name = image.topic_names[topic.topic_id]
    return unknown


def _add_ids(
    image: MetadataImage,
    group: OffsetFetchRequestGroup,
    response: OffsetFetchResponseGroup,
    unknown: Sequence[OffsetFetchRequestTopics],
) -> None:
    if group.topics is None:
        for topic in response.topics:
            found = image.topics.get(topic.name)
            if found is not None:
                topic.topic_id = found.id
        # A topic that is being deleted has no id any more.
        response.topics = [topic for topic in response.topics if topic.topic_id in image.topic_names]
    response.topics += [_unknown_topic(topic) for topic in unknown]


def _unknown_topic(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=-1, error_code=UnknownTopicId.code
            )
            for index in topic.partition_indexes
        ],
    )
