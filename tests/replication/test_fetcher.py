"""The fetcher's machine against a model of leaders: whatever is lost, refused or diverges, the logs become equal."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final

import pytest

from barnabas.errors import (
    NONE,
    FencedLeaderEpoch,
    FetchSessionIdNotFound,
    InvalidFetchSessionEpoch,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from barnabas.model import NO_LEADER_EPOCH, NO_OFFSET, TopicPartition
from barnabas.protocol.message import Message
from barnabas.protocol.messages.fetch_request import FetchPartition, FetchRequest
from barnabas.protocol.messages.fetch_response import (
    EpochEndOffset as Diverging,
)
from barnabas.protocol.messages.fetch_response import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from barnabas.protocol.messages.list_offsets_request import ListOffsetsRequest
from barnabas.protocol.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.protocol.messages.offset_for_leader_epoch_request import OffsetForLeaderEpochRequest
from barnabas.protocol.messages.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from barnabas.replication.fetcher import (
    FIRST_BACKOFF_MS,
    Append,
    Diverge,
    Fail,
    Fetcher,
    FetcherSettings,
    Request,
    StartAt,
    Step,
    TruncateTo,
)
from barnabas.replication.followed import Phase, truncation_point
from tests.sampling import seeds

TOPIC: Final = "t"
TOPIC_ID: Final = b"0123456789abcdef"
KEYS: Final = tuple(TopicPartition(TOPIC, index) for index in range(3))
RECORD_BYTES: Final = 8
BACKOFF_MS: Final = 1_000


@dataclass(slots=True)
class End:
    epoch: int
    end_offset: int


@dataclass(slots=True)
class Log:
    """Records as (epoch, value), one to an offset; the start may have moved on."""

    start: int = 0
    records: list[tuple[int, int]] = field(default_factory=list)

    @property
    def log_end_offset(self) -> int:
        return self.start + len(self.records)

    @property
    def last_epoch(self) -> int:
        return self.records[-1][0] if self.records else NO_LEADER_EPOCH

    def end_offset_for_epoch(self, epoch: int) -> End | None:
        if not self.records:
            return None
        own = [each for each, _ in self.records if each <= epoch]
        if not own:
            # What there was of such epochs is deleted: as in Kafka, the log goes on where the next one begins.
            return End(epoch, self.start)
        largest = max(own)
        later = [index for index, (each, _) in enumerate(self.records) if each > largest]
        return End(largest, self.start + later[0] if later else self.log_end_offset)

    def truncate_to(self, offset: int) -> None:
        del self.records[max(0, offset - self.start) :]

    def encoded(self, offset: int, count: int) -> bytes:
        chosen = self.records[offset - self.start :][:count]
        return b"".join(epoch.to_bytes(4, "big") + value.to_bytes(4, "big") for epoch, value in chosen)


def decoded(data: bytes) -> list[tuple[int, int]]:
    return [
        (int.from_bytes(data[at : at + 4], "big"), int.from_bytes(data[at + 4 : at + 8], "big"))
        for at in range(0, len(data), RECORD_BYTES)
    ]


class Leader:
    """A broker that leads all partitions, with sessions."""

    def __init__(self, logs: dict[TopicPartition, Log], epoch: int, *, truncates_on_fetch: bool) -> None:
        self.logs = logs
        self.epoch = epoch
        self._truncates_on_fetch = truncates_on_fetch
        self._session: dict[TopicPartition, FetchPartition] = {}
        self._session_id = 0
        self._session_epoch = 0

    def forget_session(self) -> None:
        self._session_id = 0

    def answer(self, request: Request) -> Message:
        match request:
            case FetchRequest():
                return self._fetch(request)
            case OffsetForLeaderEpochRequest():
                return self._epochs(request)
            case ListOffsetsRequest():
                return self._offsets(request)

    def _fetch(self, request: FetchRequest) -> FetchResponse:
        if request.session_epoch == 0:
            self._session = {}
            self._session_id += 1
        elif request.session_id != self._session_id or not self._session_id:
            return FetchResponse(error_code=FetchSessionIdNotFound.code)
        elif request.session_epoch != self._session_epoch:
            return FetchResponse(error_code=InvalidFetchSessionEpoch.code)
        self._session_epoch = request.session_epoch + 1
        for topic in request.topics:
            assert topic.topic_id == TOPIC_ID
            for each in topic.partitions:
                self._session[TopicPartition(TOPIC, each.partition)] = each
        # As in Kafka: what the same request names is forgotten, too.
        for gone in request.forgotten_topics_data:
            for index in gone.partitions:
                del self._session[TopicPartition(TOPIC, index)]
        answers = [self._partition(key, each) for key, each in self._session.items()]
        return FetchResponse(
            session_id=self._session_id,
            responses=[
                FetchableTopicResponse(
                    topic_id=TOPIC_ID, partitions=[each for each in answers if each is not None]
                )
            ],
        )

    def _epoch_error(self, epoch: int) -> int:
        if epoch == self.epoch:
            return NONE
        return FencedLeaderEpoch.code if epoch < self.epoch else UnknownLeaderEpoch.code

    def _partition(self, key: TopicPartition, asked: FetchPartition) -> PartitionData | None:
        log = self.logs[key]
        answer = PartitionData(partition_index=key.partition, high_watermark=log.log_end_offset)
        answer.log_start_offset = log.start
        answer.error_code = self._epoch_error(asked.current_leader_epoch)
        if answer.error_code != NONE:
            return answer
        if self._truncates_on_fetch and asked.last_fetched_epoch != NO_LEADER_EPOCH:
            end = log.end_offset_for_epoch(asked.last_fetched_epoch)
            if end is None or asked.fetch_offset < log.start:
                answer.error_code = OffsetOutOfRange.code
                return answer
            if end.epoch < asked.last_fetched_epoch or end.end_offset < asked.fetch_offset:
                answer.diverging_epoch = Diverging(epoch=end.epoch, end_offset=end.end_offset)
                return answer
        if not log.start <= asked.fetch_offset <= log.log_end_offset:
            answer.error_code = OffsetOutOfRange.code
            return answer
        answer.records = log.encoded(asked.fetch_offset, 3)
        return answer

    def _epochs(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        (topic,) = request.topics
        answers = []
        for asked in topic.partitions:
            answer = EpochEndOffset(
                partition=asked.partition, error_code=self._epoch_error(asked.current_leader_epoch)
            )
            end = self.logs[TopicPartition(TOPIC, asked.partition)].end_offset_for_epoch(asked.leader_epoch)
            if answer.error_code == NONE and end is not None:
                answer.leader_epoch, answer.end_offset = end.epoch, end.end_offset
            answers.append(answer)
        return OffsetForLeaderEpochResponse(
            topics=[OffsetForLeaderTopicResult(topic=TOPIC, partitions=answers)]
        )

    def _offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        (topic,) = request.topics
        answers = []
        for asked in topic.partitions:
            log = self.logs[TopicPartition(TOPIC, asked.partition_index)]
            answers.append(
                ListOffsetsPartitionResponse(
                    partition_index=asked.partition_index,
                    error_code=self._epoch_error(asked.current_leader_epoch),
                    offset=log.start if asked.timestamp == -2 else log.log_end_offset,
                )
            )
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=answers)])


class Follower:
    """The shell in small: carries out steps on its logs."""

    def __init__(self, *, truncates_on_fetch: bool) -> None:
        self.logs = {key: Log() for key in KEYS}
        self.failures: list[TopicPartition] = []
        self._settings = FetcherSettings(
            replica_id=1, truncates_on_fetch=truncates_on_fetch, backoff_ms=BACKOFF_MS
        )
        self.fetcher = Fetcher(self._settings)

    def follow(self, leader_epoch: int, *, is_other_leader: bool) -> None:
        if is_other_leader:
            self.fetcher = Fetcher(self._settings)
        for key, log in self.logs.items():
            steps = self.fetcher.follow(
                key,
                topic_id=TOPIC_ID,
                leader_epoch=leader_epoch,
                log_end_offset=log.log_end_offset,
                high_watermark=log.start,
                last_epoch=log.last_epoch,
                log_start_offset=log.start,
            )
            self.carry_out(steps)

    def take(self, request: Request, answer: Message, now_ms: int) -> None:
        match answer:
            case FetchResponse():
                steps = self.fetcher.fetched(answer, now_ms)
            case OffsetForLeaderEpochResponse():
                steps = self.fetcher.epochs_told(answer, now_ms)
            case ListOffsetsResponse():
                steps = self.fetcher.offsets_told(answer, now_ms)
            case _:
                raise AssertionError(request)
        self.carry_out(steps)

    def carry_out(self, steps: list[Step]) -> None:
        for step in steps:
            log = self.logs[step.key]
            is_complete = True
            match step:
                case Append(key, records, _, start):
                    log.records += decoded(bytes(records))
                    if start > log.start:
                        del log.records[: start - log.start]
                        log.start = start
                    self.fetcher.start_offset_changed(key, log.start)
                    self.fetcher.appended(key, log_end_offset=log.log_end_offset, last_epoch=log.last_epoch)
                    continue
                case Diverge(_, epoch, end_offset):
                    offset, is_complete = truncation_point(log, epoch, end_offset)
                    log.truncate_to(offset)
                case TruncateTo(_, offset):
                    log.truncate_to(offset)
                case StartAt(_, offset):
                    log.start, log.records = offset, []
                case Fail(key):
                    self.failures.append(key)
                    continue
            self.fetcher.truncated(
                step.key,
                log_end_offset=log.log_end_offset,
                last_epoch=log.last_epoch,
                is_complete=is_complete,
            )


def grow(rng: Random, leader: Leader, values: list[int]) -> None:
    for log in leader.logs.values():
        for _ in range(rng.randrange(5)):
            values[0] += 1
            log.records.append((leader.epoch, values[0]))
        if rng.random() < 0.1 and log.records:
            gone = rng.randrange(len(log.records))
            del log.records[:gone]
            log.start += gone


def elect(rng: Random, leader: Leader, follower: Follower, *, truncates_on_fetch: bool) -> Leader:
    """Another leader, whose logs share a prefix with the old ones; and go on otherwise, over several epochs."""
    logs = {}
    for key, log in leader.logs.items():
        cut = rng.randrange(len(log.records) + 1)
        kept = Log(log.start, log.records[:cut])
        for between in range(leader.epoch + 1, leader.epoch + rng.randrange(1, 3)):
            kept.records += [(between, rng.randrange(1 << 20)) for _ in range(rng.randrange(3))]
        logs[key] = kept
    chosen = Leader(logs, leader.epoch + 3, truncates_on_fetch=truncates_on_fetch)
    follower.follow(chosen.epoch, is_other_leader=True)
    return chosen


@pytest.mark.parametrize("truncates_on_fetch", [True, False])
@pytest.mark.parametrize("seed", seeds(40, fast=10))
def test_logs_become_equal(seed: int, truncates_on_fetch: bool) -> None:
    rng = Random(seed)
    leader = Leader({key: Log() for key in KEYS}, 0, truncates_on_fetch=truncates_on_fetch)
    follower = Follower(truncates_on_fetch=truncates_on_fetch)
    follower.follow(0, is_other_leader=True)
    values = [0]
    now_ms = 0
    for turn in range(200):
        is_calm = turn >= 120
        if not is_calm and rng.random() < 0.4:
            grow(rng, leader, values)
        if not is_calm and rng.random() < 0.08:
            leader = elect(rng, leader, follower, truncates_on_fetch=truncates_on_fetch)
        elif not is_calm and rng.random() < 0.05:
            # The same leader in a later epoch: the follower hears of it now, or it would be fenced for good.
            leader.epoch += 1
            follower.follow(leader.epoch, is_other_leader=False)
        if not is_calm and rng.random() < 0.05:
            leader.forget_session()
        now_ms += 300
        request = follower.fetcher.next_request(now_ms)
        if request is None:
            assert follower.fetcher.wakes_at_ms() is not None
            continue
        answer = leader.answer(request)
        if not is_calm and rng.random() < 0.1:
            follower.fetcher.failed(now_ms)
        else:
            if not is_calm and rng.random() < 0.1:
                # LeaderAndIsr comes while the answer is on its way, which is then about the past.
                leader.epoch += 1
                follower.follow(leader.epoch, is_other_leader=False)
            follower.take(request, answer, now_ms)
    assert follower.failures == []
    assert follower.logs == leader.logs
    for key in KEYS:
        partition = follower.fetcher.partition(key)
        assert partition is not None
        assert (partition.phase, partition.lag) == (Phase.FETCHING, 0)


def one(leader: Leader, follower: Follower, now_ms: int = 0) -> Request:
    request = follower.fetcher.next_request(now_ms)
    assert request is not None
    follower.take(request, leader.answer(request), now_ms)
    return request


def pair() -> tuple[Leader, Follower]:
    leader = Leader({key: Log() for key in KEYS}, 0, truncates_on_fetch=True)
    follower = Follower(truncates_on_fetch=True)
    follower.follow(0, is_other_leader=True)
    return leader, follower


def named(request: Request) -> list[int]:
    assert isinstance(request, FetchRequest)
    return [each.partition for topic in request.topics for each in topic.partitions]


def test_a_session_names_only_what_has_changed() -> None:
    leader, follower = pair()
    first = one(leader, follower)
    assert isinstance(first, FetchRequest)
    assert (first.session_epoch, named(first)) == (0, [0, 1, 2])
    leader.logs[KEYS[1]].records.append((0, 7))
    second = one(leader, follower)
    assert isinstance(second, FetchRequest)
    assert (second.session_epoch, named(second)) == (1, [])
    third = one(leader, follower)
    assert named(third) == [1]
    assert follower.logs == leader.logs


def test_what_a_leader_tells_with_a_divergence_is_told_again() -> None:
    """The high watermark is one; in the same session it would wait for the next record."""
    leader, follower = pair()
    leader.logs[KEYS[0]].records.append((0, 1))
    one(leader, follower)
    leader.epoch = 1
    leader.logs[KEYS[0]].records.append((1, 3))
    follower.logs[KEYS[0]].records.append((0, 2))
    follower.follow(1, is_other_leader=True)
    one(leader, follower)
    assert follower.logs[KEYS[0]].records == [(0, 1)]
    following = one(leader, follower)
    assert isinstance(following, FetchRequest)
    assert (following.session_epoch, named(following)) == (0, [0, 1, 2])


def test_a_fenced_partition_waits_for_its_next_epoch() -> None:
    leader, follower = pair()
    leader.epoch = 5
    one(leader, follower)
    assert follower.failures == list(KEYS)
    assert len(follower.fetcher) == 0
    assert follower.fetcher.next_request(10**9) is None
    follower.follow(5, is_other_leader=False)
    leader.logs[KEYS[0]].records.append((5, 1))
    one(leader, follower)
    assert follower.logs == leader.logs


def test_a_partition_with_an_error_waits_alone() -> None:
    leader, follower = pair()
    request = follower.fetcher.next_request(0)
    assert isinstance(request, FetchRequest)
    answer = leader.answer(request)
    assert isinstance(answer, FetchResponse)
    answer.responses[0].partitions[1].error_code = NotLeaderOrFollower.code
    follower.take(request, answer, 0)
    assert follower.fetcher.wakes_at_ms() == FIRST_BACKOFF_MS
    second = one(leader, follower, FIRST_BACKOFF_MS - 1)
    assert isinstance(second, FetchRequest)
    assert [each.partitions for each in second.forgotten_topics_data] == [[1]]
    assert named(one(leader, follower, FIRST_BACKOFF_MS)) == [1]


def test_errors_one_after_the_other_are_waited_for_longer() -> None:
    leader, follower = pair()
    now_ms, delays_ms = 0, []
    for _ in range(10):
        request = follower.fetcher.next_request(now_ms)
        assert isinstance(request, FetchRequest)
        answer = leader.answer(request)
        assert isinstance(answer, FetchResponse)
        answer.responses = [
            FetchableTopicResponse(
                topic_id=request.topics[0].topic_id,
                partitions=[PartitionData(partition_index=1, error_code=NotLeaderOrFollower.code)],
            )
        ]
        follower.take(request, answer, now_ms)
        wakes_at_ms = follower.fetcher.wakes_at_ms()
        assert wakes_at_ms is not None
        delays_ms.append(wakes_at_ms - now_ms)
        now_ms = wakes_at_ms
    assert delays_ms[:3] == [FIRST_BACKOFF_MS, 2 * FIRST_BACKOFF_MS, 4 * FIRST_BACKOFF_MS]
    assert delays_ms[-1] == BACKOFF_MS == max(delays_ms)


def test_a_topic_made_again_is_forgotten_by_its_old_id() -> None:
    leader, follower = pair()
    one(leader, follower)
    follower.fetcher.follow(
        KEYS[0],
        topic_id=b"f" * 16,
        leader_epoch=0,
        log_end_offset=0,
        high_watermark=0,
        last_epoch=NO_LEADER_EPOCH,
        log_start_offset=0,
    )
    request = follower.fetcher.next_request(0)
    assert isinstance(request, FetchRequest)
    assert [(each.topic_id, each.partitions) for each in request.forgotten_topics_data] == [(TOPIC_ID, [0])]
    assert [each.topic_id for each in request.topics] == [b"f" * 16]


def test_what_is_named_again_at_once_is_not_forgotten() -> None:
    leader, follower = pair()
    one(leader, follower)
    follower.fetcher.unfollow(KEYS)
    follower.follow(0, is_other_leader=False)
    request = one(leader, follower)
    assert isinstance(request, FetchRequest)
    assert (named(request), request.forgotten_topics_data) == ([0, 1, 2], [])
    leader.logs[KEYS[1]].records.append((0, 7))
    one(leader, follower)
    assert follower.logs == leader.logs


def test_a_log_behind_the_leaders_start_begins_there() -> None:
    leader, follower = pair()
    for log in leader.logs.values():
        log.start, log.records = 40, [(0, 1)]
    for _ in range(5):
        one(leader, follower)
    assert follower.logs == leader.logs


@pytest.mark.parametrize(
    ("own", "leader_epoch", "leader_end_offset", "expected"),
    [
        # The follower has more of the leader's epoch.
        ([1, 1, 1, 1], 1, 2, (2, True)),
        # The follower has less of it, and then another epoch.
        ([1, 1, 2, 2], 1, 3, (2, True)),
        # The leader's epoch is none of the follower's: ask again about the one before.
        ([1, 1, 3, 3], 2, 4, (2, False)),
        # The follower has nothing up to that epoch, so nothing that it has is the leader's.
        ([3, 3], 1, 1, (0, True)),
        ([], 1, 1, (0, True)),
        # The leader's log is older than epochs.
        ([0, 0, 0], NO_LEADER_EPOCH, 2, (2, True)),
        ([0, 0, 0], NO_LEADER_EPOCH, 9, (3, True)),
    ],
)
def test_where_a_log_is_truncated(
    own: list[int], leader_epoch: int, leader_end_offset: int, expected: tuple[int, bool]
) -> None:
    log = Log(0, [(epoch, index) for index, epoch in enumerate(own)])
    assert truncation_point(log, leader_epoch, leader_end_offset) == expected


def test_no_known_epoch_truncates_to_the_high_watermark() -> None:
    fetcher = Fetcher(FetcherSettings(replica_id=1))
    steps = fetcher.follow(
        KEYS[0],
        topic_id=TOPIC_ID,
        leader_epoch=4,
        log_end_offset=9,
        high_watermark=6,
        last_epoch=NO_LEADER_EPOCH,
        log_start_offset=0,
    )
    assert steps == [TruncateTo(KEYS[0], 6)]
    assert NO_OFFSET == -1


def test_an_answer_about_the_past_is_not_used() -> None:
    leader, follower = pair()
    for key in KEYS:
        leader.logs[key].records = [(0, 1), (0, 2)]
    one(leader, follower)
    leader.logs[KEYS[0]].records.append((0, 3))
    request = follower.fetcher.next_request(0)
    assert request is not None
    answer = leader.answer(request)
    # Meanwhile the log has been truncated for a leader of a later epoch.
    follower.logs[KEYS[0]].truncate_to(1)
    follower.follow(1, is_other_leader=False)
    follower.take(request, answer, 0)
    assert follower.logs[KEYS[0]].records == [(0, 1)]


def test_a_request_has_the_broker_epoch_of_the_moment() -> None:
    """A broker whose session has expired registers again, with another epoch, and its fetchers go on."""
    epoch = 4
    fetcher = Fetcher(FetcherSettings(replica_id=1, broker_epoch=lambda: epoch))
    fetcher.follow(
        KEYS[0],
        topic_id=TOPIC_ID,
        leader_epoch=0,
        log_end_offset=0,
        high_watermark=0,
        last_epoch=0,
        log_start_offset=0,
    )
    first = fetcher.next_request(0)
    assert isinstance(first, FetchRequest)
    assert (first.replica_state.replica_id, first.replica_state.replica_epoch) == (1, 4)
    epoch = 9
    second = fetcher.next_request(0)
    assert isinstance(second, FetchRequest)
    assert second.replica_state.replica_epoch == 9


def test_topics_have_their_names_until_all_have_ids() -> None:
    """While the protocol level of a cluster is raised. A session names topics in one way."""
    fetcher = Fetcher(FetcherSettings(replica_id=1, broker_epoch=lambda: 4))

    def follow(key: TopicPartition, topic_id: bytes) -> None:
        fetcher.follow(
            key,
            topic_id=topic_id,
            leader_epoch=0,
            log_end_offset=0,
            high_watermark=0,
            last_epoch=0,
            log_start_offset=0,
        )

    def ask() -> tuple[int, list[int], int, bool]:
        request = fetcher.next_request(0)
        assert isinstance(request, FetchRequest)
        fetcher.fetched(FetchResponse(session_id=7), 0)
        return request.session_epoch, named(request), request.replica_id, fetcher.names_topics_at_new_level

    follow(KEYS[0], TOPIC_ID)
    assert ask() == (0, [0], -1, False)
    follow(KEYS[1], bytes(16))
    assert ask() == (0, [0, 1], 1, True)
    assert ask() == (1, [], 1, True)
    follow(KEYS[1], TOPIC_ID)
    assert ask() == (0, [0, 1], -1, False)
