"""ListPartitionReassignments, version 0: none, because those that can be done here are done at once."""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.protocol.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from barnabas.protocol.messages.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
)


def handle(
    broker: Broker, exchange: AnyExchange, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)


HANDLER: Final = Handler(ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, handle)
