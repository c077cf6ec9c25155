"""SyncGroup, versions 0 to 5: the leader of a group sends the assignment, and each member gets its part.

From version 5 on a member has to name the group's protocol.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.groups.asking import ask
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.handlers.permissions import authorize
from barnabas.broker.requests.exchange import Answer, Exchange
from barnabas.errors import InconsistentGroupProtocol, KafkaError
from barnabas.protocol.messages.sync_group_request import SyncGroupRequest
from barnabas.protocol.messages.sync_group_response import SyncGroupResponse
from barnabas.security.acls import GROUP, READ

_FIRST_WITH_PROTOCOL: Final = 5


def handle(
    broker: Broker, exchange: Exchange[SyncGroupResponse], request: SyncGroupRequest
) -> Answer[SyncGroupResponse]:
    if exchange.version >= _FIRST_WITH_PROTOCOL and (
        request.protocol_type is None or request.protocol_name is None
    ):
        return SyncGroupResponse(error_code=InconsistentGroupProtocol.code)
    try:
        authorize(broker, exchange, READ, GROUP, request.group_id)
        shell = broker.groups.shell_of_named(request.group_id)
    except KafkaError as error:
        return SyncGroupResponse(error_code=error.code)
    return ask(exchange, shell, shell.coordinator.membership.sync, request, broker.now_ms)


HANDLER: Final = Handler(SyncGroupRequest, SyncGroupResponse, handle)
