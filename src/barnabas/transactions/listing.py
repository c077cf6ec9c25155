"""The results of ListTransactions and DescribeTransactions for a coordinator's transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from barnabas.errors import TransactionalIdNotFound
from barnabas.protocol.messages.describe_transactions_response import TopicData
from barnabas.protocol.messages.describe_transactions_response import TransactionState as Described
from barnabas.protocol.messages.list_transactions_response import TransactionState as Listed
from barnabas.transactions.coordinator import TransactionCoordinator
from barnabas.transactions.entry import Entry
from barnabas.transactions.transaction import STATE_OF_LABEL

ANY_DURATION: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionFilter:
    """A client's filters: an empty set matches everything."""

    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    # Only transactions that have been open for longer.
    duration_ms: int = ANY_DURATION
    # Whether a whole transactional id is wanted.
    matches: Callable[[str], object] | None = None

    @property
    def unknown_states(self) -> list[str]:
        return sorted(state for state in self.states if state not in STATE_OF_LABEL)

    def admits(self, entry: Entry, now_ms: int) -> bool:
        transaction = entry.transaction
        return (
            (not self.producer_ids or transaction.producer_id in self.producer_ids)
            and (not self.states or transaction.state.label in self.states)
            and (self.duration_ms < 0 or now_ms - transaction.start_timestamp > self.duration_ms)
            and (self.matches is None or bool(self.matches(entry.transactional_id)))
        )


def list_transactions(
    coordinators: Iterable[TransactionCoordinator], wanted: TransactionFilter, now_ms: int
) -> Iterator[Listed]:
    for coordinator in coordinators:
        for entry in coordinator:
            if wanted.admits(entry, now_ms):
                yield Listed(
                    transactional_id=entry.transactional_id,
                    producer_id=entry.transaction.producer_id,
                    transaction_state=entry.transaction.state.label,
                )


def describe_transaction(coordinator: TransactionCoordinator, transactional_id: str) -> Described:
    entry = coordinator.find(transactional_id)
    if entry is None:
        return Described(transactional_id=transactional_id, error_code=TransactionalIdNotFound.code)
    transaction = entry.transaction
    partitions_by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(entry.open_partitions):
        partitions_by_topic.setdefault(topic, []).append(partition)
    return Described(
        transactional_id=transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_state=transaction.state.label,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_timestamp,
        topics=[
            TopicData(topic=topic, partitions=partitions) for topic, partitions in partitions_by_topic.items()
        ],
    )
