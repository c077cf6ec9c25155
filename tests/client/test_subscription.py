"""What a consumer wants and has, without a broker."""

from __future__ import annotations

import re

import pytest

from barnabas.client.reset_policy import EARLIEST, LATEST, ResetPolicy
from barnabas.client.subscription import (
    ConsumerError,
    OffsetAndMetadata,
    Subscription,
    as_offsets,
    as_partition,
)
from barnabas.errors import InvalidTopicException
from barnabas.model import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_the_three_ways_exclude_each_other() -> None:
    subscription = Subscription()
    subscription.subscribe(["t"])
    with pytest.raises(ConsumerError, match=r"unsubscribe\(\) first"):
        subscription.assign([T0])
    with pytest.raises(ConsumerError, match="exclude each other"):
        subscription.subscribe_pattern(re.compile("t.*"))
    subscription.unsubscribe()
    subscription.assign([T0])
    with pytest.raises(ConsumerError, match="assign"):
        subscription.subscribe(["t"])
    # Nothing assigned is as nothing asked for.
    subscription.assign([])
    subscription.subscribe_pattern(re.compile("t.*"))
    with pytest.raises(ConsumerError, match="pattern"):
        subscription.subscribe(["t"])


def test_what_stays_assigned_keeps_its_position() -> None:
    subscription = Subscription()
    subscription.assign([T0])
    subscription.state_of(T0).settle(5, 2)
    subscription.assign([T0, T1])
    assert subscription.positions() == {T0: OffsetAndMetadata(5, leader_epoch=2)}
    subscription.remove([T0])
    subscription.assign([T0])
    assert subscription.positions() == {}


def test_a_state_that_was_replaced_is_not_the_current_one() -> None:
    subscription = Subscription()
    subscription.assign([T0])
    before = subscription.state_of(T0)
    before.is_paused = True
    subscription.replace(before.successor(position=7))
    assert not subscription.is_current(before)
    assert subscription.state_of(T0).position == 7
    assert subscription.state_of(T0).is_paused
    with pytest.raises(ConsumerError, match="t-1 is not assigned"):
        subscription.state_of(T1)


def test_a_pattern_finds_its_topics() -> None:
    subscription = Subscription()
    subscription.subscribe_pattern(re.compile("a|b"))
    assert subscription.match_topics(["abc", "xa", "b"])
    assert subscription.topics == {"abc", "b"}
    assert not subscription.match_topics(["b", "abc"])


@pytest.mark.parametrize("name", ["", ".", "a b", "ä", "x" * 250, None, 7])
def test_names_that_no_topic_has(name: str) -> None:
    with pytest.raises((InvalidTopicException, ConsumerError)):
        as_partition((name, 0))


@pytest.mark.parametrize("given", ["t", ("t",), ("t", -1), ("t", "0"), (0, "t"), None])
def test_what_is_no_partition(given: object) -> None:
    with pytest.raises(ConsumerError, match="is no partition"):
        as_partition(given)


def test_offsets_are_checked_where_they_are_given() -> None:
    assert as_offsets({T0: 3, T1: OffsetAndMetadata(4, "why")}) == {
        T0: OffsetAndMetadata(3),
        T1: OffsetAndMetadata(4, "why"),
    }
    for wrong in (-1, "3", None, OffsetAndMetadata(-2), True):
        with pytest.raises(ConsumerError, match="no offset to commit for t-0"):
            as_offsets({T0: wrong})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("text", "timestamp"),
    [
        ("earliest", EARLIEST),
        ("LATEST", LATEST),
        ("none", None),
        ("by_duration:PT1H", 10_000_000 - 3_600_000),
        ("by_duration:P0DT1M2.5S", 10_000_000 - 62_500),
        ("by_duration:P365D", 0),
    ],
)
def test_reset_policies(text: str, timestamp: int | None) -> None:
    policy = ResetPolicy.parse(text)
    assert policy is not None
    assert policy.timestamp_at(10_000_000) == timestamp


@pytest.mark.parametrize(
    "text", ["", "first", "by_duration", "by_duration:", "by_duration:P", "by_duration:PT", "1h"]
)
def test_what_is_no_reset_policy(text: str) -> None:
    assert ResetPolicy.parse(text) is None
