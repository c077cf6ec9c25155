"""The answers of a transaction coordinator, and the rejection of each request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from barnabas.errors import KafkaError
from barnabas.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId
from barnabas.primitives.decision import Requester, error_of_failed_append


class ProducerAnswer:
    """The answer to InitProducerId and EndTxn: the next id and epoch, or the error."""

    __slots__ = ("error", "producer_epoch", "producer_id")

    def __init__(
        self,
        *,
        error: KafkaError | None = None,
        producer_id: ProducerId = NO_PRODUCER_ID,
        producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH,
    ) -> None:
        self.error: Final = error
        self.producer_id: Final = producer_id
        self.producer_epoch: Final = producer_epoch


AnswerProducer: TypeAlias = Callable[[ProducerAnswer], None]
AnswerError: TypeAlias = Callable[[KafkaError | None], None]


class AsksForProducer(Requester):
    __slots__ = ()

    def refusal(self, response: Any, error: KafkaError) -> Any:
        return ProducerAnswer(error=error_of_failed_append(error))


class AsksForError(Requester):
    __slots__ = ()

    def refusal(self, response: Any, error: KafkaError) -> Any:
        return error_of_failed_append(error)
