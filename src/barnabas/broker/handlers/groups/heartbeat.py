"""Heartbeat, versions 0 to 4: a member is alive, and is told if its group changes.

While the group is being loaded nothing is known against the member, so all is well.
"""

from __future__ import annotations

from barnabas.broker.broker import Broker
from barnabas.broker.requests.exchange import Exchange
from barnabas.broker.requests.group_caller import caller_of
from barnabas.errors import CoordinatorLoadInProgress, KafkaError
from barnabas.protocol.messages.heartbeat_request import HeartbeatRequest
from barnabas.protocol.messages.heartbeat_response import HeartbeatResponse


def handle(broker: Broker, exchange: Exchange, request: HeartbeatRequest) -> HeartbeatResponse | None:
    try:
        shell = broker.groups.shell_of_named(request.group_id)
    except CoordinatorLoadInProgress:
        return HeartbeatResponse()
    except KafkaError as error:
        return HeartbeatResponse(error_code=error.code)
    shell.carry_out(shell.coordinator.membership.heartbeat(caller_of(exchange), request, broker.now_ms))
    return None
