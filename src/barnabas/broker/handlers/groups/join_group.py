"""JoinGroup, versions 0 to 9: a client wants to be a member of a group. It waits until the group is complete.

See `groups.membership` for the versions.
"""

from __future__ import annotations

from barnabas.broker.broker import Broker
from barnabas.broker.requests.exchange import Exchange
from barnabas.broker.requests.group_caller import caller_of
from barnabas.errors import InvalidGroupId, KafkaError
from barnabas.groups.rebalance import join_error
from barnabas.protocol.messages.join_group_request import JoinGroupRequest
from barnabas.protocol.messages.join_group_response import JoinGroupResponse


def handle(broker: Broker, exchange: Exchange, request: JoinGroupRequest) -> JoinGroupResponse | None:
    caller = caller_of(exchange)
    try:
        shell = broker.groups.shell_of_named(request.group_id)
    except KafkaError as error:
        member_id = request.member_id if isinstance(error, InvalidGroupId) else ""
        return join_error(caller, error.code, member_id, "")
    shell.carry_out(shell.coordinator.membership.join(caller, request, broker.now_ms))
    return None
