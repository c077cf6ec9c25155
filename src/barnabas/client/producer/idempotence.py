"""Sequences: a broker recognises by them a batch that it already has, and one that came too early.

A producer has an id and an epoch. The batches of a partition are numbered by their records. A batch that is sent again
keeps its number, so it is stored once. When the broker has lost the state of the producer, or a batch was given up with
an unknown result, the numbers cannot continue: the producer increases its epoch and numbers the batches in flight from
0 again.

A batch gets another number only when the broker certainly does not have it: when a batch before it was rejected
permanently, or when it is rejected itself as out of order and nothing before it is in flight. The broker stores a
number only after the one before it, so batches after such a gap are not stored either. Batches before the gap keep
their numbers, in the old epoch, until their result is known.

Everything happens on the loop, under the lock of the accumulator where it uses the queues.
"""

from __future__ import annotations

import logging
from typing import Final

from barnabas.client.producer.batches import SEQUENCE_MASK, PartitionQueue, ProducerBatch
from barnabas.errors import (
    ClusterAuthorizationFailed,
    KafkaError,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    TransactionalIdAuthorizationFailed,
    UnknownProducerId,
    UnsupportedVersion,
)
from barnabas.model import NO_OFFSET, NO_PRODUCER_EPOCH, NO_PRODUCER_ID

log = logging.getLogger(__name__)

EPOCH_MAX: Final = 2**15 - 1
# After these errors the producer cannot continue.
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
        # Why the producer cannot continue.
        self.fatal: KafkaError | None = None
        # Where new numbers start as soon as there is a new producer id: at a batch in flight, or after all of them.
        self._to_restart: dict[PartitionQueue, ProducerBatch | None] = {}
        self._unresolved: dict[PartitionQueue, None] = {}

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID

    def set_producer(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        for queue, first in self._to_restart.items():
            in_flight = queue.in_flight
            position = in_flight.index(first) if first in in_flight else len(in_flight)
            queue.restart_sequences(producer_id, producer_epoch, position)
        self._to_restart.clear()

    def may_take(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Whether the first batch that waits may be sent now."""
        if self.producer_id == NO_PRODUCER_ID:
            return False
        if not batch.has_sequence:
            if queue.in_flight and self._is_stale(queue):
                return False
            return not queue.is_unresolved
        # A batch that is sent again goes alone: later batches would be out of order until it is stored.
        return queue.in_flight[0] is batch

    def take(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """The batch is about to be sent; it gets a number unless it has one."""
        if not batch.has_sequence:
            if self._is_stale(queue):
                assert not queue.in_flight
                queue.restart_sequences(self.producer_id, self.producer_epoch, 0)
            queue.number(batch)
            queue.in_flight.append(batch)
        batch.sent_epoch = batch.producer_epoch
        batch.sent_sequence = batch.base_sequence

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
        if isinstance(error, UnknownProducerId | OutOfOrderSequenceNumber):
            if batch.was_renumbered or queue.in_flight[0] is not batch:
                # Its turn comes again when what stands before it is in.
                return True
            if not self.is_transactional:
                self._bump(queue, 0)
                return True
            if isinstance(error, UnknownProducerId) and (
                log_start_offset == NO_OFFSET or queue.last_acked_offset < log_start_offset
            ):
                # The broker lost its state of this producer with the records that retention has deleted.
                queue.restart_sequences(self.producer_id, self.producer_epoch, 0)
                return True
        return error.retriable

    def failed(self, batch: ProducerBatch, error: KafkaError, *, may_renumber: bool) -> None:
        """The batch was given up. `may_renumber`: the broker certainly does not have it."""
        queue = batch.queue
        position = queue.in_flight.index(batch) if batch in queue.in_flight else -1
        self.forget(batch)
        if isinstance(error, FATAL):
            self.fatal = error
        elif may_renumber and position >= 0:
            if self.is_transactional:
                self._close_gap(queue, batch, position)
            else:
                self._bump(queue, position)

    def _close_gap(self, queue: PartitionQueue, batch: ProducerBatch, position: int) -> None:
        """Numbers what follows a batch that the broker has refused as if that had never been.

        The transaction is going to be aborted, and its epoch stays until then.
        """
        sequence = batch.base_sequence
        for other in queue.in_flight[position:]:
            other.set_producer(other.producer_id, other.producer_epoch, sequence)
            sequence = (sequence + other.record_count) & SEQUENCE_MASK
        queue.next_sequence = sequence

    def mark_unresolved(self, batch: ProducerBatch) -> None:
        """The batch was given up and may or may not have been stored: nothing new is sent until that is clear."""
        if batch.has_sequence:
            batch.queue.is_unresolved = True
            self._unresolved[batch.queue] = None

    def resolve(self) -> KafkaError | None:
        """Clears up partitions of which nothing is in flight any more; a transaction may end by it, with this error."""
        failure: KafkaError | None = None
        for queue in [each for each in self._unresolved if not each.in_flight]:
            del self._unresolved[queue]
            if not queue.is_unresolved:
                continue
            queue.is_unresolved = False
            if self._is_stale(queue) or queue.is_next_sequence(queue.next_sequence):
                continue
            if self.is_transactional:
                failure = OutOfOrderSequenceNumber(
                    f"records for {queue.tp} were sent and never acknowledged, and are not sent any more:"
                    " abort the transaction"
                )
            else:
                self._bump(queue, 0)
        return failure

    def _bump(self, queue: PartitionQueue, position: int) -> None:
        """Renumbers the batches from that position on, in the next epoch.

        An idempotent producer increases its epoch without a request. At the last epoch it needs a new id.
        """
        if self.producer_epoch < EPOCH_MAX:
            self.producer_epoch += 1
            log.debug("Producer %d continues with epoch %d", self.producer_id, self.producer_epoch)
            queue.restart_sequences(self.producer_id, self.producer_epoch, position)
        else:
            self.producer_id = NO_PRODUCER_ID
            self.producer_epoch = NO_PRODUCER_EPOCH
            behind = queue.in_flight[position:]
            self._to_restart[queue] = behind[0] if behind else None
