"""The transaction of a transactional id: its state, and its transitions.

                      ┌────────────────── InitProducerId ──────────────────┐
                      v                                                    │
    (new) ─────────> Empty ──> Ongoing ──┬──> PrepareCommit ──> CompleteCommit
                                ^        └──> PrepareAbort  ──> CompleteAbort
                                │                                          │
                                └──────────── the next transaction ────────┘

A `Transaction` never changes: each step creates another, which takes effect when its record is committed. Two versions
of the protocol are in use at the same time. In version 2 (KIP-890) each end of a transaction also gives the producer
its next epoch, so that no earlier batch can take part in a later transaction; an abort is possible for an empty
transaction, and goes through PrepareAbort too.

Epochs end below the largest int16. The last one is only used to end the last transaction of a producer id; the producer
then gets epoch 0 of another id.
"""

from __future__ import annotations

import enum
from typing import Final

from barnabas.errors import ProducerFenced
from barnabas.model import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
)
from barnabas.transactions.producer import TRANSACTION_VERSION_0, TRANSACTION_VERSION_2
from barnabas.value import Value, replace

PRODUCER_EPOCH_MAX: Final = ProducerEpoch(2**15 - 1)
# The last epoch that a producer gets to see.
LAST_PRODUCER_EPOCH: Final = ProducerEpoch(PRODUCER_EPOCH_MAX - 1)
FIRST_PRODUCER_EPOCH: Final = ProducerEpoch(0)

# Kafka's time-out for transactions with two-phase commit, which end only when their producer says so.
NO_TIMEOUT_MS: Final = 2**31 - 1

_NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()


class TransactionState(enum.Enum):
    """The states, with their numbers in records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    # The next two are only passed through, and never written.
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """As clients know it: PrepareCommit."""
        return self.name.title().replace("_", "")


STATE_OF_LABEL: Final = {state.label: state for state in TransactionState}

PREPARED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
# Nothing is open, so that another transaction may begin, another producer come, or the id be forgotten.
AT_REST: Final = frozenset(
    {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
)
_COMPLETION_OF: Final = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


class Transaction(Value, kw_only=True):
    producer_id: ProducerId
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    # The producer id before the last step, which may be the same.
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    # The producer id after the end of the transaction, if the current one has reached its last epoch.
    next_producer_id: ProducerId = NO_PRODUCER_ID
    # The epoch before the last that the producer got. Not kept in records.
    last_producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = _NO_PARTITIONS
    start_timestamp: TimestampMs = NO_TIMESTAMP
    last_update_timestamp: TimestampMs
    # The version of the protocol of the last step.
    version: int = TRANSACTION_VERSION_0

    @property
    def is_epoch_exhausted(self) -> bool:
        return is_exhausted(self.producer_epoch)

    def is_timed_out(self, now_ms: int) -> bool:
        return self.timeout_ms != NO_TIMEOUT_MS and self.start_timestamp + self.timeout_ms < now_ms

    @property
    def is_commit(self) -> bool:
        assert self.state in PREPARED
        return self.state is TransactionState.PREPARE_COMMIT

    def begin_producer(
        self, timeout_ms: int, expected_epoch: ProducerEpoch | None, now_ms: int
    ) -> Transaction:
        """A producer takes the id, with the epoch that it knows if it is not the first time.

        Raises ProducerFenced if another has taken it since.
        """
        assert self.state in AT_REST
        if expected_epoch is not None and self.producer_epoch not in (NO_PRODUCER_EPOCH, expected_epoch):
            if expected_epoch != self.last_producer_epoch:
                raise ProducerFenced(
                    f"epoch {expected_epoch} is over: producer {self.producer_id} is at {self.producer_epoch}"
                )
            # The response to the same request was lost. No other producer came in between: that clears the last epoch.
            producer_epoch, last_producer_epoch = self.producer_epoch, self.last_producer_epoch
        else:
            assert not self.is_epoch_exhausted
            producer_epoch = ProducerEpoch(self.producer_epoch + 1)
            last_producer_epoch = NO_PRODUCER_EPOCH if expected_epoch is None else self.producer_epoch
        return self._at_beginning(
            self.producer_id, producer_epoch, last_producer_epoch, timeout_ms, TimestampMs(now_ms)
        )

    def begin_producer_id(
        self, producer_id: ProducerId, timeout_ms: int, expected_epoch: ProducerEpoch | None, now_ms: int
    ) -> Transaction:
        """A producer takes the id, and there are no more epochs: it gets another producer id."""
        assert self.state in AT_REST
        last_producer_epoch = NO_PRODUCER_EPOCH if expected_epoch is None else self.producer_epoch
        return self._at_beginning(
            producer_id, FIRST_PRODUCER_EPOCH, last_producer_epoch, timeout_ms, TimestampMs(now_ms)
        )

    def _at_beginning(
        self,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        last_producer_epoch: ProducerEpoch,
        timeout_ms: int,
        now: TimestampMs,
    ) -> Transaction:
        return replace(
            self,
            state=TransactionState.EMPTY,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            previous_producer_id=self.producer_id,
            last_producer_epoch=last_producer_epoch,
            timeout_ms=timeout_ms,
            partitions=_NO_PARTITIONS,
            start_timestamp=NO_TIMESTAMP,
            last_update_timestamp=now,
        )

    def add_partitions(self, partitions: frozenset[TopicPartition], version: int, now_ms: int) -> Transaction:
        assert self.state is TransactionState.ONGOING or self.state in AT_REST
        return replace(
            self,
            state=TransactionState.ONGOING,
            previous_producer_id=self.producer_id,
            partitions=self.partitions | partitions,
            start_timestamp=(
                self.start_timestamp if self.state is TransactionState.ONGOING else TimestampMs(now_ms)
            ),
            last_update_timestamp=TimestampMs(now_ms),
            version=version,
        )

    def prepare(
        self, *, is_commit: bool, version: int, next_producer_id: ProducerId, now_ms: int
    ) -> Transaction:
        """This step decides the end of the transaction; no error can undo it."""
        assert self.state is TransactionState.ONGOING or (
            not is_commit and version >= TRANSACTION_VERSION_2 and self.state in AT_REST
        )
        producer_epoch, last_producer_epoch = self.producer_epoch, self.last_producer_epoch
        if version >= TRANSACTION_VERSION_2:
            last_producer_epoch = producer_epoch
            # Aborting must be possible even from an epoch that should not occur.
            producer_epoch = ProducerEpoch(min(producer_epoch + 1, PRODUCER_EPOCH_MAX))
        return replace(
            self,
            state=TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT,
            previous_producer_id=self.producer_id,
            next_producer_id=next_producer_id,
            producer_epoch=producer_epoch,
            last_producer_epoch=last_producer_epoch,
            start_timestamp=(
                self.start_timestamp if self.state is TransactionState.ONGOING else TimestampMs(now_ms)
            ),
            last_update_timestamp=TimestampMs(now_ms),
            version=version,
        )

    def prepare_fenced(self, *, version: int, next_producer_id: ProducerId, now_ms: int) -> Transaction:
        """The coordinator aborts an open transaction, in any version with another epoch: its producer is fenced."""
        prepared = self.prepare(
            is_commit=False, version=version, next_producer_id=next_producer_id, now_ms=now_ms
        )
        if version >= TRANSACTION_VERSION_2:
            return prepared
        return replace(
            prepared,
            producer_epoch=ProducerEpoch(min(self.producer_epoch + 1, PRODUCER_EPOCH_MAX)),
            last_producer_epoch=NO_PRODUCER_EPOCH,
        )

    def complete(self, now_ms: int) -> Transaction:
        """All partitions have their markers."""
        rotates = self.version >= TRANSACTION_VERSION_2 and self.next_producer_id != NO_PRODUCER_ID
        return replace(
            self,
            state=_COMPLETION_OF[self.state],
            producer_id=self.next_producer_id if rotates else self.producer_id,
            producer_epoch=FIRST_PRODUCER_EPOCH if rotates else self.producer_epoch,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            partitions=_NO_PARTITIONS,
            last_update_timestamp=TimestampMs(now_ms),
        )


def is_exhausted(producer_epoch: int) -> bool:
    return producer_epoch >= LAST_PRODUCER_EPOCH
