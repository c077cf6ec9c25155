"""A coordinator's state of a transactional id, and the rules for requests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ProducerFenced,
)
from barnabas.model import TopicPartition
from barnabas.transactions.markers import Markers
from barnabas.transactions.producer import TRANSACTION_VERSION_2, ProducerIdAndEpoch
from barnabas.transactions.transaction import (
    FIRST_PRODUCER_EPOCH,
    LAST_PRODUCER_EPOCH,
    PREPARED,
    Transaction,
    TransactionState,
    is_exhausted,
)

RETRY_MIN_MS: Final = 100

# By whether it is a commit.
COMPLETED: Final = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}


class Entry:
    """A transactional id, its transaction, and its pending step."""

    __slots__ = ("markers", "pending", "retry_ms", "transaction", "transactional_id", "unmarked")

    def __init__(self, transactional_id: str, transaction: Transaction) -> None:
        self.transactional_id = transactional_id
        self.transaction = transaction
        self.pending: TransactionState | None = None
        # For a prepared transaction: the markers in progress, and the partitions without a marker.
        self.markers: Markers | None = None
        self.unmarked: set[TopicPartition] = set()
        self.retry_ms = RETRY_MIN_MS

    @property
    def is_stored(self) -> bool:
        """Whether a record of it has been committed. It has no producer epoch before."""
        return self.transaction.producer_epoch >= 0

    @property
    def open_partitions(self) -> Iterable[TopicPartition]:
        return self.unmarked if self.transaction.state in PREPARED else self.transaction.partitions


def check_nothing_pending(entry: Entry) -> None:
    if entry.pending is not None or entry.transaction.state in PREPARED:
        raise ConcurrentTransactions(
            f"{entry.transactional_id} is in the state {entry.transaction.state.label} and about to leave it"
        )


def check_producer_id(transaction: Transaction, producer: ProducerIdAndEpoch) -> None:
    if transaction.producer_id != producer.producer_id:
        raise InvalidProducerIdMapping(
            f"the producer id is {transaction.producer_id}, not {producer.producer_id}"
        )


def check_producer_epoch(transaction: Transaction, producer: ProducerIdAndEpoch) -> None:
    if transaction.producer_epoch != producer.producer_epoch:
        raise ProducerFenced(
            f"the epoch of producer {transaction.producer_id} is {transaction.producer_epoch}, not"
            f" {producer.producer_epoch}"
        )


def check_producer(transaction: Transaction, producer: ProducerIdAndEpoch) -> None:
    check_producer_id(transaction, producer)
    check_producer_epoch(transaction, producer)


def check_taker(entry: Entry, expected: ProducerIdAndEpoch | None) -> None:
    """Whether a producer may take the id. Its epoch is looked at when it gets the next one."""
    check_nothing_pending(entry)
    transaction = entry.transaction
    is_known = (
        expected is None
        # A producer that the coordinator has forgotten continues with whatever it gets.
        or transaction.producer_epoch < 0
        or expected.producer_id == transaction.producer_id
        # The response with its new id was lost.
        or (
            expected.producer_id == transaction.previous_producer_id and is_exhausted(expected.producer_epoch)
        )
    )
    if not is_known:
        raise ProducerFenced(f"{entry.transactional_id} is the id of producer {transaction.producer_id} now")


def _invalid_end(entry: Entry, is_commit: bool) -> InvalidTxnState:
    what = "commit" if is_commit else "abort"
    return InvalidTxnState(
        f"{entry.transactional_id} is in the state {entry.transaction.state.label}: there is nothing to {what}"
    )


def check_end_of_version_0(entry: Entry, producer: ProducerIdAndEpoch, is_commit: bool) -> bool:
    """Whether the transaction has ended in this way before."""
    check_producer(entry.transaction, producer)
    check_nothing_pending(entry)
    state = entry.transaction.state
    if state is TransactionState.ONGOING:
        return False
    if state is COMPLETED[is_commit]:
        return True
    raise _invalid_end(entry, is_commit)


def _check_not_older(transaction: Transaction, producer: ProducerIdAndEpoch) -> None:
    """For a prepared transaction: its producer has its own epoch, or already the next one."""
    if producer == (transaction.next_producer_id, FIRST_PRODUCER_EPOCH):
        return
    check_producer_id(transaction, producer)
    if producer.producer_epoch + 1 != transaction.producer_epoch:
        check_producer_epoch(transaction, producer)


def check_end(entry: Entry, producer: ProducerIdAndEpoch, is_commit: bool) -> bool:
    """Whether the transaction has ended in this way before, in version 2.

    Each end increases the epoch, so a request concerns the last transaction if it has the epoch before the current one
    (or the last epoch of the previous producer id), and the current transaction if it has the current epoch.

                      abort of last | current    commit of last | current
        Empty               fenced  | ended         fenced      | invalid
        CompleteAbort        none   | ended         invalid     | invalid
        CompleteCommit      invalid | ended          none       | invalid

    `ended` is an end of an empty transaction, which returns the next epoch; `none` has happened already. While the end
    is being completed both get CONCURRENT_TRANSACTIONS, and an older epoch is fenced.
    """
    transaction = entry.transaction
    if transaction.state in PREPARED:
        _check_not_older(transaction, producer)
    check_nothing_pending(entry)
    state = transaction.state
    has_moved_on = state in COMPLETED.values() and transaction.version >= TRANSACTION_VERSION_2
    is_about_last_id = (
        producer == (transaction.previous_producer_id, LAST_PRODUCER_EPOCH)
        and transaction.producer_epoch == FIRST_PRODUCER_EPOCH
    )
    if not is_about_last_id:
        check_producer_id(transaction, producer)
    is_about_last = is_about_last_id or transaction.producer_epoch == producer.producer_epoch + 1
    if not (has_moved_on and is_about_last):
        check_producer_epoch(transaction, producer)
        is_invalid = is_commit and state is not TransactionState.ONGOING
    else:
        is_invalid = state is not COMPLETED[is_commit]
    if is_invalid:
        raise _invalid_end(entry, is_commit)
    return has_moved_on and is_about_last
