"""DescribeGroups, versions 0 to 6: states and members of classic groups.

From version 3 on the operations that a client may do are told if it asks, from version 6 on a group that there is not
is an error: before, it is dead.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.exchange import Exchange
from barnabas.broker.operations import GROUP_OPERATIONS
from barnabas.errors import NONE, KafkaError
from barnabas.protocol.messages.describe_groups_request import DescribeGroupsRequest
from barnabas.protocol.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse

_FIRST_WITH_OPERATIONS: Final = 3


def handle(broker: Broker, exchange: Exchange, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    asks_operations = request.include_authorized_operations and exchange.version >= _FIRST_WITH_OPERATIONS
    described = []
    # What is asked for twice is told once: an answer is no larger than what there is to tell.
    for group_id in dict.fromkeys(request.groups):
        group = _describe(broker, group_id, exchange.version)
        if asks_operations and group.error_code == NONE:
            group.authorized_operations = GROUP_OPERATIONS
        described.append(group)
    return DescribeGroupsResponse(groups=described)


def _describe(broker: Broker, group_id: str, version: int) -> DescribedGroup:
    try:
        shell = broker.groups.shell_of(group_id)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code)
    [group] = shell.coordinator.describe_groups([group_id], version)
    return group
