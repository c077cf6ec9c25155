"""JoinGroup, versions 0 to 9: a client joins a group. The response waits until the rebalance is complete.

See `groups.membership` for the versions.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.groups.asking import ask
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.handlers.permissions import authorize
from barnabas.broker.requests.exchange import Answer, Exchange
from barnabas.errors import GroupAuthorizationFailed, InvalidGroupId, KafkaError
from barnabas.protocol.messages.join_group_request import JoinGroupRequest
from barnabas.protocol.messages.join_group_response import JoinGroupResponse
from barnabas.security.acls import GROUP, READ

_FIRST_WITHOUT_PROTOCOL: Final = 7


def handle(
    broker: Broker, exchange: Exchange[JoinGroupResponse], request: JoinGroupRequest
) -> Answer[JoinGroupResponse]:
    try:
        authorize(broker, exchange, READ, GROUP, request.group_id)
        shell = broker.groups.shell_of_named(request.group_id)
    except KafkaError as error:
        member_id = request.member_id if isinstance(error, InvalidGroupId) else ""
        knows_none = (
            isinstance(error, GroupAuthorizationFailed) and exchange.version >= _FIRST_WITHOUT_PROTOCOL
        )
        return JoinGroupResponse(
            error_code=error.code, member_id=member_id, protocol_name=None if knows_none else ""
        )
    return ask(exchange, shell, shell.coordinator.membership.join, request, broker.now_ms)


HANDLER: Final = Handler(JoinGroupRequest, JoinGroupResponse, handle)
