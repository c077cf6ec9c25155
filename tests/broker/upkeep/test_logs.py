"""What a broker logs about topics, rebalances and slow requests."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.clock import Clock
from barnabas.protocol.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.delete_topics_request import DeleteTopicsRequest
from barnabas.protocol.messages.metadata_request import MetadataRequest
from tests.broker.group_requests import join, join_alone, leave, wait_for_coordinator
from tests.broker.handlers.groups.test_consumer_groups import FAST, beat
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import batch, create_topic, fetch, fetch_request, produce
from tests.broker.running import RunningBroker
from tests.waiting import wait_until

NO_WAIT = {**FAST, "group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1"}
Lines = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    settings = {
        **NO_WAIT,
        "group.consumer.min.session.timeout.ms": "1",
        "barnabas.slow.request.ms": "3600000",
    }
    with RunningBroker(tmp_path_factory.mktemp("broker"), settings) as running:
        yield running


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    """What was logged since the test began and has a text in it."""
    caplog.set_level(logging.DEBUG, "barnabas")
    return lambda text: [message for message in caplog.messages if text in message]


def test_topics_that_come_grow_and_go(client: RawClient, lines: Lines) -> None:
    create_topic(client, "coming", 1, **{"retention.ms": "5000"})
    growing = CreatePartitionsTopic(name="coming", count=4, assignments=None)
    client.ask("CreatePartitions", 3, CreatePartitionsRequest(topics=[growing], timeout_ms=30_000))
    client.ask("DeleteTopics", 5, DeleteTopicsRequest(topic_names=["coming"]))
    [created] = lines("Created topic coming with 1 partition,")
    assert "{'retention.ms': '5000'}" in created
    assert lines("Topic coming has 4 partitions now")
    assert lines("Deleted topic coming with 4 partitions")


def test_topics_that_are_only_asked_about_are_not_created(client: RawClient, lines: Lines) -> None:
    client.ask("DeleteTopics", 5, DeleteTopicsRequest(topic_names=["never-there"]))
    assert not lines("never-there")


def test_a_rebalance_says_why(broker: RunningBroker, client: RawClient, lines: Lines) -> None:
    wait_for_coordinator(client, "reasons")
    first = join_alone(client, "reasons")
    preparing = "Preparing to rebalance group reasons in state "
    [line] = lines(f"{preparing}Empty with old generation 0")
    assert (
        f"(reason: Adding new member {first.member_id} with group instance id None; client reason: " in line
    )
    assert lines("Stabilized group reasons generation 1 with 1 members.")
    join(client, "reasons", member_id=first.member_id)
    [line] = lines(f"{preparing}Stable with old generation 1")
    assert f"Leader {first.member_id} re-joining group during Stable; client reason: not provided" in line
    leave(client, "reasons", first.member_id)
    [line] = lines("explicit LeaveGroup request")
    assert first.member_id in line
    assert lines("Group reasons with generation 3 is now empty.")


def test_a_member_that_falls_silent_is_the_reason(client: RawClient, lines: Lines) -> None:
    wait_for_coordinator(client, "silent")
    joined = join_alone(client, "silent", session_timeout_ms=50)
    wait_until(lambda: bool(lines(f"removing member {joined.member_id} on heartbeat expiration")))


def test_consumer_groups_say_why_too(broker: RunningBroker, client: RawClient, lines: Lines) -> None:
    create_topic(client, "topic", partitions=4)
    wait_for_coordinator(client, "modern")
    epoch = beat(client, "modern", "a").member_epoch
    assert any(line.endswith("(reason: member a joined).") for line in lines("Rebalancing group modern"))
    epoch = beat(client, "modern", "a", epoch, subscribed_topic_names=["topic", "more"]).member_epoch
    assert lines("(reason: member a changed its subscription).")
    create_topic(client, "more")
    wait_until(
        lambda: (
            beat(client, "modern", "a", epoch).member_epoch > epoch
            or bool(lines("(reason: the topics that it reads have changed)."))
        )
    )
    assert lines("(reason: the topics that it reads have changed).")
    beat(client, "modern", "a", -1)
    assert lines("(reason: member a left).")


def test_connections_are_told_of_at_debug(broker: RunningBroker, lines: Lines) -> None:
    with broker.client() as client:
        client.ask("Metadata", 12, MetadataRequest(topics=[]))
        assert lines("accepted by listener PLAINTEXT")
    wait_until(lambda: bool(lines("closed: by the client")))


class TickingClock(Clock):
    """A clock on which time passes by looking at it."""

    def __init__(self) -> None:
        self._elapsed_ns = 0
        self.tick_ns = 0

    def now_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic_ns(self) -> int:
        self._elapsed_ns += self.tick_ns
        return self._elapsed_ns


def test_slow_requests_and_what_they_did_with_their_time(tmp_path: Path, lines: Lines) -> None:
    clock = TickingClock()
    running = RunningBroker(tmp_path, {"barnabas.slow.request.ms": "500"}, clock=clock)
    with running, running.client("sluggish") as client:
        create_topic(client, "topic")
        client.ask("Metadata", 12, MetadataRequest(topics=[]))
        assert not lines("Slow request")
        clock.tick_ns = 600_000_000
        client.ask("Metadata", 12, MetadataRequest(topics=[]))
        clock.tick_ns = 0
    [line] = lines("Slow request")
    assert line.startswith("Slow request: Metadata version 12 of client sluggish at 127.0.0.1:")
    assert "ms on the event loop, 0 ms waiting; then throttled for 0 ms" in line


@pytest.mark.slow
def test_a_fetch_that_waits_for_records_is_not_slow(tmp_path: Path, lines: Lines) -> None:
    with RunningBroker(tmp_path, {"barnabas.slow.request.ms": "400"}) as running, running.client() as client:
        create_topic(client, "topic")
        produce(client, "topic", batch(b"a"))
        fetch(client, "topic", 0)
        client.ask("Fetch", 12, fetch_request("topic", 1, max_wait_ms=900))
        assert not [line for line in lines("Slow request") if "Fetch" in line]
