"""Fetching ahead: at most one request per broker in flight, for all partitions that have room for more.

The fetcher runs on the loop and only moves bytes: it queues what arrives for the polling caller, with the offset of the
next fetch. It fetches a partition while less than FETCHES_AHEAD times max.partition.fetch.bytes of it wait for the
caller, and any partition while less than fetch.max.bytes wait in total, so memory stays below about twice that. Errors
that the caller must see are in the queue at their place, behind the earlier records.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable
from typing import Final

from barnabas.client.connections.brokers import Brokers
from barnabas.client.connections.cluster import Cluster
from barnabas.client.consumer.fetched import NONE_ABORTED, AbortedTransactions, Fetched, end_of
from barnabas.client.consumer.fetcher_sessions import FINAL_EPOCH, FetchSession
from barnabas.client.partition_state import PartitionState
from barnabas.client.samples import Samples
from barnabas.client.settings import ConsumerSettings
from barnabas.client.subscription import Subscription
from barnabas.errors import (
    NONE,
    FencedLeaderEpoch,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InconsistentTopicId,
    InvalidFetchSessionEpoch,
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    ReplicaNotAvailable,
    UnknownLeaderEpoch,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    error_for_code,
)
from barnabas.model import TopicPartition
from barnabas.protocol.apis import api_for_name
from barnabas.protocol.message import ZERO_UUID
from barnabas.protocol.messages.fetch_request import FetchPartition, FetchRequest
from barnabas.protocol.messages.fetch_response import FetchResponse, PartitionData

log = logging.getLogger(__name__)

FETCH: Final = api_for_name("Fetch")
FIRST_VERSION_WITH_SESSIONS: Final = 7
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
# A caller that works between polls leaves the loop little time; data that is fetched ahead keeps the caller from
# waiting.
FETCHES_AHEAD: Final = 4
# How long a broker may hold a fetch that omits a partition which is to be fetched soon: too much of it waits for the
# caller, or its position is being looked up. Another fetch has to wait for the end of this one.
SHORT_WAIT_MS: Final = 10
# So many short fetches in a row wait for one lookup, which may take long if a broker is away.
SHORT_WAITS_MAX: Final = 50
# Answers with fewer bytes go to the caller before the next fetch goes out.
FEW_BYTES: Final = 16 * 1024
NO_REPLICA: Final = -1
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

SESSION_ERRORS: Final = frozenset(
    {FetchSessionIdNotFound.code, InvalidFetchSessionEpoch.code, FetchSessionTopicIdError.code}
)
# The leader is elsewhere, or the topic has changed: metadata is refreshed.
STALE_METADATA: Final = frozenset(
    {
        NotLeaderOrFollower.code,
        ReplicaNotAvailable.code,
        KafkaStorageError.code,
        FencedLeaderEpoch.code,
        UnknownTopicOrPartition.code,
        UnknownTopicId.code,
        InconsistentTopicId.code,
    }
)
# The broker's state is older than ours, or not available yet.
PASSING: Final = frozenset({OffsetNotAvailable.code, UnknownLeaderEpoch.code, UnknownServerError.code})


class _UnderWay:
    """A fetch without a response yet: its states, and the names of its topic ids."""

    __slots__ = ("names", "offsets", "sent_s", "states")

    def __init__(
        self, states: dict[TopicPartition, PartitionState], names: dict[bytes, str], sent_s: float
    ) -> None:
        self.sent_s = sent_s
        self.states = states
        self.offsets = {partition: state.fetch_offset for partition, state in states.items()}
        self.names = names


class Fetcher:
    def __init__(
        self,
        settings: ConsumerSettings,
        brokers: Brokers,
        cluster: Cluster,
        subscription: Subscription,
        *,
        on_fetched: Callable[[], None],
        needs_validation: Callable[[PartitionState], bool],
    ) -> None:
        """`on_fetched` is called after something was queued; `needs_validation` starts one if it is due."""
        # Filled here, emptied by the polling caller.
        self.queue: deque[Fetched] = deque()
        # Since the start: requests that were answered, and bytes of records in the answers.
        self.fetches = 0
        self.fetched_bytes = 0
        # Milliseconds until an answer, which the broker may hold for fetch.max.wait.ms.
        self.fetch_latency = Samples("fetch-latency")
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self._brokers = brokers
        self._cluster = cluster
        self._subscription = subscription
        self._on_fetched = on_fetched
        self._needs_validation = needs_validation
        self._isolation_level = (
            READ_COMMITTED if settings.isolation_level == "read_committed" else READ_UNCOMMITTED
        )
        self._sessions: dict[int, FetchSession] = {}
        self._under_way: dict[int, _UnderWay] = {}
        self._muted_until_s: dict[int, float] = {}
        # Where a leader has sent us to read from, and until when (KIP-392).
        self._preferred: dict[TopicPartition, tuple[int, float]] = {}
        self._is_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        brokers.on_change.append(self._on_connection)
        cluster.on_update.append(self.wake)

    def wake(self) -> None:
        """Sends what can be sent, soon and once, however often it is called before that."""
        if not self._is_scheduled and not self._is_closed:
            self._is_scheduled = True
            self._loop.call_soon(self._send)

    async def close(self) -> None:
        """Ends the sessions, for those brokers that still listen."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for node, session in self._sessions.items():
            link = self._brokers.link_of(node)
            if session.session_id and link is not None and node not in self._under_way:
                request = FetchRequest(session_id=session.session_id, session_epoch=FINAL_EPOCH)
                version = link.version_of(FETCH)
                self._brokers.submit(node, request, version, lambda _answer, _error: None)

    def _on_connection(self, node: int) -> None:
        self.wake()

    def _send(self) -> None:
        self._is_scheduled = False
        if self._is_closed:
            return
        now_s = self._loop.time()
        settings = self._settings
        # A broker gives at least one batch, however small the size is that it is asked for.
        ahead_bytes = FETCHES_AHEAD * max(settings.max_partition_fetch_bytes, 1)
        states = list(self._subscription.partitions.values())
        waiting_bytes = 0
        for state in states:
            # Data of a paused partition waits for its own reason.
            if not state.is_paused:
                waiting_bytes += state.waiting_bytes
        is_full = waiting_bytes >= max(settings.fetch_max_bytes, 1)
        by_node: dict[int, list[PartitionState]] = {}
        starving: set[int] = set()
        looked_up: dict[int, list[PartitionState]] = {}
        for state in states:
            if state.is_paused or state.is_awaiting_callback:
                continue
            node = self._node_of(state.partition, now_s)
            if node is None or node in self._under_way:
                continue
            if state.fetch_offset is None:
                if state.retry_s <= now_s:
                    looked_up.setdefault(node, []).append(state)
                continue
            if is_full or state.waiting_bytes >= ahead_bytes:
                state.is_starved = True
                if not is_full and state.waiting_bytes < ahead_bytes:
                    # It was drained just now, by a caller that did not see the mark yet.
                    state.is_starved = False
                else:
                    starving.add(node)
                    continue
            if state.retry_s > now_s:
                self._wake_at(state.retry_s)
            elif self._needs_validation(state):
                looked_up.setdefault(node, []).append(state)
            else:
                state.short_waits = 0
                by_node.setdefault(node, []).append(state)
        for node, wanted in by_node.items():
            is_short = node in starving
            for state in looked_up.get(node, ()):
                if state.short_waits < SHORT_WAITS_MAX:
                    state.short_waits += 1
                    is_short = True
            self._fetch_from(node, wanted, now_s, is_short=is_short)

    def _node_of(self, partition: TopicPartition, now_s: float) -> int | None:
        preferred = self._preferred.get(partition)
        if preferred is not None:
            if preferred[1] > now_s and self._brokers.node(preferred[0]) is not None:
                return preferred[0]
            del self._preferred[partition]
        leader = self._cluster.leader_of(partition)
        if leader is None:
            self._cluster.track(partition.topic)
        return leader

    def _fetch_from(self, node: int, states: list[PartitionState], now_s: float, *, is_short: bool) -> None:
        muted_until_s = self._muted_until_s.get(node, 0.0)
        if muted_until_s > now_s:
            self._wake_at(muted_until_s)
            return
        link = self._brokers.link_of(node)
        if link is None:
            self._brokers.connect_soon(node)
            self._cluster.want_refresh_if_unreachable(node)
            backoff_s = self._brokers.backoff_left_s(node)
            if backoff_s > 0:
                self._wake_at(now_s + backoff_s)
            return
        settings = self._settings
        topics = {state.partition.topic for state in states}
        topic_ids = {topic: self._cluster.topic_id(topic) or ZERO_UUID for topic in topics}
        have_ids = all(topic_id != ZERO_UUID for topic_id in topic_ids.values())
        try:
            version = link.version_of(FETCH, None if have_ids else FIRST_VERSION_WITH_TOPIC_IDS - 1)
        except UnsupportedVersion as error:
            for state in states:
                self._queue_error(state, error)
            return
        if version < FIRST_VERSION_WITH_TOPIC_IDS:
            topic_ids = dict.fromkeys(topics, ZERO_UUID)
        session = self._sessions.get(node)
        if session is None or version < FIRST_VERSION_WITH_SESSIONS:
            session = self._sessions[node] = FetchSession()
        wanted: dict[TopicPartition, FetchPartition] = {}
        for state in states:
            assert state.fetch_offset is not None
            wanted[state.partition] = FetchPartition(
                partition=state.partition.partition,
                current_leader_epoch=self._cluster.leader_epoch_of(state.partition),
                fetch_offset=state.fetch_offset,
                partition_max_bytes=settings.max_partition_fetch_bytes,
            )
        named, forgotten = session.next_request(wanted, topic_ids)
        wait_ms = settings.fetch_max_wait_ms
        if is_short:
            wait_ms = min(wait_ms, SHORT_WAIT_MS)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=self._isolation_level,
            session_id=session.session_id,
            session_epoch=session.epoch if version >= FIRST_VERSION_WITH_SESSIONS else FINAL_EPOCH,
            topics=named,
            forgotten_topics_data=forgotten,
            rack_id=settings.client_rack,
        )
        under_way = _UnderWay(
            {state.partition: state for state in states},
            {topic_id: topic for topic, topic_id in topic_ids.items() if topic_id != ZERO_UUID},
            now_s,
        )
        self._under_way[node] = under_way
        self._brokers.submit(
            node,
            request,
            version,
            lambda answer, error: self._done(node, under_way, answer, error),
            timeout_ms=settings.request_timeout_ms + wait_ms,
        )

    def _done(
        self, node: int, under_way: _UnderWay, answer: FetchResponse | None, error: KafkaError | None
    ) -> None:
        del self._under_way[node]
        session = self._sessions[node]
        if answer is None:
            session.begin_anew()
            self._cluster.want_refresh()
            for partition in under_way.states:
                self._preferred.pop(partition, None)
            log.debug("a fetch from broker %d failed: %s", node, error)
        elif answer.error_code != NONE:
            if answer.error_code in SESSION_ERRORS:
                session.is_lost()
            else:
                session.begin_anew()
                for state in under_way.states.values():
                    self._back_off(state)
        else:
            session.answered(answer.session_id)
            answered_s = self._loop.time()
            self.fetch_latency.add((answered_s - under_way.sent_s) * 1000, answered_s)
            if answer.throttle_time_ms > 0:
                self._muted_until_s[node] = self._loop.time() + answer.throttle_time_ms / 1000
            before_bytes = self.fetched_bytes
            self._take(node, under_way, answer)
            if 0 < self.fetched_bytes - before_bytes < FEW_BYTES:
                # The caller that was woken by the data waits for the interpreter's lock, and has little to do with it.
                self.wake()
                return
        # At once, not in the loop's next turn: with much data the caller would keep the interpreter's lock for long.
        self._send()

    def _take(self, node: int, under_way: _UnderWay, answer: FetchResponse) -> None:
        is_queued = False
        self.fetches += 1
        for topic in answer.responses:
            name = topic.topic or under_way.names.get(topic.topic_id, "")
            for data in topic.partitions:
                partition = TopicPartition(name, data.partition_index)
                state = under_way.states.get(partition)
                if (
                    state is None
                    or not self._subscription.is_current(state)
                    or state.fetch_offset != under_way.offsets[partition]
                ):
                    continue
                if data.error_code == NONE:
                    is_queued |= self._take_records(node, state, data)
                else:
                    is_queued |= self._take_error(node, state, data)
        if is_queued:
            self._on_fetched()

    def _take_records(self, node: int, state: PartitionState, data: PartitionData) -> bool:
        if data.preferred_read_replica >= 0 and data.preferred_read_replica != node:
            until_s = self._loop.time() + self._settings.metadata_max_age_ms / 1000
            self._preferred[state.partition] = data.preferred_read_replica, until_s
        state.high_watermark = data.high_watermark
        state.last_stable_offset = data.last_stable_offset
        state.log_start_offset = data.log_start_offset
        records = data.records
        if records is None or len(records) == 0:
            return False
        assert isinstance(records, bytes | memoryview)
        assert state.fetch_offset is not None
        try:
            end_offset, end_epoch = end_of(records, state.fetch_offset)
        except KafkaError as error:
            return self._queue_error(state, error)
        aborted: AbortedTransactions = NONE_ABORTED
        if data.aborted_transactions and self._isolation_level == READ_COMMITTED:
            aborted = sorted((each.first_offset, each.producer_id) for each in data.aborted_transactions)
        fetched = Fetched(
            state,
            records,
            end_offset=end_offset,
            end_epoch=end_epoch,
            aborted=aborted,
            check_crcs=self._settings.check_crcs,
        )
        state.fetched_bytes += fetched.size_bytes
        self.fetched_bytes += fetched.size_bytes
        state.fetch_offset = end_offset
        if end_epoch >= 0:
            state.fetch_epoch = end_epoch
        self.queue.append(fetched)
        return True

    def _take_error(self, node: int, state: PartitionState, data: PartitionData) -> bool:
        code = data.error_code
        partition = state.partition
        if self._preferred.pop(partition, None) is not None:
            # Whatever it is, the leader knows better.
            return False
        self._back_off(state)
        if code in STALE_METADATA:
            leader = data.current_leader
            if leader.leader_id < 0 or not self._cluster.move_leader(
                partition, leader.leader_id, leader.leader_epoch
            ):
                self._cluster.invalidate(partition)
            return False
        if code in PASSING:
            self._cluster.want_refresh()
            return False
        assert state.fetch_offset is not None
        if code == OffsetOutOfRange.code:
            return self._queue_error(
                state,
                OffsetOutOfRange(f"offset {state.fetch_offset} of {partition} is not in the broker's log"),
            )
        return self._queue_error(
            state, error_for_code(code, f"{partition} cannot be read at offset {state.fetch_offset}")
        )

    def _queue_error(self, state: PartitionState, error: KafkaError) -> bool:
        """Fetches nothing more for the state: the polling caller finds the error and decides."""
        state.retry_s = math.inf
        self.queue.append(Fetched(state, b"", error=error))
        self._on_fetched()
        return True

    def _back_off(self, state: PartitionState) -> None:
        state.retry_s = self._loop.time() + self._settings.retry_backoff_ms / 1000

    def _wake_at(self, when_s: float) -> None:
        if when_s == math.inf:
            return
        if self._timer is not None:
            if self._timer.when() <= when_s and not self._timer.cancelled():
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.wake()
