"""Blocks of producer ids from the controller of a cluster (AllocateProducerIds)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

from barnabas.errors import NONE, CoordinatorLoadInProgress, KafkaError, error_for_code
from barnabas.model import BrokerId, ProducerId
from barnabas.protocol.message import Message
from barnabas.protocol.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from barnabas.protocol.messages.allocate_producer_ids_response import AllocateProducerIdsResponse

log = logging.getLogger(__name__)

# A client that needs an id asks again after this time.
WAIT_MS: Final = 2_000


class AskController(Protocol):
    async def __call__(
        self, api_name: str, request: Message, *, timeout_ms: float, version: int | None = None
    ) -> Any: ...


class ControllerProducerIds:
    """Allocates blocks for one broker. `broker_epoch` is that of its present registration."""

    def __init__(
        self, ask_controller: AskController, broker_id: BrokerId, broker_epoch: Callable[[], int]
    ) -> None:
        self._ask_controller = ask_controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch

    async def allocate(self) -> range:
        """Ids that no producer has had and no other broker gets. Raises CoordinatorLoadInProgress."""
        request = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
        try:
            answer: AllocateProducerIdsResponse = await self._ask_controller(
                "AllocateProducerIds", request, timeout_ms=WAIT_MS
            )
            if answer.error_code != NONE:
                raise error_for_code(answer.error_code)
        except KafkaError as error:
            log.warning("The controller gives no producer ids: %s: %s", error.name, error)
            raise CoordinatorLoadInProgress("the broker is waiting for producer ids") from error
        if answer.producer_id_start < 0 or answer.producer_id_len <= 0:
            raise CoordinatorLoadInProgress(
                f"the controller gave {answer.producer_id_len} producer ids from {answer.producer_id_start} on"
            )
        return range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)

    def raise_to(self, next_id: ProducerId) -> None:
        """The controller alone knows which ids are in use."""

    async def close(self) -> None:
        """Nothing is written here."""
