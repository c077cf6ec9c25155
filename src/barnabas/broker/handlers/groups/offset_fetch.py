"""OffsetFetch, versions 0 to 10: how far groups have come.

- From version 2 on a client may ask for all partitions of a group, and an error is the group's.
- From version 7 on it may insist on offsets that no open transaction is about to change.
- From version 8 on several groups are asked about, from version 10 on topics are given by their id.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.coordination.metadata.image import MetadataImage
from barnabas.errors import KafkaError, UnknownTopicId
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


def handle(broker: Broker, exchange: AnyExchange, request: OffsetFetchRequest) -> OffsetFetchResponse:
    version = exchange.version
    groups = []
    told_all: set[str] = set()
    for asked in requested_groups(request, version):
        if asked.topics is None:
            # All offsets of a group are told once, however often they are asked for.
            if asked.group_id in told_all:
                continue
            told_all.add(asked.group_id)
        try:
            if version >= _FIRST_WITH_IDS:
                groups.append(_fetch_by_id(broker, asked, require_stable=request.require_stable))
            else:
                groups.append(_fetch(broker, asked, require_stable=request.require_stable))
        except KafkaError as error:
            groups.append(group_error(asked, error.code, version))
    return response_of_groups(groups, version)


HANDLER: Final = Handler(OffsetFetchRequest, OffsetFetchResponse, handle)


def _fetch(
    broker: Broker, asked: OffsetFetchRequestGroup, *, require_stable: bool
) -> OffsetFetchResponseGroup:
    shell = broker.groups.shell_of(asked.group_id)
    return shell.coordinator.offsets.fetch(asked, require_stable=require_stable)


def _fetch_by_id(
    broker: Broker, asked: OffsetFetchRequestGroup, *, require_stable: bool
) -> OffsetFetchResponseGroup:
    image = broker.image
    unknown = _name_topics(image, asked)
    response = _fetch(broker, asked, require_stable=require_stable)
    if asked.topics is None:
        for topic in response.topics:
            found = image.topics.get(topic.name)
            if found is not None:
                topic.topic_id = found.id
        # A topic that is just being deleted has no id to be told by.
        response.topics = [topic for topic in response.topics if topic.topic_id in image.topic_names]
    response.topics += [_unknown_topic(topic) for topic in unknown]
    return response


def _name_topics(image: MetadataImage, asked: OffsetFetchRequestGroup) -> list[OffsetFetchRequestTopics]:
    """Takes topics with unknown ids out of the request, and gives the others their names."""
    if asked.topics is None:
        return []
    unknown = [topic for topic in asked.topics if topic.topic_id not in image.topic_names]
    asked.topics = [topic for topic in asked.topics if topic.topic_id in image.topic_names]
    for topic in asked.topics:
        topic.name = image.topic_names[topic.topic_id]
    return unknown


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
