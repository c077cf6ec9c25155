"""Sequences: how a broker knows a batch that it has already, and one that came too early.

A producer has an id and an epoch; the batches of a partition are numbered by the records in them. A batch that is sent
again keeps its number, so it is stored once. When the broker has lost track, or a batch was given up without
knowing its fate, the numbers cannot go on: the epoch is raised and what is in flight is numbered from 0 again. The
rules of when are those of Kafka's own producer.

Everything happens on the loop, under the lock of the accumulator where queues are touched.
"""

from __future__ import annotations

import logging
from typing import Final

from barnabas.client.batches import SEQUENCE_MASK, PartitionQueue, ProducerBatch
from barnabas.errors import (
    ClusterAuthorizationFailed,
    KafkaError,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    TransactionalIdAuthorizationFailed,
    UnknownProducerId,
    UnsupportedVersion,
)
from barnabas.model import NO_OFFSET, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

log = logging.getLogger(__name__)

EPOCH_MAX: Final = 2**15 - 1
# After these the producer cannot go on.
FATAL: Final = (
    ClusterAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    ProducerFenced,
    UnsupportedVersion,
)


class Idempotence:
    """The id and the epoch of a producer, and the rules of its sequences."""

    def __init__(self, *, is_transactional: bool) -> None:
        self.is_transactional = is_transactional
        self.producer_id: int = NO_PRODUCER_ID
        self.producer_epoch: int = NO_PRODUCER_EPOCH
        # Why the producer cannot go on.
        self.fatal: KafkaError | None = None
        self._is_bump_due = False
        self._to_restart: dict[PartitionQueue, None] = {}
        self._unresolved: dict[PartitionQueue, None] = {}

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID

    def set_producer(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self._restart()

    def may_take(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Whether the first batch that waits may be sent now."""
        if self.producer_id == NO_PRODUCER_ID:
            return False
        if not batch.has_sequence:
            if queue.in_flight and self._is_stale(queue):
                return False
            return queue.unresolved_sequence == NO_SEQUENCE
        # A batch that is sent again goes alone: what follows it would be out of order until it is in.
        return queue.in_flight[0] is batch

    def take(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """The batch is about to be sent; it gets a number unless it has one."""
        if batch.has_sequence:
            return
        if self._is_stale(queue):
            assert not queue.in_flight
            queue.restart_sequences(self.producer_id, self.producer_epoch)
        queue.number(batch)
        queue.in_flight.append(batch)

    def _is_stale(self, queue: PartitionQueue) -> bool:
        return queue.producer_id != self.producer_id or queue.producer_epoch != self.producer_epoch

    def acknowledged(self, batch: ProducerBatch, base_offset: int) -> None:
        queue = batch.queue
        if batch.producer_id == queue.producer_id and batch.producer_epoch == queue.producer_epoch:
            queue.last_acked_sequence = batch.last_sequence
        if base_offset != NO_OFFSET:
            queue.last_acked_offset = max(queue.last_acked_offset, base_offset + batch.record_count - 1)
        self.forget(batch)

    def forget(self, batch: ProducerBatch) -> None:
        if batch in batch.queue.in_flight:
            batch.queue.in_flight.remove(batch)

    def may_retry(self, batch: ProducerBatch, error: KafkaError, log_start_offset: int) -> bool:
        """Whether the batch is to be sent again after this error, as far as sequences are concerned."""
        queue = batch.queue
        if isinstance(error, UnknownProducerId):
            if log_start_offset == NO_OFFSET or batch.has_been_reset:
                return True
            if queue.last_acked_offset < log_start_offset and self.is_transactional:
                # What the broker knew of this producer went with the records that retention has deleted.
                queue.restart_sequences(self.producer_id, self.producer_epoch)
                return True
            if not self.is_transactional:
                self._bump_for(queue)
                return True
        elif isinstance(error, OutOfOrderSequenceNumber):
            is_resolved = queue.unresolved_sequence == NO_SEQUENCE
            if is_resolved and (batch.has_been_reset or not queue.is_next_sequence(batch.base_sequence)):
                # It came before one that is on its way again.
                return True
            if not self.is_transactional:
                if is_resolved or batch.base_sequence == queue.unresolved_sequence:
                    self._bump_for(queue)
                return True
        return error.retriable

    def failed(self, batch: ProducerBatch, error: KafkaError, *, may_renumber: bool) -> None:
        """The batch was given up. `may_renumber`: the broker certainly does not have it."""
        queue = batch.queue
        self.forget(batch)
        if isinstance(error, FATAL):
            self.fatal = error
            return
        if not batch.has_sequence:
            return
        if isinstance(error, UnknownProducerId):
            queue.next_sequence = 0
            queue.last_acked_sequence = NO_SEQUENCE
        elif isinstance(error, OutOfOrderSequenceNumber) and not self.is_transactional:
            self._bump_for(queue)
        elif may_renumber:
            if self.is_transactional:
                self._close_gap(queue, batch)
            else:
                self._bump_for(queue)

    def _close_gap(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Numbers what follows a batch that the broker has refused as if that had never been."""
        if batch.producer_id != queue.producer_id or batch.producer_epoch != queue.producer_epoch:
            return
        behind = batch.base_sequence
        for other in queue.in_flight:
            if (other.base_sequence - behind) & SEQUENCE_MASK < 1 << 30:
                other.has_been_reset = True
                moved = (other.base_sequence - batch.record_count) & SEQUENCE_MASK
                other.set_producer(other.producer_id, other.producer_epoch, moved)
        queue.next_sequence = (queue.next_sequence - batch.record_count) & SEQUENCE_MASK

    def mark_unresolved(self, batch: ProducerBatch) -> None:
        """The batch was given up and may or may not have been stored: nothing new is sent until that is clear."""
        if batch.has_sequence:
            queue = batch.queue
            queue.unresolved_sequence = (batch.last_sequence + 1) & SEQUENCE_MASK
            self._unresolved[queue] = None

    def resolve(self) -> KafkaError | None:
        """Clears up partitions of which nothing is in flight any more; a transaction may end by it, with this error."""
        failure: KafkaError | None = None
        for queue in [each for each in self._unresolved if not each.in_flight]:
            del self._unresolved[queue]
            if queue.unresolved_sequence == NO_SEQUENCE:
                continue
            if queue.is_next_sequence(queue.next_sequence):
                queue.unresolved_sequence = NO_SEQUENCE
            elif self.is_transactional:
                failure = OutOfOrderSequenceNumber(
                    f"records for {queue.tp} were sent and never acknowledged, and are not sent any more:"
                    " abort the transaction"
                )
            else:
                self._bump_for(queue)
        if self._is_bump_due:
            self._bump()
        return failure

    def _bump_for(self, queue: PartitionQueue) -> None:
        self._is_bump_due = True
        self._to_restart[queue] = None

    def _bump(self) -> None:
        """The next epoch, without asking anybody: an idempotent producer may. At the last one, a new id is needed."""
        self._is_bump_due = False
        if self.producer_epoch >= EPOCH_MAX:
            self.producer_id = NO_PRODUCER_ID
            self.producer_epoch = NO_PRODUCER_EPOCH
        else:
            self.producer_epoch += 1
            log.debug("producer %d goes on with epoch %d", self.producer_id, self.producer_epoch)
            self._restart()

    def _restart(self) -> None:
        for queue in self._to_restart:
            queue.restart_sequences(self.producer_id, self.producer_epoch)
        self._to_restart.clear()
