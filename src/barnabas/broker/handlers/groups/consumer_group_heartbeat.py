"""ConsumerGroupHeartbeat, versions 0 to 1: a member of the new protocol joins its group, follows it and leaves it.

From version 1 on a member chooses its id, and may subscribe to a regular expression. See `groups.consumer_membership`.
"""

from __future__ import annotations

from barnabas.broker.broker import Broker
from barnabas.broker.requests.exchange import Exchange
from barnabas.broker.requests.group_caller import caller_of
from barnabas.errors import InvalidRequest, KafkaError, UnsupportedVersion
from barnabas.groups.settings import CONSUMER
from barnabas.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse


def handle(
    broker: Broker, exchange: Exchange, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | None:
    try:
        if not broker.groups.speaks(CONSUMER):
            raise UnsupportedVersion("group.coordinator.rebalance.protocols does not have it")
        if not request.group_id:
            raise InvalidRequest("GroupId can't be empty.")
        shell = broker.groups.shell_of(request.group_id)
    except KafkaError as error:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=str(error))
    shell.carry_out(shell.coordinator.consumers.heartbeat(caller_of(exchange), request, broker.now_ms))
    return None
