"""LeaderAndIsr, versions 0 to 7: the controller gives partitions of this broker their roles.

- Version 2 groups partitions by topic and has the broker epoch; 3 has adding and removing replicas; 5 has topic ids,
  also in the response; 6 has the leader's recovery state; 7 says whether the controller is one of KRaft, which there is
  not here.
- A broker epoch that is over is answered with STALE_BROKER_EPOCH, a controller that was replaced with
  STALE_CONTROLLER_EPOCH; both for the request and for each partition.
- The response waits until the logs are open, and says KAFKA_STORAGE_ERROR for those that cannot be.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.control.checks import check_partitions
from barnabas.broker.handlers.handler import coroutine_handler
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.broker.upkeep.control_versions import leader_and_isr_as_answered, leader_and_isr_as_received
from barnabas.protocol.messages.leader_and_isr_request import LeaderAndIsrRequest
from barnabas.protocol.messages.leader_and_isr_response import LeaderAndIsrResponse


async def handle(broker: Broker, exchange: AnyExchange, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
    request = leader_and_isr_as_received(request, exchange.version, broker.image.topic_id)
    for topic in request.topic_states:
        check_partitions(topic.topic_name, (each.partition_index for each in topic.partition_states))
    response = await broker.control.leader_and_isr(request)
    return leader_and_isr_as_answered(request, response, exchange.version)


HANDLER: Final = coroutine_handler(LeaderAndIsrRequest, LeaderAndIsrResponse, handle)
