"""The producer.

    with Producer(bootstrap_servers="localhost:9092") as producer:
        future = producer.send("orders", b"value", key=b"key")
        print(future.result().offset)

`send` and `send_many` do their work in the caller's thread and return at once; a thread of the producer's own sends
(see `sender`). They wait, up to `max.block.ms`, only for a topic that is not known yet and for memory. Any thread may
call any method.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self

from barnabas.client.failures import ClientClosed
from barnabas.client.producer.futures import wait_for
from barnabas.client.producer.records import SharedTransaction
from barnabas.client.producer.sending import SendingProducer
from barnabas.client.timeouts import timeouts_in_ms
from barnabas.errors import RequestTimedOut

CLOSE_GRACE_MS: Final = 5_000


@timeouts_in_ms
class Producer(SendingProducer):
    """Sends records to topics. Settings have Kafka's names, as keywords with underscores or a mapping with dots."""

    __slots__ = ()

    def __init__(self, settings: Mapping[str, object] | None = None, /, **keywords: object) -> None:
        super().__init__(settings, **keywords)

    def flush(self, *, timeout_ms: float | None = None) -> None:
        """Sends everything at once and waits until all records are acknowledged or have failed, at most
        `timeout_ms`.

        Does not raise errors of records: the futures have them.
        """
        self._check_thread("flush")
        if self._background.is_closed:
            # All is delivered or given up.
            return
        deadline_s = None if timeout_ms is None else monotonic() + timeout_ms / 1000
        pending = self._core.begin_flush()
        try:
            while pending:
                batch = pending.pop()
                left_s = None if deadline_s is None else max(deadline_s - monotonic(), 0.0)
                if not wait_for(batch, left_s, until_told=True):
                    raise RequestTimedOut(f"not all records were acknowledged within {timeout_ms:g} ms")
                if batch.parts is not None:
                    pending.extend(batch.parts)
        finally:
            self._core.end_flush()

    def metrics(self) -> dict[str, float]:
        """Metrics of this producer, by the names of Kafka's own metrics."""
        return self._core.metrics()

    def partitions_for(self, topic: str, *, timeout_ms: float | None = None, creates: bool = False) -> int:
        """How many partitions a topic has. Raises UnknownTopicOrPartition if it does not exist.

        With `creates`, the broker may create a missing topic, as it may for a record.
        """
        wait_ms = self._timeout_ms(timeout_ms)
        queue = self._core.accumulator.topics.get(topic)
        return len((queue or self._learn(topic, wait_ms, creates=creates)).partitions)

    def init_transactions(self, *, timeout_ms: float | None = None) -> None:
        """Fences other producers of the transactional id and ends their open transaction; the first begin does this
        too.

        A repeated call between transactions increases the epoch, or raises if another producer has taken over.
        """
        self._call(self._core.init_transactions(self._timeout_ms(timeout_ms)))

    def begin_transaction(self) -> None:
        """Begins a transaction: it holds all records and offsets until it is committed or aborted."""
        self._call(self._core.begin_transaction())

    def share_transaction(self) -> SharedTransaction:
        """The data that other producers of this transactional id need for `join_transaction`; it may be pickled."""
        shared: SharedTransaction = self._call(self._core.share_transaction())
        return shared

    def join_transaction(self, shared: SharedTransaction) -> None:
        """Sends into another producer's transaction, which only that producer ends.

        Only one producer of the transaction may write to a partition. An epoch serves one shared transaction: the owner
        calls `init_transactions` before each.
        """
        self._call(self._core.join_transaction(shared))

    def leave_transaction(self, *, timeout_ms: float | None = None) -> None:
        """Waits until all that was sent is acknowledged; raises if anything was not."""
        self._call(self._core.leave_transaction(self._timeout_ms(timeout_ms)))

    def commit_transaction(self, *, timeout_ms: float | None = None) -> None:
        """Sends the remaining records and makes the whole transaction visible at once; may be repeated after a
        time-out.
        """
        self._call(self._core.commit_transaction(self._timeout_ms(timeout_ms)))

    def abort_transaction(self, *, timeout_ms: float | None = None) -> None:
        """Ends the transaction; consumers with `isolation.level=read_committed` never see its records."""
        self._call(self._core.abort_transaction(self._timeout_ms(timeout_ms)))

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[Any, Any],
        group: Any,
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Commits the offsets (the next to read, by topic and partition) of a group together with the transaction.

        `group` is `consumer.group_metadata()`, or the id of a group that has no members.
        """
        self._call(self._core.send_offsets(offsets, group, self._timeout_ms(timeout_ms)))

    def transaction(self) -> Transaction:
        """A transaction as a block: committed at its end, aborted if it raises."""
        return Transaction(self)

    def close(self, *, timeout_ms: float | None = None) -> None:
        """Delivers the remaining records, for at most `timeout_ms`, and closes. Aborts an open transaction."""
        core = self._core
        if self._background.is_closed:
            return
        core.begin_close()
        wait_ms = float(core.settings.delivery_timeout_ms)
        if timeout_ms is not None:
            wait_ms = timeout_ms
        if self._background.is_current():
            # In a callback: this thread cannot wait for its own work.
            self._background.loop.create_task(self._close_later())
            return
        try:
            self._background.call(core.close_gracefully(wait_ms), wait_ms + CLOSE_GRACE_MS)
        except ClientClosed:
            # Another thread was faster.
            pass
        finally:
            self._background.close()

    async def _close_later(self) -> None:
        await self._core.close_gracefully(0)
        self._background.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Producer {self._core.settings.client_id}>"

    def _timeout_ms(self, timeout_ms: float | None) -> float:
        return self._core.settings.max_block_ms if timeout_ms is None else timeout_ms

    def _call(self, work: Any) -> Any:
        try:
            if self._background.is_closed:
                self._core.refuse()
            self._check_thread("transactions")
        except BaseException:
            work.close()
            raise
        return self._background.call(work)


class Transaction:
    """A transaction as a block, see `Producer.transaction`."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def __enter__(self) -> Producer:
        self._producer.begin_transaction()
        return self._producer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._producer.commit_transaction()
        else:
            self._producer.abort_transaction()
