"""The transaction coordinators of this broker: one for each partition of `__transaction_state` that it leads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from barnabas.errors import KafkaError
from barnabas.model import ProducerEpoch, ProducerId, TopicPartition

TRANSACTIONS_TOPIC: Final = "__transaction_state"

PartitionsVerified = Callable[[dict[TopicPartition, KafkaError | None]], None]


class TransactionRuntime:
    def verify_partitions(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        partitions: Iterable[TopicPartition],
        add: bool,
        then: PartitionsVerified,
    ) -> None:
        """Asks the coordinator whether the partitions are part of the producer's open transaction.

        With `add` (transaction version 2) they become so, and a transaction begins if there is none. `then` is called
        exactly once, perhaps before this returns: for each partition None, or the coordinator's error as it stands.
        """
        raise NotImplementedError
