"""AlterPartition, versions 0 to 3: a leader asks the controller to change the in-sync replicas of partitions.

- Version 1 has the leader's recovery state; 2 has topic ids in place of names, and tells a replica that is not eligible
  (INELIGIBLE_REPLICA) from a request that was not attempted (OPERATION_NOT_ATTEMPTED); 3 has the epochs of replicas.
- A broker that is not the controller answers NOT_CONTROLLER. A leader with an old registration gets
  STALE_BROKER_EPOCH.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import coroutine_handler
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.protocol.messages.alter_partition_request import AlterPartitionRequest
from barnabas.protocol.messages.alter_partition_response import AlterPartitionResponse


async def handle(
    broker: Broker, exchange: AnyExchange, request: AlterPartitionRequest
) -> AlterPartitionResponse:
    return await broker.controller.alter_partition(request, exchange.version)


HANDLER: Final = coroutine_handler(AlterPartitionRequest, AlterPartitionResponse, handle)
