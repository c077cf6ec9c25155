"""ConsumerGroupHeartbeat, versions 0 to 1: a member of a consumer group joins, stays alive and leaves.

From version 1 on a member chooses its id, and may subscribe by a regular expression. See `groups.consumer_membership`.
A client needs READ on the group, and DESCRIBE on each topic that it names. An expression matches topics that the client
may describe.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.groups.asking import ask, caller_of
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.handlers.permissions import Permission, authorize
from barnabas.broker.requests.exchange import Answer, Exchange
from barnabas.errors import InvalidRequest, KafkaError
from barnabas.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from barnabas.security.acls import DESCRIBE, GROUP, READ


def handle(
    broker: Broker, exchange: Exchange[ConsumerGroupHeartbeatResponse], request: ConsumerGroupHeartbeatRequest
) -> Answer[ConsumerGroupHeartbeatResponse]:
    try:
        broker.groups.check_consumer_protocol()
        authorize(broker, exchange, READ, GROUP, request.group_id)
        permission = Permission(broker, exchange, DESCRIBE)
        for name in dict.fromkeys(request.subscribed_topic_names or ()):
            permission.check(name)
        if not request.group_id:
            raise InvalidRequest("GroupId can't be empty.")
        shell = broker.groups.shell_of(request.group_id)
    except KafkaError as error:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=str(error))
    heartbeat = shell.coordinator.consumers.heartbeat
    if broker.authorization is None or not request.subscribed_topic_regex:
        return ask(exchange, shell, heartbeat, request, broker.now_ms)
    parked = exchange.park()
    caller = caller_of(exchange, parked.answer)
    caller.visible_topics = Permission(broker, exchange, DESCRIBE, is_logged=False)
    shell.carry_out(heartbeat(caller, request, broker.now_ms))
    return parked


HANDLER: Final = Handler(ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, handle)
