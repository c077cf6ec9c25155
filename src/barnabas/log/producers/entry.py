"""A partition's state of one producer, and the rules by which a batch changes it.

A producer's batches have its id, its epoch and a sequence number per record. The entry keeps the last five batches of
the current epoch, so that a repeated batch is recognised and a gap is rejected, and the first offset of the open
transaction, if any. Changes are prepared in a `ProducerUpdate` and take effect when the records have been written: a
rejected append leaves no trace.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from barnabas.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from barnabas.model import (
    NO_OFFSET,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
)

logger = logging.getLogger(__name__)

BATCHES_RETAINED: Final = 5
SEQUENCE_MAX: Final = 2**31 - 1
PRODUCER_EPOCH_MAX: Final = 2**15 - 1
NO_COORDINATOR_EPOCH: Final = -1
FIRST_VERSION_WITH_EPOCH_BUMP: Final = 2


class BatchMetadata:
    """A batch that has been appended, by its end: the sequence and offset of its last record."""

    __slots__ = ("last_offset", "last_sequence", "offset_delta", "timestamp")

    def __init__(self, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int) -> None:
        self.last_sequence = last_sequence
        self.last_offset = last_offset
        self.offset_delta = offset_delta
        self.timestamp = timestamp

    @property
    def first_sequence(self) -> int:
        first = self.last_sequence - self.offset_delta
        return first if first >= 0 else first + SEQUENCE_MAX + 1

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """The state of one producer; `current_txn_first_offset` is -1 if it has no open transaction."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "is_partial",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
    )

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = NO_COORDINATOR_EPOCH,
        last_timestamp: int = NO_TIMESTAMP,
        current_txn_first_offset: int = NO_OFFSET,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.current_txn_first_offset = current_txn_first_offset
        self.batches: list[BatchMetadata] = []
        # Whether the log may hold earlier batches of the epoch than are remembered (see producer_recall).
        self.is_partial = False

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    @property
    def last_offset_delta(self) -> int:
        return self.batches[-1].offset_delta if self.batches else 0

    def is_in_transaction(self, producer_epoch: int) -> bool:
        """Whether a batch of this epoch continues an open transaction of this partition."""
        return self.current_txn_first_offset >= 0 and self.producer_epoch == producer_epoch

    def find_duplicate(
        self, producer_epoch: int, first_sequence: int, last_sequence: int
    ) -> BatchMetadata | None:
        """The remembered batch with exactly these sequence numbers."""
        if producer_epoch != self.producer_epoch:
            return None
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                return batch
        return None

    def enter_epoch(self, producer_epoch: int) -> None:
        if producer_epoch != self.producer_epoch:
            self.batches = []
            self.producer_epoch = producer_epoch

    def add_batch(self, batch: BatchMetadata) -> None:
        if len(self.batches) == BATCHES_RETAINED:
            del self.batches[0]
        self.batches.append(batch)


class ActiveProducer(NamedTuple):
    """The description of a producer for DescribeProducers; a missing offset or sequence is -1."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    last_sequence: int
    last_offset: Offset
    last_timestamp: TimestampMs
    coordinator_epoch: int
    current_txn_start_offset: Offset


class OpenTransaction:
    """A transaction on this partition. `last_offset` is its marker's, or -1 while it is undecided."""

    __slots__ = ("first_offset", "last_offset", "producer_id")

    def __init__(self, producer_id: int, first_offset: int) -> None:
        self.producer_id = producer_id
        self.first_offset = first_offset
        self.last_offset: int = NO_OFFSET


class CompletedTransaction:
    __slots__ = ("first_offset", "is_aborted", "last_offset", "producer_id")

    def __init__(self, producer_id: int, first_offset: int, last_offset: int, is_aborted: bool) -> None:
        self.producer_id = producer_id
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.is_aborted = is_aborted


class VerificationState:
    """A transaction that the coordinator is being asked about before its first batch may be written.

    The guard names this one question, so that an answer that comes late cannot admit a batch of a later transaction.
    The lowest sequence seen holds back later batches of the same producer while an earlier one is being retried.
    """

    __slots__ = ("bumps_epochs", "guard", "lowest_sequence", "producer_epoch", "timestamp")

    def __init__(
        self, guard: int, timestamp: int, sequence: int, producer_epoch: int, bumps_epochs: bool
    ) -> None:
        self.guard = guard
        self.timestamp = timestamp
        self.lowest_sequence = sequence
        self.producer_epoch = producer_epoch
        # Whether each transaction of the producer has its own epoch (transaction version 2).
        self.bumps_epochs = bumps_epochs

    def observe(self, sequence: int, producer_epoch: int) -> None:
        if producer_epoch > self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.lowest_sequence = sequence
        elif producer_epoch == self.producer_epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence


class ProducerUpdate:
    """The changes that one append makes to one producer, checked against its current state.

    `trusted` records come from a leader that has checked them, or from the disk: their faults are logged, not rejected.
    Only a client's own records have their sequences checked.
    """

    __slots__ = (
        "_checks_sequence",
        "_current",
        "_trusted",
        "_verification",
        "_where",
        "started",
        "updated",
    )

    def __init__(
        self,
        where: str,
        producer_id: int,
        current: ProducerEntry | None,
        verification: VerificationState | None,
        *,
        trusted: bool,
        checks_sequence: bool,
    ) -> None:
        entry = ProducerEntry(producer_id) if current is None else current
        self._where = where
        self._current = entry
        self._trusted = trusted
        self._checks_sequence = checks_sequence
        self._verification = verification
        self.updated = ProducerEntry(
            producer_id,
            entry.producer_epoch,
            entry.coordinator_epoch,
            entry.last_timestamp,
            entry.current_txn_first_offset,
        )
        self.started: list[OpenTransaction] = []

    def append_data(
        self,
        *,
        producer_epoch: int,
        first_sequence: int,
        last_sequence: int,
        first_offset: int,
        last_offset: int,
        timestamp: int,
        is_transactional: bool,
    ) -> None:
        self._check_epoch(producer_epoch, first_offset)
        if self._checks_sequence:
            self._check_sequence(producer_epoch, first_sequence, first_offset)
        updated = self.updated
        updated.enter_epoch(producer_epoch)
        updated.add_batch(BatchMetadata(last_sequence, last_offset, last_offset - first_offset, timestamp))
        updated.last_timestamp = timestamp
        if updated.current_txn_first_offset >= 0:
            if not is_transactional:
                message = (
                    f"producer {updated.producer_id} wrote outside its open transaction at offset {first_offset} of"
                    f" {self._where}"
                )
                if not self._trusted:
                    raise InvalidTxnState(message)
                logger.warning("%s", message)
        elif is_transactional:
            updated.current_txn_first_offset = first_offset
            self.started.append(OpenTransaction(updated.producer_id, first_offset))

    def append_end_marker(
        self,
        *,
        producer_epoch: int,
        coordinator_epoch: int,
        is_abort: bool,
        offset: int,
        timestamp: int,
        transaction_version: int = 0,
    ) -> CompletedTransaction | None:
        """Ends the open transaction; None if no record of it is on this partition."""
        self._check_epoch(producer_epoch, offset)
        if transaction_version >= FIRST_VERSION_WITH_EPOCH_BUMP:
            self._check_bumped_epoch(producer_epoch, offset)
        self._check_coordinator_epoch(coordinator_epoch, offset)
        updated = self.updated
        completed: CompletedTransaction | None = None
        if updated.current_txn_first_offset >= 0:
            completed = CompletedTransaction(
                updated.producer_id, updated.current_txn_first_offset, offset, is_abort
            )
        updated.enter_epoch(producer_epoch)
        updated.coordinator_epoch = coordinator_epoch
        updated.current_txn_first_offset = NO_OFFSET
        updated.last_timestamp = timestamp
        return completed

    def apply(self, existing: ProducerEntry) -> None:
        updated = self.updated
        existing.enter_epoch(updated.producer_epoch)
        for batch in updated.batches:
            existing.add_batch(batch)
        existing.coordinator_epoch = updated.coordinator_epoch
        existing.current_txn_first_offset = updated.current_txn_first_offset
        existing.last_timestamp = updated.last_timestamp

    def _check_epoch(self, producer_epoch: int, offset: int) -> None:
        if producer_epoch >= self.updated.producer_epoch:
            return
        message = (
            f"epoch {producer_epoch} of producer {self.updated.producer_id} at offset {offset} of {self._where}"
            f" is older than the last seen epoch {self.updated.producer_epoch}"
        )
        if not self._trusted:
            raise InvalidProducerEpoch(message)
        logger.warning("%s", message)

    def _check_bumped_epoch(self, producer_epoch: int, offset: int) -> None:
        """The epoch of a marker is later than its transaction's: one that comes late cannot end the next transaction.

        A marker may be sent again when the transaction is over; and the last epoch of all has none behind it.
        """
        updated = self.updated
        if (
            producer_epoch != updated.producer_epoch
            or updated.current_txn_first_offset < 0
            or producer_epoch == PRODUCER_EPOCH_MAX
        ):
            return
        message = (
            f"a marker of epoch {producer_epoch} of producer {updated.producer_id} at offset {offset} of {self._where}"
            " has the epoch of the open transaction, not a later one"
        )
        if not self._trusted:
            raise InvalidProducerEpoch(message)
        logger.warning("%s", message)

    def _check_coordinator_epoch(self, coordinator_epoch: int, offset: int) -> None:
        if coordinator_epoch >= self.updated.coordinator_epoch:
            return
        message = (
            f"coordinator epoch {coordinator_epoch} of a marker for producer {self.updated.producer_id}"
            f" at offset {offset} of {self._where} is older than {self.updated.coordinator_epoch}"
        )
        if not self._trusted:
            raise TransactionCoordinatorFenced(message)
        logger.info("%s", message)

    def _check_sequence(self, producer_epoch: int, first_sequence: int, offset: int) -> None:
        verification = self._verification
        if verification is not None:
            if first_sequence > verification.lowest_sequence:
                raise self._out_of_order(offset, first_sequence, verification.lowest_sequence - 1)
            if verification.bumps_epochs and first_sequence != 0 and not self._current.batches:
                # Each transaction has its own epoch and starts at 0, even if the producer's state was dropped.
                raise self._out_of_order(offset, first_sequence, NO_SEQUENCE)
        updated = self.updated
        if producer_epoch != updated.producer_epoch:
            # A new epoch restarts its sequence. Any sequence of an unknown producer is accepted: its records may have
            # been deleted.
            if first_sequence != 0 and updated.producer_epoch != NO_PRODUCER_EPOCH:
                raise self._out_of_order(offset, first_sequence, NO_SEQUENCE)
            return
        last_sequence = NO_SEQUENCE
        if updated.batches:
            last_sequence = updated.batches[-1].last_sequence
        elif producer_epoch == self._current.producer_epoch:
            last_sequence = self._current.last_sequence
        if self._current.producer_epoch == NO_PRODUCER_EPOCH:
            return
        if first_sequence != (0 if last_sequence == SEQUENCE_MAX else last_sequence + 1):
            raise self._out_of_order(offset, first_sequence, last_sequence)

    def _out_of_order(self, offset: int, first_sequence: int, last_sequence: int) -> OutOfOrderSequenceNumber:
        return OutOfOrderSequenceNumber(
            f"sequence {first_sequence} of producer {self.updated.producer_id} at offset {offset} of {self._where}"
            f" does not follow {last_sequence}"
        )
