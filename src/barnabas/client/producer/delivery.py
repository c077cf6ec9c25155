"""The result of a batch that was sent: acknowledged, sent again, split, or given up.

If a batch is given up while its request is in flight, it is done for its caller; its sequences are settled when the
response arrives.
"""

from __future__ import annotations

import asyncio
import logging
import random

from mypy_extensions import i64

from barnabas.client.connections.brokers import backoff_ms_after
from barnabas.client.connections.cluster import Cluster
from barnabas.client.failures import DeliveryTimedOut, RecordTooLarge
from barnabas.client.producer.accumulator import Accumulator
from barnabas.client.producer.batches import SEQUENCE_MASK, PartitionQueue, ProducerBatch
from barnabas.client.producer.futures import run_callback
from barnabas.client.producer.transactions import TransactionManager
from barnabas.client.settings import ProducerSettings
from barnabas.errors import (
    DuplicateSequenceNumber,
    FencedLeaderEpoch,
    InvalidRecord,
    KafkaError,
    MessageTooLarge,
    NotLeaderOrFollower,
)
from barnabas.model import NO_OFFSET, NO_TIMESTAMP
from barnabas.protocol.messages.produce_response import PartitionProduceResponse

log = logging.getLogger(__name__)


class Delivery:
    def __init__(
        self,
        settings: ProducerSettings,
        cluster: Cluster,
        accumulator: Accumulator,
        transactions: TransactionManager | None,
    ) -> None:
        # Partitions to which nothing is sent until the response arrives: a single request in flight preserves the
        # order.
        self.muted: set[PartitionQueue] = set()
        self.is_stopped = False
        # Since the start: records that were acknowledged, that have failed, and that were sent again.
        self.records_sent = 0
        self.records_failed = 0
        self.records_retried = 0
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self._cluster = cluster
        self._accumulator = accumulator
        self._transactions = transactions
        self._random = random.Random()

    def refused(
        self, batch: ProducerBatch, error: KafkaError, response: PartitionProduceResponse | None
    ) -> None:
        """A batch that was not stored, as far as anybody knows."""
        batch.is_on_the_wire = False
        self.muted.discard(batch.queue)
        if batch.is_done:
            # It was given up while it was under way.
            self._forget_in_flight(batch)
            return
        if isinstance(error, MessageTooLarge) and batch.record_count > 1:
            self._split(batch)
            return
        self._refresh_after(batch, error, response)
        log_start_offset = NO_OFFSET if response is None else response.log_start_offset
        if self._may_retry(batch, error, log_start_offset):
            self._retry(batch, error)
        elif isinstance(error, DuplicateSequenceNumber):
            # It is stored, longer ago than the broker remembers offsets.
            self.acknowledged(batch, NO_OFFSET, NO_TIMESTAMP)
        else:
            if response is not None and response.record_errors:
                batch.record_errors = {
                    each.batch_index: _record_error(error, each.batch_index_error_message, response)
                    for each in response.record_errors
                }
            if isinstance(error, MessageTooLarge):
                error = RecordTooLarge(
                    f"a record of about {batch.size_bytes} bytes for {batch.queue.tp} is larger than the topic allows:"
                    " raise its max.message.bytes, or make the record smaller"
                )
            self.give_up(batch, error, may_renumber=batch.attempts < self._settings.retries)

    def _refresh_after(
        self, batch: ProducerBatch, error: KafkaError, response: PartitionProduceResponse | None
    ) -> None:
        """An error that a wrong idea of the cluster can explain is a reason to look again."""
        tp = batch.queue.tp
        if isinstance(error, NotLeaderOrFollower | FencedLeaderEpoch) and response is not None:
            leader = response.current_leader
            if leader.leader_id >= 0 and self._cluster.move_leader(tp, leader.leader_id, leader.leader_epoch):
                return
        if error.retriable:
            self._cluster.want_refresh()

    def _may_retry(self, batch: ProducerBatch, error: KafkaError, log_start_offset: int) -> bool:
        if batch.attempts >= self._settings.retries or self.is_stopped:
            return False
        transactions = self._transactions
        if transactions is None:
            return error.retriable
        if transactions.fatal is not None:
            return False
        accumulator = self._accumulator
        accumulator.lock.acquire()
        try:
            return transactions.may_retry(batch, error, log_start_offset)
        finally:
            accumulator.lock.release()

    def _retry(self, batch: ProducerBatch, error: KafkaError) -> None:
        backoff_ms = backoff_ms_after(
            batch.attempts,
            first_ms=self._settings.retry_backoff_ms,
            max_ms=self._settings.retry_backoff_max_ms,
            chooser=self._random,
        )
        log.debug("%s: %s, sent again in %d ms", batch.queue.tp, error, backoff_ms)
        batch.attempts += 1
        self.records_retried += batch.record_count
        batch.retry_at_s = self._loop.time() + backoff_ms / 1000
        accumulator = self._accumulator
        accumulator.lock.acquire()
        try:
            accumulator.put_back(batch)
        finally:
            accumulator.lock.release()

    def _split(self, batch: ProducerBatch) -> None:
        """Puts batches of fewer records in place of one that was too large; later ones stay below that."""
        accumulator = self._accumulator
        queue = batch.queue
        assert batch.encoded is not None
        encoded_bytes = len(batch.encoded)
        target_bytes: i64 = accumulator.batch_bytes
        if batch.size_bytes <= target_bytes or encoded_bytes <= target_bytes:
            target_bytes = batch.size_bytes // 2
        accumulator.lock.acquire()
        try:
            queue.max_batch_bytes = min(queue.max_batch_bytes, max(target_bytes, 1))
            parts = batch.split(target_bytes)
            log.debug("%s: a batch of %d bytes is too large, now %d", queue.tp, encoded_bytes, len(parts))
            callbacks = batch.callbacks or []
            batch.callbacks = None
            sequence = batch.base_sequence
            first: i64 = 0
            for part in parts:
                own = [
                    (index - first, call)
                    for index, call in callbacks
                    if 0 <= index - first < part.record_count
                ]
                part.callbacks = own or None
                if batch.has_sequence:
                    part.set_producer(batch.producer_id, batch.producer_epoch, sequence)
                    sequence = (sequence + part.record_count) & SEQUENCE_MASK
                first += part.record_count
            if batch.has_sequence:
                position = queue.in_flight.index(batch)
                queue.in_flight[position : position + 1] = parts
            charged = batch.charged_bytes
            for part in reversed(parts):
                charged -= part.charged_bytes
                accumulator.put_back(part)
            # Expiry is read in order: parts of a split batch have its age and take its place.
            incomplete: list[ProducerBatch] = []
            for each in accumulator.incomplete:
                if each is batch:
                    incomplete.extend(parts)
                else:
                    incomplete.append(each)
            accumulator.incomplete.clear()
            accumulator.incomplete.update(dict.fromkeys(incomplete))
            accumulator.pool.free(charged)
            batch.parts = parts
            if batch.event is not None:
                batch.event.set()
        finally:
            accumulator.lock.release()

    def acknowledged(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int) -> None:
        batch.is_on_the_wire = False
        self.muted.discard(batch.queue)
        accumulator = self._accumulator
        if self._transactions is not None:
            accumulator.lock.acquire()
            try:
                self._transactions.acknowledged(batch, base_offset)
            finally:
                accumulator.lock.release()
        if not batch.is_done:
            self._finish(batch, None, base_offset, log_append_time_ms)

    def give_up(self, batch: ProducerBatch, error: KafkaError, *, may_renumber: bool) -> None:
        if batch.is_done:
            return
        accumulator = self._accumulator
        transactions = self._transactions
        accumulator.lock.acquire()
        try:
            if batch in batch.queue.batches:
                accumulator.remove_waiting(batch.queue, batch)
            if transactions is not None and not batch.is_on_the_wire:
                transactions.failed(batch, error, may_renumber=may_renumber)
        finally:
            accumulator.lock.release()
        if transactions is not None:
            transactions.after_failure(batch, error)
        self._finish(batch, error, NO_OFFSET, NO_TIMESTAMP)

    def _forget_in_flight(self, batch: ProducerBatch) -> None:
        if self._transactions is not None:
            accumulator = self._accumulator
            accumulator.lock.acquire()
            try:
                self._transactions.forget(batch)
            finally:
                accumulator.lock.release()

    def _finish(
        self, batch: ProducerBatch, error: KafkaError | None, base_offset: int, log_append_time_ms: int
    ) -> None:
        accumulator = self._accumulator
        accumulator.lock.acquire()
        try:
            batch.error = error
            batch.base_offset = base_offset
            batch.log_append_time_ms = log_append_time_ms
            batch.is_done = True
            if error is None:
                self.records_sent += batch.record_count
            else:
                self.records_failed += batch.record_count
            batch.writer = None
            if not batch.is_on_the_wire:
                batch.encoded = None
            accumulator.pool.free(batch.charged_bytes)
            callbacks = batch.callbacks
            batch.callbacks = None
        finally:
            accumulator.lock.release()
        if callbacks is not None:
            for _, call in callbacks:
                run_callback(call)
        # Until now the topic was needed; from now on it is idle.
        self._cluster.used(batch.queue.tp.topic)
        accumulator.lock.acquire()
        try:
            # A flush waits until all callbacks have been called.
            batch.is_told = True
            accumulator.incomplete.pop(batch, None)
            if batch.event is not None:
                batch.event.set()
        finally:
            accumulator.lock.release()

    def expire(self, batch: ProducerBatch) -> None:
        error = DeliveryTimedOut(
            f"{batch.record_count} records for {batch.queue.tp} were not acknowledged within"
            f" {self._settings.delivery_timeout_ms} ms (delivery.timeout.ms)"
        )
        has_been_sent = batch.has_sequence or batch.attempts > 0
        self.give_up(batch, error, may_renumber=False)
        if has_been_sent and self._transactions is not None:
            self._transactions.mark_unresolved(batch)

    def give_up_all(self, error: KafkaError, *, only_unsent: bool = False) -> None:
        """Gives up all batches, or those that have not been sent."""
        for batch in list(self._accumulator.incomplete):
            if only_unsent and (batch.is_on_the_wire or batch.has_sequence):
                continue
            self.give_up(batch, error, may_renumber=False)


def _record_error(error: KafkaError, message: str | None, response: PartitionProduceResponse) -> KafkaError:
    """As the protocol has one code for all, a single bad record has it, and several are just invalid."""
    text = message or response.error_message or ""
    return type(error)(text) if len(response.record_errors) == 1 else InvalidRecord(text)
