"""ConsumerGroupDescribe, versions 0 to 1: state and members of groups of the new protocol.

From version 1 on the response has each member's protocol. Groups that are no consumer groups are GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.handlers.permissions import Permission, authorize, operations
from barnabas.broker.requests.exchange import Answer, AnyExchange, Exchange
from barnabas.errors import NONE, InvalidGroupId, KafkaError, TopicAuthorizationFailed
from barnabas.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.consumer_group_describe_response import (
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from barnabas.security.acls import DESCRIBE, GROUP


def handle(
    broker: Broker, exchange: Exchange[ConsumerGroupDescribeResponse], request: ConsumerGroupDescribeRequest
) -> Answer[ConsumerGroupDescribeResponse]:
    return exchange.answer_in_turns(
        broker.turns,
        list(dict.fromkeys(request.group_ids)),
        lambda group_id: _describe(broker, exchange, group_id, request),
        lambda groups: ConsumerGroupDescribeResponse(groups=groups),
    )


HANDLER: Final = Handler(ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, handle)


def _describe(
    broker: Broker, exchange: AnyExchange, group_id: str, request: ConsumerGroupDescribeRequest
) -> DescribedGroup:
    try:
        broker.groups.check_consumer_protocol()
        authorize(broker, exchange, DESCRIBE, GROUP, group_id)
        if not group_id:
            raise InvalidGroupId("a consumer group has a name")
        group = broker.groups.shell_of(group_id).coordinator.describe_consumer_group(group_id)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code)
    if request.include_authorized_operations and group.error_code == NONE:
        group.authorized_operations = operations(broker, exchange, GROUP, group_id)
    if broker.authorization is not None and _shows_hidden(group, Permission(broker, exchange, DESCRIBE)):
        return DescribedGroup(
            group_id=group_id,
            error_code=TopicAuthorizationFailed.code,
            error_message="The group has described topic(s) that the client is not authorized to describe.",
        )
    return group


def _shows_hidden(group: DescribedGroup, permission: Permission) -> bool:
    """Whether members are assigned to a topic that the client may not know of."""
    return any(
        partitions.topic_name not in permission
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for partitions in assignment.topic_partitions
    )
