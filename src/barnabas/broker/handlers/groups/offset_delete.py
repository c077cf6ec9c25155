"""OffsetDelete, version 0: a group forgets how far it has come in partitions that it does not read any more."""

from __future__ import annotations

from functools import partial

from barnabas.broker.broker import Broker
from barnabas.broker.requests.exchange import Exchange
from barnabas.broker.requests.group_caller import caller_of
from barnabas.coordination.metadata.image import MetadataImage
from barnabas.errors import NONE, KafkaError, UnknownTopicOrPartition
from barnabas.protocol.message import Message
from barnabas.protocol.messages.offset_delete_request import OffsetDeleteRequest
from barnabas.protocol.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(broker: Broker, exchange: Exchange, request: OffsetDeleteRequest) -> OffsetDeleteResponse | None:
    refused = _refuse_unknown(broker.image, request)
    if refused and not request.topics:
        return OffsetDeleteResponse(topics=refused)
    try:
        shell = broker.groups.shell_of_named(request.group_id)
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)
    caller = caller_of(exchange, partial(_respond, exchange, refused))
    shell.carry_out(shell.coordinator.offsets.delete(caller, request))
    return None


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


def _respond(exchange: Exchange, refused: list[OffsetDeleteResponseTopic], response: Message) -> None:
    assert isinstance(response, OffsetDeleteResponse)
    if response.error_code == NONE:
        topics = {topic.name: topic for topic in response.topics}
        for topic in refused:
            answered = topics.get(topic.name)
            if answered is None:
                response.topics.append(topic)
            else:
                answered.partitions += topic.partitions
    exchange.respond(response)
