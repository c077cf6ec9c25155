"""Work for other brokers, gathered by transactional id: one request to a broker at a time, with all that waits for it.

Only clusters of several brokers use this module.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from barnabas.broker.waiting.tasks import Tasks
from barnabas.errors import KafkaError
from barnabas.model import BrokerId, TopicPartition
from barnabas.protocol.message import Message

log = logging.getLogger(__name__)

# The bounds of one request.
TRANSACTIONS_MAX: Final = 1_000
PARTITIONS_MAX: Final = 10_000


# Gets, for each partition, None or why the broker refused.
Report: TypeAlias = Callable[[dict[TopicPartition, KafkaError | None]], None]


def report(then: Report, results: dict[TopicPartition, KafkaError | None]) -> None:
    try:
        then(results)
    except Exception:
        # Others wait for the same answer of the broker.
        log.exception("The answer of a broker cannot be used")


class PeerLink(Protocol):
    async def ask(
        self, api_name: str, request: Message, *, version: int | None = None, timeout_ms: float
    ) -> Any: ...


class Peers(Protocol):
    """The links to other brokers: see `barnabas.peers`."""

    def link(self, broker_id: BrokerId, purpose: str) -> PeerLink: ...


class Work(Protocol):
    """What waits for a broker, on behalf of one transactional id."""

    @property
    def transactional_id(self) -> str: ...

    @property
    def partition_count(self) -> int: ...


WorkT = TypeVar("WorkT", bound=Work)


class Destinations(Generic[WorkT]):
    """`send` sends one request and reports to everyone whose work is in it. It raises nothing that is expected."""

    def __init__(self, tasks: Tasks, send: Callable[[BrokerId, list[WorkT]], Awaitable[None]]) -> None:
        self._tasks = tasks
        self._send = send
        # By broker, for those that a request is on its way to: what goes with the next one, by transactional id.
        self._waiting: dict[BrokerId, dict[str, WorkT]] = {}

    def waiting(self, broker_id: BrokerId, transactional_id: str) -> WorkT | None:
        return self._waiting.get(broker_id, {}).get(transactional_id)

    def waiting_count(self, broker_id: BrokerId) -> int:
        return len(self._waiting.get(broker_id, ()))

    def add(self, broker_id: BrokerId, work: WorkT) -> None:
        """Replaces work that waits with the same transactional id. What is added together goes together."""
        waiting = self._waiting.get(broker_id)
        if waiting is None:
            waiting = self._waiting[broker_id] = {}
            self._tasks.start(self._drain(broker_id, waiting))
        waiting[work.transactional_id] = work

    async def _drain(self, broker_id: BrokerId, waiting: dict[str, WorkT]) -> None:
        try:
            while waiting:
                batch = _taken(waiting)
                try:
                    await self._send(broker_id, batch)
                except Exception:
                    # What waits behind it is still to be sent.
                    log.exception("A request to broker %d failed", broker_id)
        finally:
            del self._waiting[broker_id]


def _taken(waiting: dict[str, WorkT]) -> list[WorkT]:
    """Takes as much as fits into a request, and one in any case."""
    batch: list[WorkT] = []
    partitions = 0
    for work in waiting.values():
        partitions += work.partition_count
        if batch and (partitions > PARTITIONS_MAX or len(batch) == TRANSACTIONS_MAX):
            break
        batch.append(work)
    for work in batch:
        del waiting[work.transactional_id]
    return batch
