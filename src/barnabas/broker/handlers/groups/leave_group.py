"""LeaveGroup, versions 0 to 5: a member leaves its group. From version 3 on several may, each with its own result."""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.groups.asking import ask
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.handlers.permissions import authorize
from barnabas.broker.requests.exchange import Answer, Exchange
from barnabas.errors import KafkaError
from barnabas.protocol.messages.leave_group_request import LeaveGroupRequest
from barnabas.protocol.messages.leave_group_response import LeaveGroupResponse
from barnabas.security.acls import GROUP, READ


def handle(
    broker: Broker, exchange: Exchange[LeaveGroupResponse], request: LeaveGroupRequest
) -> Answer[LeaveGroupResponse]:
    try:
        authorize(broker, exchange, READ, GROUP, request.group_id)
        shell = broker.groups.shell_of_named(request.group_id)
    except KafkaError as error:
        return LeaveGroupResponse(error_code=error.code)
    return ask(exchange, shell, shell.coordinator.membership.leave, request, broker.now_ms)


HANDLER: Final = Handler(LeaveGroupRequest, LeaveGroupResponse, handle)
