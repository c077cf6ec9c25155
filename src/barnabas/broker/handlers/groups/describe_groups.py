"""DescribeGroups, versions 0 to 6: states and members of classic groups.

From version 3 on a client may ask for the operations that it may do. From version 6 on an unknown group is an error;
before, its state is Dead.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.handlers.permissions import authorize, operations
from barnabas.broker.requests.exchange import Answer, AnyExchange, Exchange
from barnabas.errors import NONE, KafkaError
from barnabas.protocol.messages.describe_groups_request import DescribeGroupsRequest
from barnabas.protocol.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse
from barnabas.security.acls import DESCRIBE, GROUP

_FIRST_WITH_OPERATIONS: Final = 3


def handle(
    broker: Broker, exchange: Exchange[DescribeGroupsResponse], request: DescribeGroupsRequest
) -> Answer[DescribeGroupsResponse]:
    asks_operations = request.include_authorized_operations and exchange.version >= _FIRST_WITH_OPERATIONS
    return exchange.answer_in_turns(
        broker.turns,
        # A group that is named twice is described once, so that a small request has no large response.
        list(dict.fromkeys(request.groups)),
        lambda group_id: _describe(broker, exchange, group_id, asks_operations=asks_operations),
        lambda groups: DescribeGroupsResponse(groups=groups),
    )


HANDLER: Final = Handler(DescribeGroupsRequest, DescribeGroupsResponse, handle)


def _describe(
    broker: Broker, exchange: AnyExchange, group_id: str, *, asks_operations: bool
) -> DescribedGroup:
    try:
        authorize(broker, exchange, DESCRIBE, GROUP, group_id)
        shell = broker.groups.shell_of(group_id)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code)
    [group] = shell.coordinator.describe_groups([group_id], exchange.version)
    if asks_operations and group.error_code == NONE:
        group.authorized_operations = operations(broker, exchange, GROUP, group_id)
    return group
