"""StopReplica, versions 0 to 4: the controller ends roles of this broker, and deletes replicas.

- Version 1 groups partitions by topic and has the broker epoch; 3 has the leader epoch of each partition, and marks
  each partition that is to be deleted, where earlier versions mark all or none.
- Errors for the whole request are those of LeaderAndIsr. A role of a later leader epoch is kept: FENCED_LEADER_EPOCH.
- The response waits until the deleted logs are gone.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.control.checks import check_partitions
from barnabas.broker.handlers.handler import coroutine_handler
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.broker.upkeep.control_versions import stop_replica_as_received
from barnabas.protocol.messages.stop_replica_request import StopReplicaRequest
from barnabas.protocol.messages.stop_replica_response import StopReplicaResponse


async def handle(broker: Broker, exchange: AnyExchange, request: StopReplicaRequest) -> StopReplicaResponse:
    request = stop_replica_as_received(request, exchange.version)
    for topic in request.topic_states:
        check_partitions(topic.topic_name, (each.partition_index for each in topic.partition_states))
    return await broker.control.stop_replica(request)


HANDLER: Final = coroutine_handler(StopReplicaRequest, StopReplicaResponse, handle)
