"""Quotas of clients, against a running broker whose clock stands still: what is throttled, and for how long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import errors
from barnabas.broker.quotas.bucket import TokenBucket
from barnabas.broker.quotas.quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from barnabas.clock import Clock, ManualClock
from barnabas.protocol.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics_request import DeleteTopicsRequest
from barnabas.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import batch, create_topic, fetch_request, produce_request, values
from tests.broker.running import RunningBroker
from tests.waiting import wait_until

RECORDS = batch(b"x" * 1_000)
# Bytes a second of which the records above, all at once, are half a second too many.
HALF_A_SECOND = len(RECORDS) / 10.5


def limit(running: RunningBroker, client_id: str, **limits: float) -> None:
    writer = running.server.broker.writer
    running.call(lambda: writer.alter_quotas({(None, client_id, None): lambda _: limits}))


@pytest.fixture(scope="module")
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, clock: ManualClock) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("broker"), clock=clock) as running:
        yield running


def ask_produce(client: RawClient, topic: str) -> int:
    response = client.ask("Produce", 9, produce_request(topic, RECORDS))
    assert response.responses[0].partition_responses[0].error_code == 0
    throttle_ms: int = response.throttle_time_ms
    return throttle_ms


@pytest.mark.slow
def test_a_producer_is_told_to_wait_and_is_not_read_from_meanwhile(broker: RunningBroker) -> None:
    limit(broker, "loud", **{PRODUCER_BYTE_RATE: HALF_A_SECOND})
    with broker.client("loud") as loud, broker.client("quiet") as quiet:
        create_topic(loud, "produced")
        started_s = time.monotonic()
        # The records are written all the same: it is too late to refuse them.
        assert ask_produce(loud, "produced") == 500
        assert ask_produce(quiet, "produced") == 0
        loud.ask("Metadata", 12, MetadataRequest(topics=[]))
        assert time.monotonic() - started_s > 0.499


@pytest.mark.parametrize("user", ["ANONYMOUS", DEFAULT])
def test_all_clients_of_a_user_share_its_quota(broker: RunningBroker, clock: ManualClock, user: str) -> None:
    writer = broker.server.broker.writer
    limits = {PRODUCER_BYTE_RATE: HALF_A_SECOND * 2}
    clock.advance_ms(60_000)
    broker.call(lambda: writer.alter_quotas({(user, None, None): lambda _: limits}))
    try:
        with broker.client("one") as one, broker.client("two") as two:
            topic = f"shared-{user.strip('<>')}"
            create_topic(one, topic)
            assert ask_produce(one, topic) == 0
            assert ask_produce(two, topic) == 500
    finally:
        broker.call(lambda: writer.alter_quotas({(user, None, None): lambda _: {}}))


def test_a_producer_that_is_slow_enough_is_left_alone(broker: RunningBroker, clock: ManualClock) -> None:
    limit(broker, "steady", **{PRODUCER_BYTE_RATE: 1.2 * len(RECORDS)})
    with broker.client("steady") as steady:
        create_topic(steady, "steady")
        for _ in range(30):
            assert ask_produce(steady, "steady") == 0
            clock.advance_ms(1_000)


def test_a_consumer_gets_nothing_until_it_may(broker: RunningBroker, clock: ManualClock) -> None:
    limit(broker, "reader", **{CONSUMER_BYTE_RATE: len(RECORDS) / 10})
    with broker.client("writer") as writer:
        create_topic(writer, "consumed")
        for _ in range(3):
            ask_produce(writer, "consumed")

    def fetched(offset: int) -> tuple[int, list[bytes | None]]:
        # A client that is told to wait is not read from: each has a connection of its own.
        with broker.client("reader") as reader:
            response = reader.ask("Fetch", 12, fetch_request("consumed", offset, min_bytes=1))
        found = [part.records for topic in response.responses for part in topic.partitions]
        return response.throttle_time_ms, [value for records in found for value in values(records)]

    one = [b"x" * 1_000]
    # As much as may be had in a window, though there is more and more is asked for.
    assert fetched(0) == (0, one)
    assert fetched(1) == (10_000, [])
    # What was not sent does not count.
    assert fetched(1) == (10_000, [])
    clock.advance_ms(12_000)
    assert fetched(1) == (0, one)
    limit(broker, "reader")
    assert fetched(0) == (0, one * 3)


@pytest.mark.slow
def test_a_consumer_is_not_read_from_meanwhile(broker: RunningBroker) -> None:
    with broker.client("other") as other:
        create_topic(other, "held")
        ask_produce(other, "held")
    limit(broker, "held", **{CONSUMER_BYTE_RATE: HALF_A_SECOND})
    with broker.client("held") as held:
        started_s = time.monotonic()
        response = held.ask("Fetch", 12, fetch_request("held", 0))
        assert (response.throttle_time_ms, response.responses) == (500, [])
        held.ask("Metadata", 12, MetadataRequest(topics=[]))
        assert time.monotonic() - started_s > 0.499


class TickingClock(Clock):
    """A clock on which time passes by looking at it."""

    def __init__(self) -> None:
        self._elapsed_ns = 0

    def now_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic_ns(self) -> int:
        self._elapsed_ns += 1_000_000
        return self._elapsed_ns


def test_time_on_the_event_loop_has_a_quota_too(tmp_path: Path) -> None:
    with RunningBroker(tmp_path, clock=TickingClock()) as running:
        limit(running, "busy", **{REQUEST_PERCENTAGE: 0.000_1})
        with running.client("busy") as busy, running.client("idle") as idle:
            # At least a millisecond of ten seconds is a hundredth of a percent; one window is the most.
            response = busy.ask("Metadata", 12, MetadataRequest(topics=[]))
            assert response.throttle_time_ms == 1_000
            assert idle.ask("Metadata", 12, MetadataRequest(topics=[])).throttle_time_ms == 0


def test_a_bucket_is_full_at_first_and_refilled_all_the_time() -> None:
    bucket = TokenBucket(0)
    bucket.take(22, 2.0, 0)
    assert bucket.wait_ms(2.0, 0) == 0
    bucket.take(60, 2.0, 0)
    assert bucket.wait_ms(2.0, 0) == 30_000
    assert bucket.wait_ms(2.0, 10_000) == 20_000
    assert bucket.wait_ms(4.0, 10_000) == 10_000, "the quota may change meanwhile"
    assert bucket.wait_ms(2.0, 30_000) == 0
    # The wall clock may go back.
    assert bucket.wait_ms(2.0, 0) == 0
    bucket.take(1, 2.0, 0)
    assert bucket.wait_ms(2.0, 0) == 500
    # It never holds more than eleven seconds' worth.
    bucket.take(32, 2.0, 10_000_000)
    assert bucket.wait_ms(2.0, 10_000_000) == 5_000


def test_changes_of_the_cluster_are_refused_topic_by_topic(broker: RunningBroker, clock: ManualClock) -> None:
    # Eleven partitions at once, and then one a second.
    limit(broker, "admin", **{CONTROLLER_MUTATION_RATE: 1.0})

    def create(version: int, *topics: tuple[str, int], validate_only: bool = False) -> tuple[int, list[int]]:
        new = [
            CreatableTopic(name=name, num_partitions=count, replication_factor=1) for name, count in topics
        ]
        request = CreateTopicsRequest(topics=new, timeout_ms=60_000, validate_only=validate_only)
        # A client that is told to wait is not read from: each has a connection of its own.
        with broker.client("admin") as admin:
            response = admin.ask("CreateTopics", version, request)
        return response.throttle_time_ms, [topic.error_code for topic in response.topics]

    refused = errors.ThrottlingQuotaExceeded.code
    # What cannot be made costs nothing.
    assert create(7, ("no such name!", 50)) == (0, [errors.InvalidTopicException.code])
    assert create(7, ("a", 4), ("b", 9), ("c", 1)) == (2_000, [0, 0, refused])
    assert create(7, ("c", 1)) == (2_000, [refused])
    clock.advance_ms(1_500)
    assert create(7, ("c", 1)) == (500, [refused])
    # Whoever does not know the error waits after the change instead.
    assert create(5, ("c", 1), ("d", 1)) == (2_500, [0, 0])
    clock.advance_ms(2_500)

    # A change that is only checked counts like one that is made.
    assert create(7, ("e", 2), validate_only=True) == (0, [0])
    assert create(7, ("e", 2)) == (2_000, [refused])
    clock.advance_ms(2_000)

    with broker.client("admin") as admin:
        deletion = DeleteTopicsRequest(topic_names=["a", "b"], timeout_ms=60_000)
        response = admin.ask("DeleteTopics", 5, deletion)
        assert [topic.error_code for topic in response.responses] == [0, refused]
        assert response.throttle_time_ms == 4_000
    clock.advance_ms(4_000)
    with broker.client("admin") as admin:
        growth = [
            CreatePartitionsTopic(name=name, count=count, assignments=None)
            for name, count in (("b", 9), ("b2", 9), ("c", 3), ("d", 2))
        ]
        response = admin.ask("CreatePartitions", 3, CreatePartitionsRequest(topics=growth, timeout_ms=60_000))
        assert [topic.error_code for topic in response.results] == [
            errors.InvalidPartitions.code,
            errors.UnknownTopicOrPartition.code,
            0,
            refused,
        ]
        assert response.throttle_time_ms == 2_000
    image = broker.server.broker.image
    counts = {name: len(topic.partitions) for name, topic in image.topics.items() if len(name) == 1}
    assert counts == {"b": 9, "c": 3, "d": 1}


@pytest.mark.slow
def test_topics_that_somebody_uses_cost_too(broker: RunningBroker, clock: ManualClock) -> None:
    """A client that names them has the debt and no delay; while it is in debt, they are not created."""
    limit(broker, "user", **{CONTROLLER_MUTATION_RATE: 1.0})
    names = [f"used-{number}" for number in range(13)]

    def created(name: str) -> bool:
        return name in broker.server.broker.image.topics

    with broker.client("user") as user:
        topics = [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=True)
        assert user.ask("Metadata", 12, request).throttle_time_ms == 0
        new = [CreatableTopic(name="made", num_partitions=1, replication_factor=1)]
        refused = user.ask("CreateTopics", 7, CreateTopicsRequest(topics=new, timeout_ms=60_000))
        assert [topic.error_code for topic in refused.topics] == [errors.ThrottlingQuotaExceeded.code]
        assert refused.throttle_time_ms == 1_000
        # The controller creates them in the background; the refusal does not wait for that.
        wait_until(lambda: all(map(created, names[:-1])))
        assert not created(names[-1])
        clock.advance_ms(1_000)
        assert user.ask("Metadata", 12, request).throttle_time_ms == 0
        wait_until(lambda: created(names[-1]))
