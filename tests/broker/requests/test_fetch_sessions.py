from __future__ import annotations

import random
from typing import Any

import pytest

from barnabas.broker.requests.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSessions,
    next_epoch,
)
from barnabas.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from barnabas.protocol.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from barnabas.protocol.messages.fetch_response import EpochEndOffset, PartitionData


def sessions(max_sessions: int = 10, eviction_ms: int = 1_000) -> FetchSessions:
    return FetchSessions(max_sessions=max_sessions, eviction_ms=eviction_ms, rng=random.Random(1))


def request(
    *partitions: tuple[str, int, int],
    session_id: int = 0,
    epoch: int = INITIAL_EPOCH,
    forgotten: tuple[tuple[str, int], ...] = (),
    follower: int = -1,
) -> FetchRequest:
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        replica_id=follower,
        replica_state=ReplicaState(replica_id=follower),
        topics=[
            FetchTopic(topic=topic, partitions=[FetchPartition(partition=number, fetch_offset=offset)])
            for topic, number, offset in partitions
        ],
        forgotten_topics_data=[
            ForgottenTopic(topic=topic, partitions=[number]) for topic, number in forgotten
        ],
    )


def answer(
    cache: FetchSessions, asked: FetchRequest, now_ms: int = 0, **fields: Any
) -> tuple[int, list[str]]:
    """The session's id and the partitions in the response; every partition has the same answer."""
    context = cache.context(asked, 12, now_ms)
    answered = [
        (target, PartitionData(partition_index=target.asked.partition, **fields))
        for target in context.targets
    ]
    session_id = context.session_id(answered, now_ms)
    return session_id, [f"{target.topic}-{target.asked.partition}" for target, _ in answered]


def test_a_session_answers_only_what_is_new() -> None:
    cache = sessions()
    session_id, told = answer(cache, request(("a", 0, 0), ("b", 1, 5)), high_watermark=7)
    assert session_id != NO_SESSION
    assert told == ["a-0", "b-1"]
    assert answer(cache, request(session_id=session_id, epoch=1), high_watermark=7) == (session_id, [])
    assert answer(cache, request(session_id=session_id, epoch=2), high_watermark=8)[1] == ["a-0", "b-1"]
    assert answer(cache, request(session_id=session_id, epoch=3), high_watermark=8)[1] == []
    news: list[dict[str, Any]] = [
        {"log_start_offset": 3},
        {"log_start_offset": 3, "records": b"x"},
        {"log_start_offset": 3, "preferred_read_replica": 2},
        {"log_start_offset": 3, "diverging_epoch": EpochEndOffset(epoch=1, end_offset=2)},
        {"log_start_offset": 3, "error_code": 6},
        {"log_start_offset": 3},
    ]
    for epoch, fields in enumerate(news, 4):
        assert (
            len(answer(cache, request(session_id=session_id, epoch=epoch), high_watermark=8, **fields)[1])
            == 2
        )


def test_partitions_are_added_changed_and_forgotten() -> None:
    cache = sessions()
    session_id, _ = answer(cache, request(("a", 0, 0)))
    context = cache.context(request(("a", 0, 9), ("b", 0, 4), session_id=session_id, epoch=1), 12, 0)
    assert [(target.topic, target.asked.fetch_offset) for target in context.targets] == [("a", 9), ("b", 4)]
    context = cache.context(request(session_id=session_id, epoch=2, forgotten=(("a", 0), ("c", 3))), 12, 0)
    assert [target.topic for target in context.targets] == ["b"]
    assert cache.cached_partitions == 1
    context = cache.context(request(session_id=session_id, epoch=3, forgotten=(("b", 0),)), 12, 0)
    assert list(context.targets) == []
    assert not context.is_incremental
    assert len(cache) == 0


def test_a_session_does_not_grow_without_bound() -> None:
    cache = FetchSessions(max_partitions=2, rng=random.Random(1))
    session_id, _ = answer(cache, request(("a", 0, 0)))
    answer(cache, request(("a", 1, 0), session_id=session_id, epoch=1))
    with pytest.raises(FetchSessionIdNotFound, match="grown"):
        cache.context(request(("a", 2, 0), session_id=session_id, epoch=2), 12, 0)
    assert len(cache) == 0


def test_all_sessions_together_have_a_bound() -> None:
    cache = FetchSessions(max_cached_partitions=5, eviction_ms=100, rng=random.Random(1))
    first, _ = answer(cache, request(("a", 0, 0), ("a", 1, 0), ("a", 2, 0)))
    second, _ = answer(cache, request(("b", 0, 0), ("b", 1, 0)))
    assert NO_SESSION not in (first, second)
    assert cache.cached_partitions == 5
    # No room: the client is answered without a session.
    assert answer(cache, request(("c", 0, 0))) == (NO_SESSION, ["c-0"])
    # A session that grows beyond the room is closed, and leaves room behind.
    with pytest.raises(FetchSessionIdNotFound, match="grown"):
        cache.context(request(("b", 2, 0), session_id=second, epoch=1), 12, 0)
    assert cache.cached_partitions == 3
    third, _ = answer(cache, request(("c", 0, 0)))
    assert third != NO_SESSION
    # What has not been used for a while makes room, as much as is needed.
    context = cache.context(request(*(("d", index, 0) for index in range(5))), 12, 200)
    answered = [(target, PartitionData()) for target in context.targets]
    assert context.session_id(answered, 200) != NO_SESSION
    assert (len(cache), cache.cached_partitions, cache.evictions) == (1, 5, 2)
    # As many as there is never room for.
    assert answer(cache, request(*(("e", index, 0) for index in range(6))))[0] == NO_SESSION
    assert cache.cached_partitions == 5


def test_partitions_with_records_go_to_the_end() -> None:
    cache = sessions()
    session_id, _ = answer(cache, request(("a", 0, 0), ("b", 0, 0), ("c", 0, 0)))
    context = cache.context(request(session_id=session_id, epoch=1), 12, 0)
    answered = [
        (target, PartitionData(records=b"x" if target.topic == "a" else None)) for target in context.targets
    ]
    context.session_id(answered, 0)
    context = cache.context(request(session_id=session_id, epoch=2), 12, 0)
    assert [target.topic for target in context.targets] == ["b", "c", "a"]


def test_what_does_not_fit_the_session_is_an_error() -> None:
    cache = sessions()
    session_id, _ = answer(cache, request(("a", 0, 0)))
    with pytest.raises(FetchSessionIdNotFound):
        cache.context(request(session_id=session_id + 1, epoch=1), 12, 0)
    with pytest.raises(InvalidFetchSessionEpoch):
        cache.context(request(session_id=session_id, epoch=2), 12, 0)
    with pytest.raises(FetchSessionTopicIdError):
        cache.context(request(session_id=session_id, epoch=1), 13, 0)
    assert cache.context(request(session_id=session_id, epoch=1), 12, 0).is_incremental


def test_a_full_request_closes_the_session_that_it_names() -> None:
    cache = sessions()
    first, _ = answer(cache, request(("a", 0, 0)))
    second, told = answer(cache, request(("a", 0, 0), session_id=first))
    assert second not in (NO_SESSION, first)
    assert told == ["a-0"]
    assert len(cache) == 1
    assert answer(cache, request(("a", 0, 0), session_id=second, epoch=FINAL_EPOCH)) == (NO_SESSION, ["a-0"])
    assert len(cache) == 0


def test_old_versions_have_no_sessions() -> None:
    cache = sessions()
    context = cache.context(request(("a", 0, 0)), 6, 0)
    assert context.session_id([(target, PartitionData()) for target in context.targets], 0) == NO_SESSION


def test_epochs_begin_again_at_one() -> None:
    assert next_epoch(0) == 1
    assert next_epoch(2**31 - 1) == 1


def test_room_is_bounded_and_goes_to_whom_kafka_gives_it() -> None:
    cache = sessions(max_sessions=2, eviction_ms=1_000)
    large, _ = answer(cache, request(("a", 0, 0), ("a", 1, 0)), now_ms=0)
    small, _ = answer(cache, request(("a", 0, 0)), now_ms=0)
    # Nothing is old enough for another consumer; a follower may displace the smallest consumer at once.
    assert answer(cache, request(("b", 0, 0)), now_ms=500)[0] == NO_SESSION
    follower, _ = answer(cache, request(("b", 0, 0), follower=2), now_ms=500)
    assert follower != NO_SESSION
    with pytest.raises(FetchSessionIdNotFound):
        cache.context(request(session_id=small, epoch=1), 12, 500)
    # In use, but old: it goes to somebody with as many partitions, not to one with fewer.
    answer(cache, request(session_id=large, epoch=1), now_ms=1_400)
    answer(cache, request(session_id=follower, epoch=1, follower=2), now_ms=1_400)
    assert answer(cache, request(("c", 0, 0)), now_ms=1_450)[0] == NO_SESSION
    assert answer(cache, request(("c", 0, 0), ("c", 1, 0)), now_ms=1_450)[0] != NO_SESSION
    # Unused for long: it goes to anybody.
    assert answer(cache, request(("d", 0, 0)), now_ms=9_000)[0] != NO_SESSION
    assert len(cache) == 2
    assert cache.evictions == 3
