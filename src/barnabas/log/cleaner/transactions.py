"""Transactions as the cleaner meets them, and the markers that it may remove.

The cleaner removes records of an aborted transaction at once. A marker stays until the records of its transaction are
gone: as long as the cleaner, on its way to the marker, meets a batch of the transaction. It writes aborted transactions
whose marker stays to the transaction index of the cleaned segment.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from barnabas.log.segment.transaction_index import AbortedTransaction
from barnabas.records.header import BatchHeader
from barnabas.records.layout import ControlRecordType


class _OngoingAbort:
    __slots__ = ("is_observed", "transaction")

    def __init__(self, transaction: AbortedTransaction) -> None:
        self.transaction = transaction
        self.is_observed = False


class CleanedTransactions:
    """One walk over the log from its start: batches and markers must come in the order of their offsets."""

    def __init__(self) -> None:
        self._committed: set[int] = set()
        self._aborted: dict[int, _OngoingAbort] = {}
        self._pending: list[tuple[int, int, AbortedTransaction]] = []
        self._added = 0
        # Aborted transactions whose marker stays, for the transaction index of the segment being written.
        self.retained: list[AbortedTransaction] = []

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        for transaction in transactions:
            heapq.heappush(self._pending, (transaction.first_offset, self._added, transaction))
            self._added += 1

    def observe_batch(self, header: BatchHeader) -> bool:
        """Whether the batch, which is not a control batch, belongs to a transaction that was aborted."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        ongoing = self._aborted.get(header.producer_id)
        if ongoing is not None:
            ongoing.is_observed = True
            return True
        self._committed.add(header.producer_id)
        return False

    def observe_marker(self, header: BatchHeader, kind: ControlRecordType | None) -> bool:
        """Whether a control batch may be removed; `kind` is None when the cleaner has emptied it before."""
        self._begin_up_to(header.last_offset)
        if kind is None:
            return True
        if kind == ControlRecordType.ABORT:
            ongoing = self._aborted.pop(header.producer_id, None)
            if ongoing is None or not ongoing.is_observed:
                return True
            self.retained.append(ongoing.transaction)
            return False
        if kind == ControlRecordType.COMMIT:
            if header.producer_id not in self._committed:
                return True
            self._committed.remove(header.producer_id)
        return False

    def _begin_up_to(self, offset: int) -> None:
        pending = self._pending
        while pending and pending[0][0] <= offset:
            transaction = heapq.heappop(pending)[2]
            self._aborted.setdefault(transaction.producer_id, _OngoingAbort(transaction))
