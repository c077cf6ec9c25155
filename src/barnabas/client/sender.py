"""The sender: takes batches that are ready to the brokers that lead their partitions, and sees to their fate.

A batch is ready when it has `batch.size` bytes or another stands behind it, when it has waited for `linger.ms`, when
memory is exhausted, and when somebody flushes or closes; and not while it waits after a failure. A request
carries one batch of each ready partition of a broker, up to `max.request.size`; so many requests are under way to one
broker as `max.in.flight.requests.per.connection` says.

It runs when it is woken (a batch is ready, a connection is open, metadata or an answer has come) and when a timer says
that a batch has become ready or has become too old.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from mypy_extensions import i64

from barnabas.client.accumulator import Accumulator
from barnabas.client.batches import PartitionQueue, ProducerBatch
from barnabas.client.brokers import Brokers, Link, Node, backoff_ms_after
from barnabas.client.cluster import Cluster
from barnabas.client.failures import DeliveryTimedOut, RecordTooLarge
from barnabas.client.futures import run_callback
from barnabas.client.settings import ProducerSettings
from barnabas.client.transactions import TransactionManager
from barnabas.errors import (
    NONE,
    DuplicateSequenceNumber,
    FencedLeaderEpoch,
    InvalidRecord,
    KafkaError,
    MessageTooLarge,
    NetworkException,
    NotLeaderOrFollower,
    UnknownTopicId,
    UnsupportedVersion,
    error_for_code,
)
from barnabas.model import NO_OFFSET, NO_TIMESTAMP
from barnabas.protocol.apis import api_for_name
from barnabas.protocol.message import ZERO_UUID
from barnabas.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.messages.produce_response import PartitionProduceResponse, ProduceResponse
from barnabas.records.layout import CompressionType

log = logging.getLogger(__name__)

PRODUCE: Final = api_for_name("Produce")
FIRST_VERSION_WITH_BATCHES: Final = 3
FIRST_VERSION_WITH_ZSTD: Final = 7
# Before it, a partition is added to a transaction by a request of its own.
LAST_VERSION_WITHOUT_IMPLICIT_PARTITIONS: Final = 11
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
REQUEST_OVERHEAD_BYTES: Final = 512
FOREVER: Final = float("inf")


class Sender:
    def __init__(
        self,
        settings: ProducerSettings,
        brokers: Brokers,
        cluster: Cluster,
        accumulator: Accumulator,
        transactions: TransactionManager | None,
        post: Callable[[Callable[[], object]], object],
    ) -> None:
        """`post` has the loop call a function soon; it must work from wherever `wake` is called."""
        self._loop = asyncio.get_running_loop()
        self._post = post
        self._brokers = brokers
        self._cluster = cluster
        self._accumulator = accumulator
        self._transactions = transactions
        self._settings = settings
        self._compression = CompressionType[settings.compression_type.upper()]
        self._compression_level = settings.compression_level
        self._linger_s: float = settings.linger_ms / 1000
        self._delivery_timeout_s: float = settings.delivery_timeout_ms / 1000
        self._max_in_flight = settings.max_in_flight_requests_per_connection
        self._is_order_kept_by_muting = self._max_in_flight == 1
        self._max_request_bytes: int = settings.max_request_size
        self._acks = settings.acks_number
        self._random = random.Random()
        self._is_woken = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s: float = FOREVER
        # Requests under way by broker; and until when a broker that is throttling us is left alone.
        self._in_flight: dict[int, int] = {}
        self._throttled_until_s: dict[int, float] = {}
        # Batches whose requests are under way.
        self._sent: dict[ProducerBatch, None] = {}
        self._muted: set[PartitionQueue] = set()
        self._is_stopped = False
        brokers.on_change.append(self._on_change)
        cluster.on_update.append(self.wake)

    def wake(self) -> None:
        """Has the sender look for something to do; from any thread."""
        if not self._is_woken:
            self._is_woken = True
            self._post(self._run)

    def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def fail_all(self, error: KafkaError, *, only_unsent: bool = False) -> None:
        """Gives up all batches, or those that have not been sent."""
        for batch in list(self._accumulator.incomplete):
            if only_unsent and (batch.is_on_the_wire or batch.has_sequence):
                continue
            self._fail(batch, error, may_renumber=False)

    def _on_change(self, node_id: int) -> None:
        self.wake()

    def _run(self) -> None:
        self._is_woken = False
        if self._is_stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        transactions = self._transactions
        if transactions is not None:
            transactions.prepare()
        now_s = self._loop.time()
        self._timer_s = FOREVER
        expired = self._expired(now_s)
        for batch in expired:
            self._expire(batch)
        for node_id, queues in self._ready_queues(now_s).items():
            self._send_to(node_id, queues, now_s)
        if self._timer_s < FOREVER and not self._is_woken:
            self._timer = self._loop.call_at(self._timer_s, self.wake)

    def _check_at(self, time_s: float) -> None:
        if time_s < self._timer_s:
            self._timer_s = time_s

    def _expired(self, now_s: float) -> list[ProducerBatch]:
        expired: list[ProducerBatch] = []
        accumulator = self._accumulator
        accumulator.lock.acquire()
        try:
            # Batches stand in the order in which they were made, but for those that were split.
            for batch in accumulator.incomplete:
                deadline_s = batch.created_s + self._delivery_timeout_s
                if deadline_s > now_s:
                    self._check_at(deadline_s)
                    break
                expired.append(batch)
        finally:
            accumulator.lock.release()
        return expired

    def _expire(self, batch: ProducerBatch) -> None:
        error = DeliveryTimedOut(
            f"{batch.record_count} records for {batch.queue.tp} were not acknowledged within"
            f" {self._settings.delivery_timeout_ms} ms (delivery.timeout.ms)"
        )
        has_been_sent = batch.has_sequence or batch.attempts > 0
        self._fail(batch, error, may_renumber=False)
        if has_been_sent and self._transactions is not None:
            self._transactions.mark_unresolved(batch)

    def _ready_queues(self, now_s: float) -> dict[int, list[PartitionQueue]]:
        """The partitions with something to send, by the broker that leads them."""
        by_node: dict[int, list[PartitionQueue]] = {}
        accumulator = self._accumulator
        is_all_ready = accumulator.flushes > 0 or accumulator.is_closing
        accumulator.lock.acquire()
        try:
            is_all_ready = is_all_ready or accumulator.pool.is_exhausted
            batch_bytes = accumulator.batch_bytes
            for queue in accumulator.active:
                if queue in self._muted:
                    continue
                batch = queue.batches[0]
                if batch.attempts > 0 and batch.retry_at_s > now_s:
                    self._check_at(batch.retry_at_s)
                    continue
                if not (
                    is_all_ready
                    or batch.attempts > 0
                    or batch.size_bytes >= batch_bytes
                    or len(queue.batches) > 1
                    or batch.is_closed
                ):
                    ready_s = batch.created_s + self._linger_s
                    if ready_s > now_s:
                        self._check_at(ready_s)
                        continue
                leader = self._cluster.leader_of(queue.tp)
                if leader is None:
                    self._cluster.track(queue.tp.topic)
                    self._cluster.want_refresh()
                    continue
                if leader not in by_node:
                    by_node[leader] = []
                by_node[leader].append(queue)
        finally:
            accumulator.lock.release()
        return by_node

    def _send_to(self, node_id: int, queues: list[PartitionQueue], now_s: float) -> None:
        link = self._brokers.link_of(node_id)
        if link is None:
            self._brokers.connect_soon(node_id)
            left_s = self._brokers.backoff_left_s(node_id)
            if left_s > 0:
                self._check_at(now_s + left_s)
            self._cluster.want_refresh_if_unreachable(node_id)
            return
        throttled_until_s = self._throttled_until_s.get(node_id, 0.0)
        if throttled_until_s > now_s:
            self._check_at(throttled_until_s)
            return
        while self._in_flight.get(node_id, 0) < self._max_in_flight:
            batches = self._take(queues)
            if not batches:
                return
            self._send(link, batches)
            # Nobody starves: whoever was first goes last next time.
            queues = queues[1:] + queues[:1]

    def _take(self, queues: list[PartitionQueue]) -> list[ProducerBatch]:
        """The batches of the next request: the first of each partition, as many as fit."""
        taken: list[ProducerBatch] = []
        size_bytes: i64 = REQUEST_OVERHEAD_BYTES
        accumulator = self._accumulator
        transactions = self._transactions
        now_s = self._loop.time()
        accumulator.lock.acquire()
        try:
            batch_bytes = accumulator.batch_bytes
            is_all_ready = accumulator.flushes > 0 or accumulator.is_closing or accumulator.pool.is_exhausted
            for queue in queues:
                if not queue.batches or queue in self._muted:
                    continue
                batch = queue.batches[0]
                if batch.attempts > 0:
                    if batch.retry_at_s > now_s:
                        self._check_at(batch.retry_at_s)
                        continue
                elif not (
                    is_all_ready
                    or batch.is_closed
                    or batch.size_bytes >= batch_bytes
                    or len(queue.batches) > 1
                    or batch.created_s + self._linger_s <= now_s
                ):
                    self._check_at(batch.created_s + self._linger_s)
                    continue
                if taken and size_bytes + batch.size_bytes > self._max_request_bytes:
                    break
                if transactions is not None and not transactions.may_take(queue, batch):
                    continue
                accumulator.remove_waiting(queue, batch)
                if transactions is not None:
                    transactions.take(queue, batch)
                if self._is_order_kept_by_muting:
                    self._muted.add(queue)
                batch.is_on_the_wire = True
                taken.append(batch)
                size_bytes += batch.size_bytes
        finally:
            accumulator.lock.release()
        return taken

    def _send(self, link: Link, batches: list[ProducerBatch]) -> None:
        node_id = link.node.id
        try:
            version = self._version(link, batches)
            request = self._request(batches, version)
        except KafkaError as error:
            for batch in batches:
                self._done(batch, error, None)
            return
        self._in_flight[node_id] = self._in_flight.get(node_id, 0) + 1
        for batch in batches:
            self._sent[batch] = None
        self._brokers.submit(
            node_id,
            request,
            version,
            partial(self._answered, node_id, batches),
            expects_response=self._acks != 0,
        )

    def _version(self, link: Link, batches: list[ProducerBatch]) -> int:
        max_version = PRODUCE.last_version
        transactions = self._transactions
        if transactions is not None and transactions.is_transactional and not transactions.is_v2:
            max_version = LAST_VERSION_WITHOUT_IMPLICIT_PARTITIONS
        elif any(self._cluster.topic_id(batch.queue.tp.topic) is None for batch in batches):
            max_version = FIRST_VERSION_WITH_TOPIC_IDS - 1
        version = link.version_of(PRODUCE, max_version)
        needed = FIRST_VERSION_WITH_BATCHES
        if self._compression is CompressionType.ZSTD:
            needed = FIRST_VERSION_WITH_ZSTD
        if version < needed:
            raise UnsupportedVersion(
                f"the broker at {link.node} offers Produce up to {version}, and {needed} is needed"
            )
        return version

    def _request(self, batches: list[ProducerBatch], version: int) -> ProduceRequest:
        transactions = self._transactions
        transactional_id = self._settings.transactional_id
        by_topic: dict[str, TopicProduceData] = {}
        for batch in batches:
            name = batch.queue.tp.topic
            topic = by_topic.get(name)
            if topic is None:
                if version >= FIRST_VERSION_WITH_TOPIC_IDS:
                    topic = TopicProduceData(topic_id=self._cluster.topic_id(name) or ZERO_UUID)
                else:
                    topic = TopicProduceData(name=name)
                by_topic[name] = topic
            records = batch.build(
                self._compression,
                self._compression_level,
                transactions is not None and transactions.is_transactional,
            )
            topic.partition_data.append(PartitionProduceData(index=batch.queue.tp.partition, records=records))
        return ProduceRequest(
            transactional_id=transactional_id,
            acks=self._acks,
            timeout_ms=self._settings.request_timeout_ms,
            topic_data=list(by_topic.values()),
        )

    def _answered(
        self, node_id: int, batches: list[ProducerBatch], answer: Any, error: KafkaError | None
    ) -> None:
        self._in_flight[node_id] -= 1
        for batch in batches:
            self._sent.pop(batch, None)
        if error is not None:
            for batch in batches:
                self._done(batch, error, None)
        elif answer is None:
            for batch in batches:
                self._succeed(batch, NO_OFFSET, NO_TIMESTAMP)
        else:
            self._take_answer(node_id, batches, answer)
        self.wake()

    def _take_answer(self, node_id: int, batches: list[ProducerBatch], answer: ProduceResponse) -> None:
        if answer.throttle_time_ms > 0:
            self._throttled_until_s[node_id] = self._loop.time() + answer.throttle_time_ms / 1000
        for endpoint in answer.node_endpoints:
            self._brokers.learn(Node(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack))
        left = {batch.queue.tp: batch for batch in batches}
        for topic in answer.responses:
            name = topic.name or self._cluster.topic_name(topic.topic_id)
            for response in topic.partition_responses:
                found = next(
                    (
                        tp
                        for tp in left
                        if tp.partition == response.index and (tp.topic == name or name is None)
                    ),
                    None,
                )
                if found is None:
                    continue
                batch = left.pop(found)
                if response.error_code == NONE:
                    self._succeed(batch, response.base_offset, response.log_append_time_ms)
                else:
                    error = error_for_code(response.error_code, response.error_message or "")
                    self._done(batch, error, response)
        for batch in left.values():
            self._done(batch, NetworkException(f"the answer says nothing of {batch.queue.tp}"), None)

    def _done(
        self, batch: ProducerBatch, error: KafkaError, response: PartitionProduceResponse | None
    ) -> None:
        """A batch that was not stored, as far as anybody knows."""
        batch.is_on_the_wire = False
        self._muted.discard(batch.queue)
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
            self._succeed(batch, NO_OFFSET, NO_TIMESTAMP)
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
            self._fail(batch, error, may_renumber=batch.attempts < self._settings.retries)

    def _refresh_after(
        self, batch: ProducerBatch, error: KafkaError, response: PartitionProduceResponse | None
    ) -> None:
        """An error that a wrong idea of the cluster can explain is a reason to look again."""
        tp = batch.queue.tp
        if isinstance(error, NotLeaderOrFollower | FencedLeaderEpoch) and response is not None:
            leader = response.current_leader
            if leader.leader_id >= 0 and self._cluster.move_leader(tp, leader.leader_id, leader.leader_epoch):
                return
        if error.retriable or isinstance(error, UnknownTopicId):
            self._cluster.want_refresh()

    def _may_retry(self, batch: ProducerBatch, error: KafkaError, log_start_offset: int) -> bool:
        if batch.attempts >= self._settings.retries or self._is_stopped:
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
        batch.retry_at_s = self._loop.time() + backoff_ms / 1000
        accumulator = self._accumulator
        accumulator.lock.acquire()
        try:
            accumulator.put_back(batch)
        finally:
            accumulator.lock.release()
        self.wake()

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
                    sequence = (sequence + part.record_count) & 0x7FFF_FFFF
                first += part.record_count
            if batch.has_sequence:
                position = queue.in_flight.index(batch)
                queue.in_flight[position : position + 1] = parts
            charged = batch.charged_bytes
            for part in reversed(parts):
                charged -= part.charged_bytes
                accumulator.put_back(part)
            # The rules for what expires next read this in order: parts are as old as what they were made of.
            rest = [each for each in accumulator.incomplete if each is not batch]
            accumulator.incomplete.clear()
            accumulator.incomplete.update(dict.fromkeys([*parts, *rest]))
            accumulator.pool.free(charged)
            batch.parts = parts
            if batch.event is not None:
                batch.event.set()
        finally:
            accumulator.lock.release()
        self.wake()

    def _succeed(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int) -> None:
        batch.is_on_the_wire = False
        self._muted.discard(batch.queue)
        accumulator = self._accumulator
        if self._transactions is not None:
            accumulator.lock.acquire()
            try:
                self._transactions.acknowledged(batch, base_offset)
            finally:
                accumulator.lock.release()
        if not batch.is_done:
            self._finish(batch, None, base_offset, log_append_time_ms)

    def _fail(self, batch: ProducerBatch, error: KafkaError, *, may_renumber: bool) -> None:
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
            batch.writer = None
            if not batch.is_on_the_wire:
                batch.encoded = None
            accumulator.incomplete.pop(batch, None)
            accumulator.pool.free(batch.charged_bytes)
            callbacks = batch.callbacks
            batch.callbacks = None
            if batch.event is not None:
                batch.event.set()
        finally:
            accumulator.lock.release()
        if callbacks is not None:
            for _, call in callbacks:
                run_callback(call)


def _record_error(error: KafkaError, message: str | None, response: PartitionProduceResponse) -> KafkaError:
    """As the protocol has one code for all, a single bad record has it, and several are just invalid."""
    text = message or response.error_message or ""
    return type(error)(text) if len(response.record_errors) == 1 else InvalidRecord(text)
