"""LeaveGroup, versions 0 to 5: a member leaves its group; from version 3 on several may, each with its own answer."""

from __future__ import annotations

from barnabas.broker.broker import Broker
from barnabas.broker.requests.exchange import Exchange
from barnabas.broker.requests.group_caller import caller_of
from barnabas.errors import KafkaError
from barnabas.protocol.messages.leave_group_request import LeaveGroupRequest
from barnabas.protocol.messages.leave_group_response import LeaveGroupResponse


def handle(broker: Broker, exchange: Exchange, request: LeaveGroupRequest) -> LeaveGroupResponse | None:
    try:
        shell = broker.groups.shell_of_named(request.group_id)
    except KafkaError as error:
        return LeaveGroupResponse(error_code=error.code)
    shell.carry_out(shell.coordinator.membership.leave(caller_of(exchange), request, broker.now_ms))
    return None
