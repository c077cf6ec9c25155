"""Blocks of producer ids from the controller, and the answers of a controller that has none."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas.coordination.writing.controller_producer_ids import ControllerProducerIds
from barnabas.errors import CoordinatorLoadInProgress, KafkaError, RequestTimedOut, StaleBrokerEpoch
from barnabas.model import BrokerId
from barnabas.protocol.message import Message
from barnabas.protocol.messages.allocate_producer_ids_response import AllocateProducerIdsResponse


class Controller:
    def __init__(self, answer: AllocateProducerIdsResponse | KafkaError) -> None:
        self.answer = answer
        self.asked: list[Any] = []

    async def ask(
        self, api_name: str, request: Message, *, timeout_ms: float, version: int | None = None
    ) -> Any:
        assert api_name == "AllocateProducerIds"
        self.asked.append(request)
        if isinstance(self.answer, KafkaError):
            raise self.answer
        return self.answer


def test_a_block_is_the_controllers() -> None:
    epochs = iter((7, 8))
    controller = Controller(AllocateProducerIdsResponse(producer_id_start=2_000, producer_id_len=1_000))
    blocks = ControllerProducerIds(controller.ask, BrokerId(3), lambda: next(epochs))
    assert asyncio.run(blocks.allocate()) == range(2_000, 3_000)
    assert asyncio.run(blocks.allocate()) == range(2_000, 3_000)
    # A broker that has registered again has another epoch.
    assert [(each.broker_id, each.broker_epoch) for each in controller.asked] == [(3, 7), (3, 8)]


@pytest.mark.parametrize(
    "answer",
    [
        RequestTimedOut("no controller"),
        AllocateProducerIdsResponse(error_code=StaleBrokerEpoch.code),
        AllocateProducerIdsResponse(producer_id_start=-1, producer_id_len=1_000),
        AllocateProducerIdsResponse(producer_id_start=0, producer_id_len=0),
    ],
)
def test_without_a_block_clients_ask_again(answer: AllocateProducerIdsResponse | KafkaError) -> None:
    blocks = ControllerProducerIds(Controller(answer).ask, BrokerId(3), lambda: 7)
    with pytest.raises(CoordinatorLoadInProgress):
        asyncio.run(blocks.allocate())
