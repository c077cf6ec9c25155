"""ConsumerGroupHeartbeat, versions 0 to 1: a member of a consumer group joins, stays alive and leaves.

From version 1 on a member chooses its id, and may subscribe by a regular expression. See `groups.consumer_membership`.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.groups.asking import ask
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.requests.exchange import Answer, Exchange
from barnabas.errors import InvalidRequest, KafkaError, UnsupportedVersion
from barnabas.groups.settings import CONSUMER
from barnabas.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse


def handle(
    broker: Broker, exchange: Exchange[ConsumerGroupHeartbeatResponse], request: ConsumerGroupHeartbeatRequest
) -> Answer[ConsumerGroupHeartbeatResponse]:
    try:
        if not broker.groups.speaks(CONSUMER):
            raise UnsupportedVersion("group.coordinator.rebalance.protocols does not have it")
        if not request.group_id:
            raise InvalidRequest("GroupId can't be empty.")
        shell = broker.groups.shell_of(request.group_id)
    except KafkaError as error:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=str(error))
    return ask(exchange, shell, shell.coordinator.consumers.heartbeat, request, broker.now_ms)


HANDLER: Final = Handler(ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, handle)
