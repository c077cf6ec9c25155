"""OffsetDelete, version 0: a group forgets how far it has come in partitions that it does not read any more."""

from __future__ import annotations

from functools import partial
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.groups.asking import caller_of
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.requests.exchange import Answer, Exchange, Parked
from barnabas.coordination.metadata.image import MetadataImage
from barnabas.errors import NONE, KafkaError, UnknownTopicOrPartition
from barnabas.protocol.messages.offset_delete_request import OffsetDeleteRequest
from barnabas.protocol.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(
    broker: Broker, exchange: Exchange[OffsetDeleteResponse], request: OffsetDeleteRequest
) -> Answer[OffsetDeleteResponse]:
    refused = _refuse_unknown(broker.image, request)
    if refused and not request.topics:
        return OffsetDeleteResponse(topics=refused)
    try:
        shell = broker.groups.shell_of_named(request.group_id)
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)
    parked = exchange.park()
    caller = caller_of(exchange, partial(_answer_with, parked, refused))
    shell.carry_out(shell.coordinator.offsets.delete(caller, request))
    return parked


HANDLER: Final = Handler(OffsetDeleteRequest, OffsetDeleteResponse, handle)


def _refuse_unknown(image: MetadataImage, request: OffsetDeleteRequest) -> list[OffsetDeleteResponseTopic]:
    """Leaves in the request what there is, and returns the answers for the rest."""
    refused = []
    known = []
    for topic in request.topics:
        found = image.topics.get(topic.name)
        count = 0 if found is None else len(found.partitions)
        unknown = [each for each in topic.partitions if not 0 <= each.partition_index < count]
        if unknown:
            refused.append(
                OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetDeleteResponsePartition(
                            partition_index=each.partition_index, error_code=UnknownTopicOrPartition.code
                        )
                        for each in unknown
                    ],
                )
            )
            topic.partitions = [each for each in topic.partitions if 0 <= each.partition_index < count]
        if topic.partitions or not unknown:
            known.append(topic)
    request.topics = known
    return refused


def _answer_with(
    parked: Parked[OffsetDeleteResponse],
    refused: list[OffsetDeleteResponseTopic],
    response: OffsetDeleteResponse,
) -> None:
    if response.error_code == NONE:
        topics = {topic.name: topic for topic in response.topics}
        for topic in refused:
            answered = topics.get(topic.name)
            if answered is None:
                response.topics.append(topic)
            else:
                answered.partitions += topic.partitions
    parked.answer(response)
