"""The controller's channels to brokers, as the controller sees them.

Each broker has one queue, first in first out, with one request in flight. The controller never waits for a broker: an
answer is one more event. A request that is dropped, because its broker is gone or has restarted, has the answer None.
Where a broker takes no requests for long, those that wait are merged: then the merged request has the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from barnabas.coordination.controller.events import ControlRequest
from barnabas.coordination.metadata.image import BrokerImage
from barnabas.model import BrokerId
from barnabas.protocol.messages.leader_and_isr_response import LeaderAndIsrResponse
from barnabas.protocol.messages.stop_replica_response import StopReplicaResponse
from barnabas.protocol.messages.update_metadata_response import UpdateMetadataResponse

ControlResponse: TypeAlias = LeaderAndIsrResponse | StopReplicaResponse | UpdateMetadataResponse
OnAnswer: TypeAlias = Callable[[BrokerId, ControlRequest, ControlResponse | None], None]


class BrokerLinks(Protocol):
    """Every request gets one answer, on the event loop, after `send` has returned, unless it is merged into another."""

    def listen(self, on_answer: OnAnswer) -> None:
        """Called once, before the first request."""

    def connect(self, brokers: Mapping[BrokerId, BrokerImage]) -> None:
        """The brokers that are alive now. A broker that is missing, or has another epoch, loses its queue.

        A controller that resigns connects to no broker.
        """

    def send(self, broker_id: BrokerId, request: ControlRequest) -> None:
        """Queues a request. A broker that is not connected gets nothing, and the answer is None.

        The broker in this process takes each request after the one before it. Its answer to LeaderAndIsr may come
        later than that to the next request, because it waits for logs.
        """

    async def close(self) -> None:
        """Returns when no request is in flight. The broker in this process carries out what waits for it first."""
