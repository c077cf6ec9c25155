"""OffsetDelete, version 0: deletes offsets of a group in partitions that it does not consume any more."""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.groups.asking import caller_of
from barnabas.broker.handlers.groups.known_partitions import add_refused, take_known, take_permitted
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.handlers.permissions import Permission, denies
from barnabas.broker.requests.exchange import Answer, Exchange
from barnabas.errors import NONE, GroupAuthorizationFailed, KafkaError, UnknownTopicOrPartition
from barnabas.protocol.messages.offset_delete_request import OffsetDeleteRequest, OffsetDeleteRequestTopic
from barnabas.protocol.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from barnabas.security.acls import DELETE, GROUP, READ


def handle(
    broker: Broker, exchange: Exchange[OffsetDeleteResponse], request: OffsetDeleteRequest
) -> Answer[OffsetDeleteResponse]:
    if denies(broker, exchange, DELETE, GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=GroupAuthorizationFailed.code)
    request.topics, denied = take_permitted(Permission(broker, exchange, READ), request.topics, _refusal)
    request.topics, refused = take_known(broker.image, request.topics, _refuse)
    refused += denied
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
    return _refusal(topic, unknown, UnknownTopicOrPartition.code)


def _refusal(topic: OffsetDeleteRequestTopic, indexes: list[int], code: int) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(partition_index=index, error_code=code) for index in indexes
        ],
    )
