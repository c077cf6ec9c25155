"""ConsumerGroupDescribe, versions 0 to 1: state and members of groups of the new protocol.

From version 1 on the response has each member's protocol. Groups that are no consumer groups are GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.requests.exchange import Answer, Exchange
from barnabas.broker.requests.operations import GROUP_OPERATIONS
from barnabas.errors import NONE, InvalidGroupId, KafkaError, UnsupportedVersion
from barnabas.groups.settings import CONSUMER
from barnabas.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.consumer_group_describe_response import (
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


def handle(
    broker: Broker, exchange: Exchange[ConsumerGroupDescribeResponse], request: ConsumerGroupDescribeRequest
) -> Answer[ConsumerGroupDescribeResponse]:
    return exchange.answer_in_turns(
        broker.turns,
        list(dict.fromkeys(request.group_ids)),
        lambda group_id: _describe(broker, group_id, request),
        lambda groups: ConsumerGroupDescribeResponse(groups=groups),
    )


HANDLER: Final = Handler(ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, handle)


def _describe(broker: Broker, group_id: str, request: ConsumerGroupDescribeRequest) -> DescribedGroup:
    try:
        if not broker.groups.speaks(CONSUMER):
            raise UnsupportedVersion("group.coordinator.rebalance.protocols does not have it")
        if not group_id:
            raise InvalidGroupId("a consumer group has a name")
        group = broker.groups.shell_of(group_id).coordinator.describe_consumer_group(group_id)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code)
    if request.include_authorized_operations and group.error_code == NONE:
        group.authorized_operations = GROUP_OPERATIONS
    return group
