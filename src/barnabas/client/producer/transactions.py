"""A producer's transactions: all readers see the records between begin and commit together, and none after an abort.

    uninitialized ─ init ─> ready ─ begin ─> in transaction ─ commit, abort ─> ready
                                                  │ an error that ends the transaction
                                                  └──────────> abortable ─ abort ─> ready
    any ─ fenced, not authorized ─> fatal

Version 1 of the protocol: a request adds each partition to the transaction before anything is sent to it, and the epoch
stays the same. Version 2 (KIP-890, by the cluster's feature transaction.version): sending adds the partition, and each
end increases the epoch, so that no late batch of one transaction gets into the next.

A transaction may be shared: other producers join it with its producer id and epoch, write, and leave when all their
records are acknowledged. Brokers number the batches of a producer id by partition, so only one of these producers may
write to a partition. The numbers start with the epoch, so each shared transaction needs its own epoch (`init` again).

Everything happens on the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from enum import StrEnum
from typing import Any, Final

from barnabas.client.connections.brokers import Brokers, retrying
from barnabas.client.connections.coordinator import Coordinator, CoordinatorType
from barnabas.client.failures import TransactionMisuse
from barnabas.client.producer.accumulator import Accumulator
from barnabas.client.producer.batches import PartitionQueue, ProducerBatch
from barnabas.client.producer.idempotence import FATAL, Idempotence
from barnabas.client.producer.records import GroupMetadata, OffsetToCommit, SharedTransaction
from barnabas.client.producer.transaction_requests import (
    add_partitions_request,
    first_error,
    offsets_request,
)
from barnabas.client.settings import ProducerSettings
from barnabas.errors import (
    NONE,
    ConcurrentTransactions,
    FencedInstanceId,
    GroupAuthorizationFailed,
    IllegalGeneration,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaError,
    OperationNotAttempted,
    ProducerFenced,
    RequestTimedOut,
    TopicAuthorizationFailed,
    TransactionAbortable,
    UnknownMemberId,
    UnknownProducerId,
    UnsupportedVersion,
    error_for_code,
)
from barnabas.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from barnabas.protocol.message import Message
from barnabas.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from barnabas.protocol.messages.end_txn_request import EndTxnRequest
from barnabas.protocol.messages.init_producer_id_request import InitProducerIdRequest

log = logging.getLogger(__name__)

FEATURE: Final = "transaction.version"
FIRST_LEVEL_V2: Final = 2
LAST_END_TXN_V1: Final = 4
LAST_TXN_OFFSET_COMMIT_V1: Final = 4
# One transaction at a time: later versions carry several and are for brokers among themselves.
LAST_ADD_PARTITIONS_OF_CLIENTS: Final = 3
LAST_INIT_PRODUCER_ID: Final = 5
NO_TIMEOUT_MS: Final = 2**31 - 1
# The previous transaction is just being completed: that takes a moment, not the usual back-off.
CONCURRENT_BACKOFF_S: Final = 0.02
# After these errors the transaction can only be aborted, and the producer continues.
ABORTABLE: Final = (
    FencedInstanceId,
    GroupAuthorizationFailed,
    IllegalGeneration,
    InvalidProducerIdMapping,
    OperationNotAttempted,
    TopicAuthorizationFailed,
    TransactionAbortable,
    UnknownMemberId,
    UnknownProducerId,
)


class TransactionState(StrEnum):
    UNINITIALIZED = "not initialized"
    READY = "ready"
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "to be aborted"
    FATAL_ERROR = "failed for good"


class TransactionManager(Idempotence):
    """The state of an idempotent producer, and of its transactions if it has a transactional id."""

    def __init__(self, settings: ProducerSettings, brokers: Brokers, accumulator: Accumulator) -> None:
        super().__init__(is_transactional=settings.transactional_id is not None)
        self.is_v2 = False
        self.state = TransactionState.UNINITIALIZED
        # Why the transaction has to be aborted, or the producer cannot continue.
        self.error: KafkaError | None = None
        # Called when the state has changed, and when there may be something to send.
        self.on_change: Callable[[], object] | None = None
        self.wake: Callable[[], object] | None = None
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self._brokers = brokers
        self._accumulator = accumulator
        self._id = settings.transactional_id or ""
        self._coordinator = Coordinator(brokers, CoordinatorType.TRANSACTION, self._id)
        self._group_coordinators: dict[str, Coordinator] = {}
        # Whether the transaction belongs to another producer, which alone may end it; or is ours, and shared with
        # others.
        self.is_joined = False
        self._is_shared = False
        self._is_started = False
        self._is_init_due_after_abort = False
        self._added: set[TopicPartition] = set()
        self._to_add: dict[TopicPartition, None] = {}
        self._task: asyncio.Task[None] | None = None

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def prepare(self) -> None:
        """Before batches are taken: clears up sequences, and asks for a producer id if there is none."""
        self._accumulator.lock.acquire()
        try:
            failure = self.resolve()
        finally:
            self._accumulator.lock.release()
        if failure is not None:
            self._is_init_due_after_abort = not self.is_v2
            self._set_abortable(failure)
        if not self.is_transactional and not self.has_producer_id and self.fatal is None:
            self._begin(self._init_idempotent())

    def may_take(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        if self.is_transactional:
            if self.state is TransactionState.FATAL_ERROR:
                return False
            if self.state in (TransactionState.ABORTABLE_ERROR, TransactionState.ABORTING):
                # Waits for what was sent; sends nothing new.
                if not batch.has_sequence:
                    return False
            elif queue.tp not in self._added and not self._add(queue.tp):
                return False
        return super().may_take(queue, batch)

    def _add(self, tp: TopicPartition) -> bool:
        """Adds the partition to the transaction; False if the coordinator needs a request first."""
        if self.is_v2:
            self._added.add(tp)
            self._is_started = True
            return True
        self._to_add[tp] = None
        self._begin(self._add_partitions())
        return False

    def after_failure(self, batch: ProducerBatch, error: KafkaError) -> None:
        """A batch was given up: a transaction cannot be committed without it."""
        if isinstance(error, FATAL):
            self._set_fatal(error)
        elif self.is_transactional and self.state in (
            TransactionState.IN_TRANSACTION,
            TransactionState.COMMITTING,
        ):
            self._is_init_due_after_abort = not self.is_v2
            self._set_abortable(error)

    async def init(self, timeout_ms: float) -> None:
        """Gets the producer id of the transactional id; fences the previous producer and aborts its transaction.

        It may be repeated between transactions: this increases the epoch, unless another producer has fenced us.
        """
        self._require("init_transactions", TransactionState.UNINITIALIZED, TransactionState.READY)
        await self._ask_producer_id(timeout_ms, self.producer_id, self.producer_epoch)
        self._set(TransactionState.READY)

    def begin(self) -> None:
        self._require("begin_transaction", TransactionState.READY)
        self._forget_transaction()
        self.is_v2 = self._finds_v2()
        self._set(TransactionState.IN_TRANSACTION)

    def share(self) -> SharedTransaction:
        """The data that others need to write to this transaction; they may do so until it ends."""
        self._require("share_transaction", TransactionState.IN_TRANSACTION)
        self._is_shared = True
        self._is_started = True
        return SharedTransaction(self.producer_id, self.producer_epoch, self.is_v2)

    def join(self, shared: SharedTransaction) -> None:
        """Writes to another producer's transaction from now on.

        Only one producer may write to each of its partitions.
        """
        self._require("join_transaction", TransactionState.UNINITIALIZED)
        self._forget_transaction()
        self._set_producer(shared.producer_id, shared.producer_epoch)
        self.is_v2 = shared.is_v2
        self.is_joined = True
        self._set(TransactionState.IN_TRANSACTION)

    async def leave(self, timeout_ms: float, flushed: asyncio.Future[None] | asyncio.Task[None]) -> None:
        """Waits until all records are acknowledged, and leaves the transaction open for its owner."""
        self._require("leave_transaction", TransactionState.IN_TRANSACTION)
        if not self.is_joined:
            raise TransactionMisuse(
                "leave_transaction: the transaction is this producer's own: commit or abort it"
            )
        await self._flushed(flushed, timeout_ms, "leaving")
        if self.state is not TransactionState.IN_TRANSACTION:
            self._raise_error("leave_transaction")
        self.is_joined = False
        self._set_producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        self._set(TransactionState.UNINITIALIZED)

    async def commit(self, timeout_ms: float, flushed: asyncio.Future[None] | asyncio.Task[None]) -> None:
        """Ends the transaction. After a time-out it may be called again; nothing else may."""
        self._require("commit_transaction", TransactionState.IN_TRANSACTION, TransactionState.COMMITTING)
        self._set(TransactionState.COMMITTING)
        await self._flushed(flushed, timeout_ms, "committing")
        if self.state is not TransactionState.COMMITTING:
            self._raise_error("commit_transaction")
        await self._end(timeout_ms, committed=True)
        self._set(TransactionState.READY)

    def begin_abort(self) -> None:
        """From now on nothing new is sent; give up unsent batches before `abort`."""
        if self.state not in (TransactionState.ABORTABLE_ERROR, TransactionState.ABORTING):
            self._require("abort_transaction", TransactionState.IN_TRANSACTION)
        self._set(TransactionState.ABORTING)

    async def abort(self, timeout_ms: float, flushed: asyncio.Future[None] | asyncio.Task[None]) -> None:
        """Ends the transaction as if it had never been."""
        await self._flushed(flushed, timeout_ms, "aborting")
        await self._added_what_is_under_way(timeout_ms)
        if not isinstance(self.error, InvalidProducerIdMapping):
            await self._end(timeout_ms, committed=False)
        if self._is_init_due_after_abort:
            await self._ask_producer_id(timeout_ms, self.producer_id, self.producer_epoch)
            self._is_init_due_after_abort = False
        self.error = None
        self._set(TransactionState.READY)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetToCommit], group: GroupMetadata, timeout_ms: float
    ) -> None:
        """Commits offsets of a group with the transaction."""
        self._require("send_offsets_to_transaction", TransactionState.IN_TRANSACTION)
        if not offsets:
            return
        if not self.is_v2:
            is_init_due = self._is_init_due_after_abort
            # If it is unknown whether this has started the transaction, a new epoch certainly ends it.
            self._is_init_due_after_abort = True
            await self._call(
                AddOffsetsToTxnRequest(
                    transactional_id=self._id,
                    producer_id=self.producer_id,
                    producer_epoch=self.producer_epoch,
                    group_id=group.group_id,
                ),
                timeout_ms,
                "adding offsets to the transaction",
            )
            self._is_init_due_after_abort = is_init_due
        self._is_started = True
        await self._commit_offsets(offsets, group, timeout_ms)

    def _require(self, call: str, *states: TransactionState) -> None:
        if not self.is_transactional:
            raise TransactionMisuse(f"{call} needs a producer with a transactional.id")
        if self.is_joined and call != "leave_transaction":
            raise TransactionMisuse(f"{call}: the transaction is another's: call leave_transaction()")
        if self.state in states:
            return
        if self.state in (TransactionState.FATAL_ERROR, TransactionState.ABORTABLE_ERROR):
            self._raise_error(call)
        if self.state is TransactionState.UNINITIALIZED:
            raise TransactionMisuse(f"{call}: call init_transactions() first")
        raise TransactionMisuse(f"{call} has no place here: the producer is {self.state}")

    def _raise_error(self, call: str) -> None:
        error = self.error
        assert error is not None
        if self.state is TransactionState.FATAL_ERROR:
            raise type(error)(f"{call}: the producer failed for good, make another one: {error}")
        raise type(error)(f"{call}: the transaction failed, call abort_transaction(): {error}")

    def _set(self, state: TransactionState) -> None:
        if self.state is not TransactionState.FATAL_ERROR:
            self.state = state
            if self.on_change is not None:
                self.on_change()

    def _set_abortable(self, error: KafkaError) -> None:
        if self.state in (TransactionState.IN_TRANSACTION, TransactionState.COMMITTING):
            self.error = error
            self._set(TransactionState.ABORTABLE_ERROR)

    def _set_fatal(self, error: KafkaError) -> None:
        self.fatal = error
        self.error = error
        self._set(TransactionState.FATAL_ERROR)

    def _forget_transaction(self) -> None:
        self._is_started = False
        self._is_shared = False
        self._added.clear()
        self._to_add.clear()

    def _finds_v2(self) -> bool:
        node = self._coordinator.node
        link = None if node is None else self._brokers.link_of(node)
        if link is None:
            return self.is_v2
        return link.features.epoch >= 0 and link.features.levels.get(FEATURE, 0) >= FIRST_LEVEL_V2

    async def _flushed(
        self, flushed: asyncio.Future[None] | asyncio.Task[None], timeout_ms: float, what: str
    ) -> None:
        try:
            await asyncio.wait_for(asyncio.shield(flushed), timeout_ms / 1000)
        except TimeoutError:
            raise RequestTimedOut(
                f"{what} the transaction: its records were not acknowledged within {timeout_ms:g} ms"
            ) from None

    async def _added_what_is_under_way(self, timeout_ms: float) -> None:
        """Waits for partitions that are being added: behind the end of this transaction they would begin another."""
        task = self._task
        if task is not None:
            await asyncio.wait([task], timeout=timeout_ms / 1000)
            if not task.done():
                raise RequestTimedOut(
                    f"aborting the transaction: its partitions were not added within {timeout_ms:g} ms"
                )

    async def _end(self, timeout_ms: float, *, committed: bool) -> None:
        if not self._is_started:
            return
        try:
            answer = await self._call(
                EndTxnRequest(
                    transactional_id=self._id,
                    producer_id=self.producer_id,
                    producer_epoch=self.producer_epoch,
                    committed=committed,
                ),
                timeout_ms,
                "committing the transaction" if committed else "aborting the transaction",
                max_version=None if self.is_v2 else LAST_END_TXN_V1,
                harmless=InvalidTxnState if self._is_shared and not committed else None,
            )
        except InvalidTxnState:
            if not self._is_shared or committed:
                raise
            # None of the producers that joined has written anything: there is nothing to abort.
            answer = None
        if answer is not None and self.is_v2 and answer.producer_id >= 0:
            self.set_producer(answer.producer_id, answer.producer_epoch)
        self._forget_transaction()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs one task beside the sender; while one runs, the next waits."""
        if self._task is not None:
            work.close()
            return
        self._task = self._loop.create_task(work)
        self._task.add_done_callback(self._work_done)

    def _work_done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, KafkaError):
            if not error.retriable:
                log.debug("transactions: %s", error)
        elif error is not None:
            log.error("a task of the producer failed in an unforeseen way", exc_info=error)
        if self.wake is not None:
            self.wake()

    async def _init_idempotent(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=NO_TIMEOUT_MS)
        try:
            answer = await retrying(
                lambda: self._ask(None, request, LAST_INIT_PRODUCER_ID),
                settings=self._settings,
                timeout_ms=self._settings.delivery_timeout_ms,
                what="getting a producer id",
            )
        except UnsupportedVersion as error:
            self._set_fatal(
                UnsupportedVersion(
                    f"the broker knows no idempotent producers: set enable_idempotence=False ({error})"
                )
            )
        except KafkaError as error:
            if not error.retriable:
                self._set_fatal(error)
        else:
            self._set_producer(answer.producer_id, answer.producer_epoch)

    async def _ask_producer_id(self, timeout_ms: float, producer_id: int, producer_epoch: int) -> None:
        answer = await self._call(
            InitProducerIdRequest(
                transactional_id=self._id,
                transaction_timeout_ms=self._settings.transaction_timeout_ms,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
            ),
            timeout_ms,
            f"getting the producer id of transactional.id {self._id!r}",
            max_version=LAST_INIT_PRODUCER_ID,
        )
        self._set_producer(answer.producer_id, answer.producer_epoch)

    def _set_producer(self, producer_id: int, producer_epoch: int) -> None:
        self._accumulator.lock.acquire()
        try:
            self.set_producer(producer_id, producer_epoch)
        finally:
            self._accumulator.lock.release()

    async def _add_partitions(self) -> None:
        adding = list(self._to_add)
        request = add_partitions_request(self._id, self.producer_id, self.producer_epoch, adding)
        try:
            await self._call(
                request,
                self._settings.delivery_timeout_ms,
                "adding partitions to the transaction",
                max_version=LAST_ADD_PARTITIONS_OF_CLIENTS,
            )
        except KafkaError:
            for tp in adding:
                self._to_add.pop(tp, None)
            raise
        for tp in adding:
            self._to_add.pop(tp, None)
            self._added.add(tp)
        self._is_started = True

    async def _commit_offsets(
        self, offsets: Mapping[TopicPartition, OffsetToCommit], group: GroupMetadata, timeout_ms: float
    ) -> None:
        coordinator = self._group_coordinators.setdefault(
            group.group_id, Coordinator(self._brokers, CoordinatorType.GROUP, group.group_id)
        )
        request = offsets_request(self._id, self.producer_id, self.producer_epoch, group, offsets)
        await self._call(
            request,
            timeout_ms,
            f"committing offsets of group {group.group_id!r} in the transaction",
            coordinator=coordinator,
            max_version=None if self.is_v2 else LAST_TXN_OFFSET_COMMIT_V1,
        )

    async def _call(
        self,
        request: Message,
        timeout_ms: float,
        what: str,
        *,
        coordinator: Coordinator | None = None,
        max_version: int | None = None,
        harmless: type[KafkaError] | None = None,
    ) -> Any:
        """The good answer of a coordinator. An error that ends the transaction or the producer is remembered."""
        asked = coordinator or self._coordinator
        try:
            return await retrying(
                lambda: self._ask(asked, request, max_version),
                settings=self._settings,
                timeout_ms=timeout_ms,
                what=what,
            )
        except InvalidProducerEpoch as error:
            # Older coordinators say so of a producer that was fenced.
            fenced = ProducerFenced(f"another producer uses transactional.id {self._id!r} now: {error}")
            self._set_fatal(fenced)
            raise fenced from None
        except ABORTABLE as error:
            if isinstance(error, UnknownProducerId | InvalidProducerIdMapping):
                self._is_init_due_after_abort = True
            self._set_abortable(error)
            raise
        except KafkaError as error:
            if not error.retriable and not (harmless is not None and isinstance(error, harmless)):
                self._set_fatal(error)
            raise

    async def _ask(self, coordinator: Coordinator | None, request: Message, max_version: int | None) -> Any:
        """One attempt; the first error code in the answer is raised."""
        while True:
            try:
                node = (
                    None if coordinator is None else await coordinator.find(self._settings.request_timeout_ms)
                )
                answer = await self._brokers.request(node, request, max_version=max_version)
                code = first_error(answer)
                if code == NONE:
                    return answer
                raise error_for_code(code)
            except ConcurrentTransactions:
                if self._is_started:
                    raise
                await asyncio.sleep(CONCURRENT_BACKOFF_S)
            except KafkaError as error:
                if coordinator is not None:
                    coordinator.forget_if_moved(error)
                raise
