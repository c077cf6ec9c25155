"""A fetcher: copies partitions of one leader into the logs of this broker.

One request is under way at a time. What comes back is turned into steps for the shell, which has the logs:

    Append        write records as they came, take over the leader's high watermark and start offset
    Diverge       the logs differ from an epoch on: truncate by `truncation_point`
    TruncateTo    remove everything from an offset on
    StartAt       remove everything, go on at an offset
    Fail          stop: only the next LeaderAndIsr request can help

The shell reports each step (`appended`, `truncated`, `step_failed`), and then asks for the next request. An answer is
used only for partitions that still wait at the offset and in the epoch that were asked for.

The rules are those of Kafka 3.9 (`AbstractFetcherThread.scala`). There is no IO and no time in here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from barnabas.errors import (
    NONE,
    FencedLeaderEpoch,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    OffsetOutOfRange,
)
from barnabas.model import NO_LEADER_EPOCH, NO_OFFSET, TopicPartition
from barnabas.primitives.file_slice import FileSlice
from barnabas.protocol.message import Buffer
from barnabas.protocol.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from barnabas.protocol.messages.fetch_response import FetchResponse, PartitionData
from barnabas.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.list_offsets_response import ListOffsetsResponse
from barnabas.protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.protocol.messages.offset_for_leader_epoch_response import OffsetForLeaderEpochResponse
from barnabas.replication.fetch_session import FollowerSession
from barnabas.replication.followed import FollowedPartition, Phase

EARLIEST_TIMESTAMP: Final = -2
LATEST_TIMESTAMP: Final = -1
# Doubled with each further error, up to `replica.fetch.backoff.ms`.
FIRST_BACKOFF_MS: Final = 10
_SESSION_ERRORS: Final = frozenset(
    {FetchSessionIdNotFound.code, FetchSessionTopicIdError.code, InvalidFetchSessionEpoch.code}
)

Request: TypeAlias = FetchRequest | OffsetForLeaderEpochRequest | ListOffsetsRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherSettings:
    replica_id: int
    # The epoch of this broker's registration, which changes with its session; the leader does not count an older one.
    broker_epoch: Callable[[], int] = lambda: -1
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 10 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024
    backoff_ms: int = 1_000
    # Whether Fetch answers where logs diverge (version 12 and above).
    truncates_on_fetch: bool = True
    # Whether Fetch names topics by their ids (version 13 and above).
    has_topic_ids: bool = True
    # Whether Fetch names the follower together with its broker epoch (version 15 and above).
    has_replica_state: bool = True
    # How long a throttled partition is left out of requests.
    hold_ms: int = 200


@dataclass(frozen=True, slots=True)
class Append:
    key: TopicPartition
    records: Buffer
    high_watermark: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class Diverge:
    key: TopicPartition
    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class TruncateTo:
    key: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class StartAt:
    key: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class Fail:
    key: TopicPartition
    reason: str


Step: TypeAlias = Append | Diverge | TruncateTo | StartAt | Fail


class Fetcher:
    def __init__(self, settings: FetcherSettings) -> None:
        self._settings = settings
        self._session = FollowerSession(has_topic_ids=settings.has_topic_ids)
        self._partitions: dict[TopicPartition, FollowedPartition] = {}
        # Partitions that wait for their back-off, and those that need another request than a fetch.
        self._delayed: dict[TopicPartition, None] = {}
        self._truncating: dict[TopicPartition, None] = {}
        self._out_of_range: dict[TopicPartition, None] = {}
        # Partitions that have changed since the request under way was made: its answer is not about them.
        self._changed_since: set[TopicPartition] = set()
        self._topic_names: dict[bytes, str] = {}
        # Partitions whose topic has no id yet, as while the protocol level of a cluster is raised.
        self._without_id: set[TopicPartition] = set()
        # Whether the last fetch request named topics by their ids.
        self.uses_topic_ids = settings.has_topic_ids
        # The leader's last offset of a partition whose first one is not known yet.
        self._latest: dict[TopicPartition, int] = {}

    def __len__(self) -> int:
        return len(self._partitions)

    def partition(self, key: TopicPartition) -> FollowedPartition | None:
        return self._partitions.get(key)

    def follow(
        self,
        key: TopicPartition,
        *,
        topic_id: bytes,
        leader_epoch: int,
        log_end_offset: int,
        high_watermark: int,
        last_epoch: int,
        log_start_offset: int,
    ) -> list[Step]:
        """Begins to copy a partition.

        Where the logs part is found by epochs. Without them, only what lies below the high watermark is sure.
        """
        known = self._partitions.get(key)
        if known is not None and known.leader_epoch == leader_epoch and known.topic_id == topic_id:
            return []
        self.unfollow([key])
        has_epoch = last_epoch != NO_LEADER_EPOCH
        fetches_at_once = has_epoch and self._settings.truncates_on_fetch
        partition = FollowedPartition(
            topic_partition=key,
            topic_id=topic_id,
            leader_epoch=leader_epoch,
            fetch_offset=log_end_offset if fetches_at_once else high_watermark,
            last_epoch=last_epoch,
            log_start_offset=log_start_offset,
            phase=Phase.FETCHING if fetches_at_once or not has_epoch else Phase.TRUNCATING,
        )
        self._partitions[key] = partition
        if any(topic_id):
            self._topic_names[topic_id] = key.topic
        else:
            self._without_id.add(key)
        self._schedule(partition)
        if not has_epoch and high_watermark < log_end_offset:
            return [TruncateTo(key, high_watermark)]
        return []

    @property
    def names_topics_at_new_level(self) -> bool:
        """Whether the last fetch request needs an older version than others of the level, which has names."""
        return self._settings.has_topic_ids and not self.uses_topic_ids

    def unfollow(self, keys: Iterable[TopicPartition]) -> None:
        for key in keys:
            if self._partitions.pop(key, None) is not None:
                self._unschedule(key)
                self._latest.pop(key, None)
                self._without_id.discard(key)

    def next_request(self, now_ms: int) -> Request | None:
        """None if there is nothing to ask for now: see `wakes_at_ms`."""
        self._end_delays(now_ms)
        self._changed_since.clear()
        if self._truncating:
            return self._epochs_request()
        if self._out_of_range:
            return self._offsets_request()
        return self._fetch_request() if self._session else None

    def wakes_at_ms(self) -> int | None:
        """When the first partition has waited long enough; None if none waits."""
        if not self._delayed:
            return None
        return min(self._partitions[key].delayed_until_ms for key in self._delayed)

    def failed(self, now_ms: int) -> None:
        """The request under way was not answered: every partition waits, and the session begins again."""
        self._session.restart(is_known_to_leader=True)
        for key in self._partitions:
            if key not in self._delayed:
                self._delay(key, now_ms)

    def fetched(self, response: FetchResponse, now_ms: int) -> list[Step]:
        if response.error_code != NONE:
            self._on_session_error(response.error_code, now_ms)
            return []
        self._session.answered(response.session_id)
        steps: list[Step] = []
        for topic in response.responses:
            name = topic.topic or self._topic_names.get(topic.topic_id, "")
            for data in topic.partitions:
                key = TopicPartition(name, data.partition_index)
                partition = self._waiting(key, Phase.FETCHING)
                if partition is not None:
                    steps += self._take(partition, data, now_ms)
                else:
                    # The leader repeats nothing that it has told in a session, not even the high watermark, also if the
                    # partition is followed again before the leader has forgotten it.
                    self._session.restart(is_known_to_leader=True)
        return steps

    def epochs_told(self, response: OffsetForLeaderEpochResponse, now_ms: int) -> list[Step]:
        steps: list[Step] = []
        for topic in response.topics:
            for data in topic.partitions:
                partition = self._waiting(TopicPartition(topic.topic, data.partition), Phase.TRUNCATING)
                if partition is None:
                    continue
                key = partition.topic_partition
                if data.error_code != NONE:
                    steps += self._on_error(partition, data.error_code, now_ms)
                elif data.end_offset == NO_OFFSET:
                    # The leader knows no epoch up to the log's last one.
                    steps.append(TruncateTo(key, partition.fetch_offset))
                else:
                    steps.append(Diverge(key, data.leader_epoch, data.end_offset))
        return steps

    def offsets_told(self, response: ListOffsetsResponse, now_ms: int) -> list[Step]:
        """Two answers settle where a partition goes on: the leader's last offset, and if need be its first."""
        steps: list[Step] = []
        for topic in response.topics:
            for data in topic.partitions:
                partition = self._waiting(
                    TopicPartition(topic.name, data.partition_index), Phase.OUT_OF_RANGE
                )
                if partition is None:
                    continue
                key = partition.topic_partition
                if data.error_code != NONE:
                    self._latest.pop(key, None)
                    steps += self._on_error(partition, data.error_code, now_ms)
                elif key not in self._latest:
                    if data.offset < partition.fetch_offset:
                        steps.append(TruncateTo(key, data.offset))
                    else:
                        self._latest[key] = data.offset
                else:
                    del self._latest[key]
                    if data.offset > partition.fetch_offset:
                        steps.append(StartAt(key, data.offset))
                    else:
                        partition.phase = Phase.FETCHING
                        self._schedule(partition)
        return steps

    def appended(self, key: TopicPartition, *, log_end_offset: int, last_epoch: int) -> None:
        """An Append is done; the log may have ended where it did before, if the answer had no whole batch."""
        partition = self._partitions.get(key)
        if partition is not None and partition.fetch_offset != log_end_offset:
            partition.fetch_offset = log_end_offset
            partition.last_epoch = last_epoch
            self._schedule(partition)

    def start_offset_changed(self, key: TopicPartition, log_start_offset: int) -> None:
        """The leader learns it with the next request."""
        partition = self._partitions.get(key)
        if partition is not None and partition.log_start_offset != log_start_offset:
            partition.log_start_offset = log_start_offset
            if partition.phase is Phase.FETCHING and key not in self._delayed:
                self._schedule(partition)

    def truncated(
        self, key: TopicPartition, *, log_end_offset: int, last_epoch: int, is_complete: bool = True
    ) -> None:
        """A truncation is done. Without Fetch's help, one that is not complete asks for the epoch before."""
        partition = self._partitions.get(key)
        if partition is None:
            return
        partition.fetch_offset = log_end_offset
        partition.last_epoch = last_epoch
        goes_on = not is_complete and not self._settings.truncates_on_fetch and last_epoch != NO_LEADER_EPOCH
        partition.phase = Phase.TRUNCATING if goes_on else Phase.FETCHING
        self._schedule(partition)

    def step_failed(self, key: TopicPartition, now_ms: int) -> None:
        """The log has refused a step in a way that may pass, as records that arrived damaged do."""
        if key in self._partitions:
            self._delay(key, now_ms)

    def hold_back(self, key: TopicPartition, now_ms: int) -> None:
        """Leaves a partition out of requests for a while, because it is throttled."""
        partition = self._partitions.get(key)
        if partition is None:
            return
        if key in self._delayed:
            until_ms = now_ms + self._settings.hold_ms
            partition.delayed_until_ms = max(partition.delayed_until_ms, until_ms)
        else:
            self._delay(key, now_ms, self._settings.hold_ms)

    def partitions(self) -> Iterable[FollowedPartition]:
        return self._partitions.values()

    def _fetch_request(self) -> FetchRequest:
        settings = self._settings
        session = self._session
        uses_topic_ids = settings.has_topic_ids and not self._without_id
        if uses_topic_ids != self.uses_topic_ids:
            # A session names topics in one way.
            self.uses_topic_ids = uses_topic_ids
            session.restart(is_known_to_leader=True)
        has_replica_state = settings.has_replica_state and uses_topic_ids
        named, forgotten = session.next()
        by_topic: dict[tuple[str, bytes], list[FetchPartition]] = {}
        for key in named:
            partition = self._partitions[key]
            by_topic.setdefault((key.topic, partition.topic_id), []).append(self._fetch_partition(partition))
        forgotten_by_topic: dict[tuple[str, bytes], list[int]] = {}
        for key, topic_id in forgotten:
            forgotten_by_topic.setdefault((key.topic, topic_id), []).append(key.partition)
        state = ReplicaState()
        if has_replica_state:
            state = ReplicaState(replica_id=settings.replica_id, replica_epoch=settings.broker_epoch())
        return FetchRequest(
            replica_id=-1 if has_replica_state else settings.replica_id,
            replica_state=state,
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            session_id=session.session_id,
            session_epoch=session.epoch,
            topics=[
                FetchTopic(topic=topic, topic_id=topic_id, partitions=partitions)
                for (topic, topic_id), partitions in by_topic.items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic=topic, topic_id=topic_id, partitions=indexes)
                for (topic, topic_id), indexes in forgotten_by_topic.items()
            ],
        )

    def _fetch_partition(self, partition: FollowedPartition) -> FetchPartition:
        return FetchPartition(
            partition=partition.topic_partition.partition,
            current_leader_epoch=partition.leader_epoch,
            fetch_offset=partition.fetch_offset,
            last_fetched_epoch=partition.last_epoch if self._settings.truncates_on_fetch else NO_LEADER_EPOCH,
            log_start_offset=partition.log_start_offset,
            partition_max_bytes=self._settings.partition_max_bytes,
        )

    def _epochs_request(self) -> OffsetForLeaderEpochRequest:
        topics: dict[str, list[OffsetForLeaderPartition]] = {}
        for key in self._truncating:
            partition = self._partitions[key]
            topics.setdefault(key.topic, []).append(
                OffsetForLeaderPartition(
                    partition=key.partition,
                    current_leader_epoch=partition.leader_epoch,
                    leader_epoch=partition.last_epoch,
                )
            )
        return OffsetForLeaderEpochRequest(
            replica_id=self._settings.replica_id,
            topics=[OffsetForLeaderTopic(topic=topic, partitions=each) for topic, each in topics.items()],
        )

    def _offsets_request(self) -> ListOffsetsRequest:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for key in self._out_of_range:
            partition = self._partitions[key]
            topics.setdefault(key.topic, []).append(
                ListOffsetsPartition(
                    partition_index=key.partition,
                    current_leader_epoch=partition.leader_epoch,
                    timestamp=EARLIEST_TIMESTAMP if key in self._latest else LATEST_TIMESTAMP,
                )
            )
        return ListOffsetsRequest(
            replica_id=self._settings.replica_id,
            topics=[ListOffsetsTopic(name=topic, partitions=each) for topic, each in topics.items()],
        )

    def _waiting(self, key: TopicPartition, phase: Phase) -> FollowedPartition | None:
        """The partition, if the answer under way is about the state that it is in."""
        partition = self._partitions.get(key)
        if partition is None or key in self._changed_since or key in self._delayed:
            return None
        return partition if partition.phase is phase else None

    def _take(self, partition: FollowedPartition, data: PartitionData, now_ms: int) -> list[Step]:
        key = partition.topic_partition
        if data.error_code == OffsetOutOfRange.code:
            partition.phase = Phase.OUT_OF_RANGE
            self._schedule(partition)
            return []
        if data.error_code != NONE:
            return self._on_error(partition, data.error_code, now_ms)
        partition.errors = 0
        diverging = data.diverging_epoch
        if diverging.end_offset != NO_OFFSET:
            # Records that may have come along are not looked at, nor is the high watermark, which is not told again.
            self._session.restart(is_known_to_leader=True)
            return [Diverge(key, diverging.epoch, diverging.end_offset)]
        partition.lag = max(0, data.high_watermark - partition.fetch_offset)
        records = data.records or b""
        assert not isinstance(records, FileSlice)
        return [Append(key, records, data.high_watermark, data.log_start_offset)]

    def _on_error(self, partition: FollowedPartition, code: int, now_ms: int) -> list[Step]:
        key = partition.topic_partition
        if code == FencedLeaderEpoch.code:
            # The epoch was the newest that this broker knows: only LeaderAndIsr can tell the next one.
            self.unfollow([key])
            return [Fail(key, f"the leader has a newer epoch than {partition.leader_epoch}")]
        # Most errors pass in a moment: a new leader may hear of its role after its followers.
        self._delay(
            key, now_ms, min(self._settings.backoff_ms, FIRST_BACKOFF_MS << min(partition.errors, 16))
        )
        partition.errors += 1
        return []

    def _on_session_error(self, code: int, now_ms: int) -> None:
        if code in _SESSION_ERRORS:
            self._session.restart(is_known_to_leader=code != FetchSessionIdNotFound.code)
        else:
            self.failed(now_ms)

    def _schedule(self, partition: FollowedPartition) -> None:
        """Puts a partition where its phase has it asked for."""
        key = partition.topic_partition
        if partition.phase is Phase.FETCHING:
            self._truncating.pop(key, None)
            self._out_of_range.pop(key, None)
            self._delayed.pop(key, None)
            self._session.want(key, partition.topic_id)
        else:
            self._unschedule(key)
            queue = self._truncating if partition.phase is Phase.TRUNCATING else self._out_of_range
            queue[key] = None
        self._changed_since.add(key)

    def _unschedule(self, key: TopicPartition) -> None:
        self._session.forget(key)
        self._truncating.pop(key, None)
        self._out_of_range.pop(key, None)
        self._delayed.pop(key, None)
        self._changed_since.add(key)

    def _delay(self, key: TopicPartition, now_ms: int, delay_ms: int | None = None) -> None:
        self._unschedule(key)
        self._partitions[key].delayed_until_ms = now_ms + (
            self._settings.backoff_ms if delay_ms is None else delay_ms
        )
        self._delayed[key] = None

    def _end_delays(self, now_ms: int) -> None:
        if not self._delayed:
            return
        for key in [each for each in self._delayed if self._partitions[each].delayed_until_ms <= now_ms]:
            self._schedule(self._partitions[key])
