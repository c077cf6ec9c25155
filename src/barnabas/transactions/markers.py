"""The end of a transaction, as its partitions get it."""

from __future__ import annotations

from typing import Final

from barnabas.model import ProducerEpoch, ProducerId, TopicPartition


class Markers:
    """Markers for each of the partitions."""

    __slots__ = ("is_commit", "partitions", "producer_epoch", "producer_id", "transactional_id", "version")

    def __init__(
        self,
        *,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        is_commit: bool,
        partitions: tuple[TopicPartition, ...],
        version: int,
    ) -> None:
        self.transactional_id: Final = transactional_id
        self.producer_id: Final = producer_id
        self.producer_epoch: Final = producer_epoch
        self.is_commit: Final = is_commit
        self.partitions: Final = partitions
        self.version: Final = version
