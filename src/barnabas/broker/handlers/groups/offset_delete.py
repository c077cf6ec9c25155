"""OffsetDelete, version 0: deletes offsets of a group in partitions that it does not consume any more."""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.groups.asking import caller_of
from barnabas.broker.handlers.groups.known_partitions import add_refused, take_known
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.requests.exchange import Answer, Exchange
from barnabas.errors import NONE, KafkaError, UnknownTopicOrPartition
from barnabas.protocol.messages.offset_delete_request import OffsetDeleteRequest, OffsetDeleteRequestTopic
from barnabas.protocol.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(
    broker: Broker, exchange: Exchange[OffsetDeleteResponse], request: OffsetDeleteRequest
) -> Answer[OffsetDeleteResponse]:
    request.topics, refused = take_known(broker.image, request.topics, _refuse)
    if refused and not request.topics:
        return OffsetDeleteResponse(topics=refused)
    try:
        shell = broker.groups.shell_of_named(request.group_id)
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)

    def answer(response: OffsetDeleteResponse) -> None:
        if response.error_code == NONE:
            add_refused(response.topics, refused)
        parked.answer(response)

    parked = exchange.park()
    shell.carry_out(shell.coordinator.offsets.delete(caller_of(exchange, answer), request))
    return parked


HANDLER: Final = Handler(OffsetDeleteRequest, OffsetDeleteResponse, handle)


def _refuse(topic: OffsetDeleteRequestTopic, unknown: list[int]) -> OffsetDeleteResponseTopic:
    code = UnknownTopicOrPartition.code
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(partition_index=index, error_code=code) for index in unknown
        ],
    )
