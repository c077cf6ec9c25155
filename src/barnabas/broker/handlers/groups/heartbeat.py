"""Heartbeat, versions 0 to 4: a member is alive, and learns whether its group rebalances.

While the group is being loaded every heartbeat succeeds, since nothing speaks against the member.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.groups.asking import ask
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.handlers.permissions import authorize
from barnabas.broker.requests.exchange import Answer, Exchange
from barnabas.errors import CoordinatorLoadInProgress, KafkaError
from barnabas.protocol.messages.heartbeat_request import HeartbeatRequest
from barnabas.protocol.messages.heartbeat_response import HeartbeatResponse
from barnabas.security.acls import GROUP, READ


def handle(
    broker: Broker, exchange: Exchange[HeartbeatResponse], request: HeartbeatRequest
) -> Answer[HeartbeatResponse]:
    try:
        authorize(broker, exchange, READ, GROUP, request.group_id)
        shell = broker.groups.shell_of_named(request.group_id)
    except CoordinatorLoadInProgress:
        return HeartbeatResponse()
    except KafkaError as error:
        return HeartbeatResponse(error_code=error.code)
    return ask(exchange, shell, shell.coordinator.membership.heartbeat, request, broker.now_ms)


HANDLER: Final = Handler(HeartbeatRequest, HeartbeatResponse, handle)
