"""The sender: sends ready batches to the leaders of their partitions, and handles the responses.

A batch is ready when it has `batch.size` bytes or another one follows it, when it has waited for `linger.ms`, when
memory is exhausted, and when a thread flushes or closes; but not during the back-off after a failure. A request has one
batch of each ready partition of a broker, up to `max.request.size`. At most `max.in.flight.requests.per.connection`
requests to one broker are in flight.

The sender runs when it is woken (a batch is ready, a connection is open, metadata or a response has arrived) and when a
timer fires because a batch has become ready or too old.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from mypy_extensions import i64

from barnabas.client.connections.brokers import Brokers
from barnabas.client.connections.cluster import Cluster
from barnabas.client.producer.accumulator import Accumulator
from barnabas.client.producer.batches import PartitionQueue, ProducerBatch
from barnabas.client.producer.delivery import Delivery
from barnabas.client.producer.transactions import TransactionManager
from barnabas.client.samples import Samples
from barnabas.client.settings import ProducerSettings
from barnabas.errors import (
    NONE,
    KafkaError,
    NetworkException,
    UnsupportedVersion,
    error_for_code,
)
from barnabas.model import NO_OFFSET, NO_TIMESTAMP
from barnabas.peers.handshake import Link
from barnabas.peers.node import Node
from barnabas.protocol.apis import api_for_name
from barnabas.protocol.message import ZERO_UUID
from barnabas.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.messages.produce_response import ProduceResponse
from barnabas.records.layout import CompressionType

log = logging.getLogger(__name__)

PRODUCE: Final = api_for_name("Produce")
FIRST_VERSION_WITH_BATCHES: Final = 3
FIRST_VERSION_WITH_ZSTD: Final = 7
# Below this version, a separate request adds a partition to a transaction.
LAST_VERSION_WITHOUT_IMPLICIT_PARTITIONS: Final = 11
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
REQUEST_OVERHEAD_BYTES: Final = 512
FOREVER: Final = float("inf")
PAUSE_AFTER_FAILURE_S: Final = 0.1
# Timers of the loop may be late by this much.
TIMER_SLACK_S: Final = 0.001


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
        """`post` makes the loop call a function soon; it must work from every thread that calls `wake`."""
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
        self.delivery_timeout_s: float = settings.delivery_timeout_ms / 1000
        self._max_in_flight = settings.max_in_flight_requests_per_connection
        self._is_order_kept_by_muting = self._max_in_flight == 1
        self._max_request_bytes: int = settings.max_request_size
        self._acks = settings.acks_number
        self._is_woken = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s: float = FOREVER
        # Requests in flight by broker; and the end of the throttle of a broker that throttles us.
        self._in_flight: dict[int, int] = {}
        self._throttled_until_s: dict[int, float] = {}
        # Bytes of the batches that are sent, and milliseconds from their first record until then.
        self.batch_size = Samples("batch-size")
        self.queue_time = Samples("record-queue-time")
        self.delivery = Delivery(settings, cluster, accumulator, transactions)
        brokers.on_change.append(self._on_change)
        cluster.on_update.append(self.wake)

    def wake(self) -> None:
        """Makes the sender look for work; from any thread."""
        if not self._is_woken:
            self._is_woken = True
            try:
                self._post(self._run)
            except BaseException:
                # The caller was interrupted: the next caller tries again.
                self._is_woken = False
                raise

    def stop(self) -> None:
        self.delivery.is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_change(self, node_id: int) -> None:
        self.wake()

    def give_up_all(self, error: KafkaError, *, only_unsent: bool = False) -> None:
        self.delivery.give_up_all(error, only_unsent=only_unsent)

    def _run(self) -> None:
        self._is_woken = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.delivery.is_stopped:
            return
        self._timer_s = FOREVER
        try:
            self._look()
        except Exception:
            log.exception("The sender of a producer failed unexpectedly. It continues")
            self._check_at(self._loop.time() + PAUSE_AFTER_FAILURE_S)
        if self._timer_s < FOREVER and not self._is_woken:
            self._timer = self._loop.call_at(self._timer_s, self.wake)

    def _look(self) -> None:
        now_s = self._loop.time()
        transactions = self._transactions
        if transactions is not None:
            transactions.prepare()
            if transactions.fatal is not None:
                self.give_up_all(transactions.fatal)
            elif transactions.error is not None:
                # The transaction is to be aborted: waits for what was sent, and sends nothing else.
                self.give_up_all(transactions.error, only_unsent=True)
        for batch in self._expired(now_s):
            self.delivery.expire(batch)
        for node_id, queues in self._ready_queues(now_s).items():
            self._send_to(node_id, queues, now_s)

    def _check_at(self, time_s: float) -> None:
        if time_s < self._timer_s:
            self._timer_s = time_s

    def _expired(self, now_s: float) -> list[ProducerBatch]:
        expired: list[ProducerBatch] = []
        accumulator = self._accumulator
        accumulator.lock.acquire()
        try:
            # Batches are in the order of their creation, except for split ones.
            for batch in accumulator.incomplete:
                deadline_s = batch.created_s + self.delivery_timeout_s
                if deadline_s > now_s:
                    self._check_at(deadline_s)
                    break
                expired.append(batch)
        finally:
            accumulator.lock.release()
        return expired

    def _ready_at_s(self, queue: PartitionQueue, batch: ProducerBatch, is_all_ready: bool) -> float:
        """Since or from when the first batch of a queue may be sent."""
        if batch.attempts > 0:
            return batch.retry_at_s
        if (
            is_all_ready
            or batch.is_closed
            or batch.size_bytes >= self._accumulator.batch_bytes
            or len(queue.batches) > 1
        ):
            return 0.0
        return batch.created_s + self._linger_s - TIMER_SLACK_S

    def _ready_queues(self, now_s: float) -> dict[int, list[PartitionQueue]]:
        """The partitions with something to send, by the broker that leads them."""
        by_node: dict[int, list[PartitionQueue]] = {}
        accumulator = self._accumulator
        accumulator.lock.acquire()
        try:
            is_all_ready = accumulator.is_all_ready
            for queue in accumulator.active:
                if queue in self.delivery.muted:
                    continue
                ready_s = self._ready_at_s(queue, queue.batches[0], is_all_ready)
                if ready_s > now_s:
                    self._check_at(ready_s)
                    continue
                leader = self._cluster.leader_of(queue.tp)
                if leader is None:
                    self._cluster.track(queue.tp.topic)
                    self._cluster.want_refresh()
                elif leader in by_node:
                    by_node[leader].append(queue)
                else:
                    by_node[leader] = [queue]
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
            batches = self._take(queues, now_s)
            if not batches:
                return
            self._send(link, batches)
            # For fairness, the first of this round is the last of the next.
            queues = queues[1:] + queues[:1]

    def _take(self, queues: list[PartitionQueue], now_s: float) -> list[ProducerBatch]:
        """The batches of the next request: the first of each partition, as many as fit."""
        taken: list[ProducerBatch] = []
        size_bytes: i64 = REQUEST_OVERHEAD_BYTES
        accumulator = self._accumulator
        transactions = self._transactions
        muted = self.delivery.muted
        accumulator.lock.acquire()
        try:
            is_all_ready = accumulator.is_all_ready
            for queue in queues:
                if not queue.batches or queue in muted:
                    continue
                batch = queue.batches[0]
                ready_s = self._ready_at_s(queue, batch, is_all_ready)
                if ready_s > now_s:
                    self._check_at(ready_s)
                    continue
                if taken and size_bytes + batch.size_bytes > self._max_request_bytes:
                    continue
                if transactions is not None and not transactions.may_take(queue, batch):
                    continue
                accumulator.remove_waiting(queue, batch)
                if transactions is not None:
                    transactions.take(queue, batch)
                if self._is_order_kept_by_muting:
                    muted.add(queue)
                batch.is_on_the_wire = True
                taken.append(batch)
                size_bytes += batch.size_bytes
        finally:
            accumulator.lock.release()
        return taken

    def _send(self, link: Link, batches: list[ProducerBatch]) -> None:
        node_id = link.node.id
        sent_s = self._loop.time()
        try:
            version = self._version(link, batches)
            request = self._request(batches, version, sent_s)
            self._brokers.submit(
                node_id,
                request,
                version,
                partial(self._answered, node_id, batches, sent_s),
                expects_response=self._acks != 0,
            )
        except KafkaError as error:
            for batch in batches:
                self.delivery.refused(batch, error, None)
            self.wake()
            return
        self._in_flight[node_id] = self._in_flight.get(node_id, 0) + 1

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

    def _request(self, batches: list[ProducerBatch], version: int, now_s: float) -> ProduceRequest:
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
            batch.sent_topic_id = topic.topic_id if version >= FIRST_VERSION_WITH_TOPIC_IDS else b""
            records = batch.build(
                self._compression,
                self._compression_level,
                transactions is not None and transactions.is_transactional,
            )
            self.batch_size.add(len(records), now_s)
            self.queue_time.add((now_s - batch.created_s) * 1000, now_s)
            topic.partition_data.append(PartitionProduceData(index=batch.queue.tp.partition, records=records))
        return ProduceRequest(
            transactional_id=transactional_id,
            acks=self._acks,
            timeout_ms=self._settings.request_timeout_ms,
            topic_data=list(by_topic.values()),
        )

    def _answered(
        self,
        node_id: int,
        batches: list[ProducerBatch],
        sent_s: float,
        answer: Any,
        error: KafkaError | None,
    ) -> None:
        self._in_flight[node_id] -= 1
        if error is not None:
            for batch in batches:
                self.delivery.refused(batch, error, None)
        elif answer is None:
            for batch in batches:
                self.delivery.acknowledged(batch, NO_OFFSET, NO_TIMESTAMP)
        else:
            now_s = self._loop.time()
            self._brokers.request_latency.add((now_s - sent_s) * 1000, now_s)
            self._take_answer(node_id, batches, answer)
        self.wake()

    def _take_answer(self, node_id: int, batches: list[ProducerBatch], answer: ProduceResponse) -> None:
        if answer.throttle_time_ms > 0:
            self._throttled_until_s[node_id] = self._loop.time() + answer.throttle_time_ms / 1000
        for endpoint in answer.node_endpoints:
            self._brokers.learn(Node(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack))
        left: dict[tuple[str | bytes, int], ProducerBatch] = {}
        for batch in batches:
            # A topic may be recreated while a request is in flight: the response names the intended topic.
            key = batch.sent_topic_id or batch.queue.tp.topic
            left[key, batch.queue.tp.partition] = batch
        for topic in answer.responses:
            named: str | bytes = topic.name or topic.topic_id
            for response in topic.partition_responses:
                answered = left.pop((named, response.index), None)
                if answered is None:
                    continue
                batch = answered
                if response.error_code == NONE:
                    self.delivery.acknowledged(batch, response.base_offset, response.log_append_time_ms)
                else:
                    error = error_for_code(response.error_code, response.error_message or "")
                    self.delivery.refused(batch, error, response)
        for batch in left.values():
            self.delivery.refused(
                batch, NetworkException(f"the answer says nothing of {batch.queue.tp}"), None
            )
