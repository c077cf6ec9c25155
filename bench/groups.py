"""Groups compared with Apache Kafka, alternating, in one run: offset commits, and the time until a large group is
stable.

Commits are raw requests (bench/load.py) of groups without members, with five of them in flight on a connection: on one
connection, and on many, with one group each. confluent-kafka follows, for the view of a client.

Members of the large group do what a client does, and no more: join, sync, heartbeat, and join again on a rebalance. A
group is stable when all its members have an assignment of one generation, or, in the newer protocol, of one epoch.

BENCH_SECONDS is the time of one load; the warm-up time follows from it.
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from barnabas.protocol.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from barnabas.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from barnabas.protocol.messages.heartbeat_request import HeartbeatRequest
from barnabas.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from bench import load
from bench.beside import HOST, KAFKA, OURS, Results, Row, measure_load, report, tell
from bench.kafka import ApacheKafka, MeasuredBroker, MeasuredHost
from tests.peers.kafka_peer import V4, PeerUnavailable, jars

SECONDS: Final = float(os.environ.get("BENCH_SECONDS", "3"))
WARM_UP_S: Final = 5 * SECONDS
ROUNDS: Final = 5

TOPIC: Final = "consumed"
GROUPS: Final = 16
MEMBERS: Final = 200
HEARTBEAT_S: Final = 0.25
SETTLE_TIMEOUT_S: Final = 120
METADATA: Final = bytes(200)
ASSIGNMENT: Final = bytes(100)

COMMITS: Final = "offset commits, 1 connection"
COMMITS_TOGETHER: Final = f"offset commits, {GROUPS} connections"
CONFLUENT: Final = "confluent-kafka, one commit at a time"
SETTLED: Final = f"{MEMBERS} members settle"
SETTLED_AT_ONCE: Final = f"{MEMBERS} members settle, no initial delay"
SETTLED_CONSUMERS: Final = f"{MEMBERS} members settle, consumer protocol"

ROWS: Final = (
    Row(title=COMMITS, unit="/s", measurements=(COMMITS,), ratio_min=2.0),
    Row(title=COMMITS_TOGETHER, unit="/s", measurements=(COMMITS_TOGETHER,), ratio_min=2.0),
    Row(title="  2 brokers", unit="/s", measurements=(COMMITS_TOGETHER,), contender=HOST, ratio_min=2.0),
    Row(title=CONFLUENT, unit="/s", measurements=(CONFLUENT,)),
    Row(title=SETTLED, unit="s", measurements=(SETTLED,), digits=2, ratio_max=1.2),
    Row(title=SETTLED_AT_ONCE, unit="s", measurements=(SETTLED_AT_ONCE,), digits=2, ratio_max=1.2),
    Row(title=SETTLED_CONSUMERS, unit="s", measurements=(SETTLED_CONSUMERS,), digits=2, ratio_max=1.2),
)

COMMIT_VERSION: Final = 8
MEMBER_ID_REQUIRED: Final = 79
REBALANCE_IN_PROGRESS: Final = 27


def run() -> bool:
    try:
        jars(V4)
    except PeerUnavailable as reason:
        print(f"\nNothing to compare with, so no target is shown to be met: {reason}")
        return False
    results = Results()
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        at_once = {"group.initial.rebalance.delay.ms": "0"}
        turns = [
            (
                KAFKA,
                stack.enter_context(ApacheKafka(folder / "kafka")),
                stack.enter_context(ApacheKafka(folder / "kafka-at-once", at_once)),
            ),
            (
                OURS,
                stack.enter_context(MeasuredBroker(folder / "ours")),
                stack.enter_context(MeasuredBroker(folder / "ours-at-once", at_once)),
            ),
        ]
        host = stack.enter_context(MeasuredHost(folder / "host"))
        host.create_topic(TOPIC, MEMBERS)
        tell(f"warming for {WARM_UP_S:g} s: {HOST}")
        commits(host.port, GROUPS, WARM_UP_S)
        for contender, broker, immediate in turns:
            for each in (broker, immediate):
                each.create_topic(TOPIC, MEMBERS)
                find_coordinator(each.port, "any", 0)
            tell(f"warming for {WARM_UP_S:g} s: {contender}")
            commits(broker.port, GROUPS, WARM_UP_S)
            settle(immediate.port, _live)
            settle(immediate.port, _live_by_heartbeats)
        for number in range(ROUNDS):
            tell(f"round {number + 1} of {ROUNDS}")
            many = measure_load(lambda: commits(host.port, GROUPS, SECONDS))
            results.add(COMMITS_TOGETHER, HOST, many.per_second, many.load_cores)
            for contender, broker, immediate in turns if number % 2 == 0 else reversed(turns):
                one = measure_load(lambda port=broker.port: commits(port, 1, SECONDS))  # type: ignore[misc]
                results.add(COMMITS, contender, one.per_second, one.load_cores)
                many = measure_load(lambda port=broker.port: commits(port, GROUPS, SECONDS))  # type: ignore[misc]
                results.add(COMMITS_TOGETHER, contender, many.per_second, many.load_cores)
                client = measure_load(lambda port=broker.port: confluent_commits(port, SECONDS))  # type: ignore[misc]
                results.add(CONFLUENT, contender, client.per_second, client.load_cores)
                results.add(SETTLED, contender, settle(broker.port, _live))
                results.add(SETTLED_AT_ONCE, contender, settle(immediate.port, _live))
                results.add(SETTLED_CONSUMERS, contender, settle(immediate.port, _live_by_heartbeats))
    all_met = report(f"Groups of one broker compared with Apache Kafka {V4}", ROWS, results, ROUNDS)
    print(
        "A ratio is ours to Kafka's, the median of the ratios of the rounds. The load's cores are what sending and\n"
        "receiving took beside Kafka and beside us. The first of a group waits 3 s for others, as is the default."
    )
    return all_met


def find_coordinator(port: int, key: str, key_type: int) -> int:
    """Waits until there is one. Returns its port."""
    request = FindCoordinatorRequest(key=key, key_type=key_type)
    deadline_s = time.monotonic() + load.TIMEOUT_S
    with load.connect(port) as connected:
        while (answer := load.ask(connected, "FindCoordinator", 3, request)).error_code != 0:
            assert time.monotonic() < deadline_s, f"{key} has no coordinator after {load.TIMEOUT_S} s"
            time.sleep(0.05)
    return int(answer.port)


def commits(port: int, groups: int, duration_s: float) -> int:
    """The number of confirmed commits of this many groups in that time, each on its own connection."""
    frames = []
    for number in range(groups):
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        request = OffsetCommitRequest(
            group_id=f"group-{number}", topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]
        )
        coordinator_port = find_coordinator(port, request.group_id, 0)
        _wait_until_loaded(coordinator_port, request)
        frames.append((coordinator_port, load.frame("OffsetCommit", COMMIT_VERSION, request)))
    return load.exchange_together(frames, _check_committed, duration_s)


def _wait_until_loaded(port: int, request: OffsetCommitRequest) -> None:
    deadline_s = time.monotonic() + load.TIMEOUT_S
    with load.connect(port) as connected:
        while True:
            answer = load.ask(connected, "OffsetCommit", COMMIT_VERSION, request)
            if answer.topics[0].partitions[0].error_code == 0:
                return
            assert time.monotonic() < deadline_s, answer
            time.sleep(0.05)


def _check_committed(answer: memoryview) -> None:
    # The error of the only partition is the last but the tags of partition, topic and answer.
    error_code = int.from_bytes(answer[-5:-3], "big")
    assert error_code == 0, f"the broker answered error {error_code}"


def confluent_commits(port: int, duration_s: float) -> int:
    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "group.id": "confluent",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        # The first one finds the coordinator.
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, 1)], asynchronous=False)
        end_s = time.perf_counter() + duration_s
        count = 0
        while time.perf_counter() < end_s:
            consumer.commit(offsets=[TopicPartition(TOPIC, 0, count)], asynchronous=False)
            count += 1
    finally:
        consumer.close()
    return count


class _Settling:
    """Which generation each member has an assignment of, and when all have one of the same."""

    def __init__(self, members: int) -> None:
        self._members = members
        self._generations: dict[int, int] = {}
        self._changed = threading.Condition()
        self.is_settled = threading.Event()
        self.settled_s = 0.0

    def assigned(self, member: int, generation: int) -> None:
        with self._changed:
            self._generations[member] = generation
            if len(self._generations) == self._members and len(set(self._generations.values())) == 1:
                self.settled_s = time.perf_counter()
                self.is_settled.set()


def settle(port: int, live: Callable[[socket.socket, str, int, _Settling, float], int]) -> float:
    """Seconds from the first member's first request until the whole group has settled."""
    group = f"settling-{time.monotonic_ns()}"
    find_coordinator(port, group, 0)
    settling = _Settling(MEMBERS)
    with ExitStack() as stack:
        connections = [stack.enter_context(load.connect(port)) for _ in range(MEMBERS)]
        start_s = time.perf_counter()
        give_up_s = time.monotonic() + SETTLE_TIMEOUT_S

        def worker(number: int) -> Callable[[], int]:
            return lambda: live(connections[number], group, number, settling, give_up_s)

        load.in_threads([worker(number) for number in range(MEMBERS)])
    assert settling.is_settled.is_set(), f"{MEMBERS} members have not settled in {SETTLE_TIMEOUT_S} s"
    return settling.settled_s - start_s


def _live(connected: socket.socket, group: str, number: int, settling: _Settling, give_up_s: float) -> int:
    """A member from its first request until the group has settled; how often it has joined."""
    member_id = ""
    joins = 0
    while not settling.is_settled.is_set() and time.monotonic() < give_up_s:
        join = JoinGroupRequest(
            group_id=group,
            member_id=member_id,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=METADATA)],
        )
        joined = load.ask(connected, "JoinGroup", 7, join)
        member_id = joined.member_id
        if joined.error_code == MEMBER_ID_REQUIRED:
            continue
        assert joined.error_code in (0, REBALANCE_IN_PROGRESS), joined
        joins += 1
        is_leader = joined.leader == member_id
        sync = SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequestAssignment(member_id=each.member_id, assignment=ASSIGNMENT)
                for each in (joined.members if is_leader else ())
            ],
        )
        synced = load.ask(connected, "SyncGroup", 5, sync)
        if synced.error_code == REBALANCE_IN_PROGRESS:
            continue
        assert synced.error_code == 0, synced
        settling.assigned(number, joined.generation_id)
        heartbeat = HeartbeatRequest(group_id=group, generation_id=joined.generation_id, member_id=member_id)
        while not settling.is_settled.wait(HEARTBEAT_S) and time.monotonic() < give_up_s:
            if load.ask(connected, "Heartbeat", 4, heartbeat).error_code != 0:
                break
    return joins


def _live_by_heartbeats(
    connected: socket.socket, group: str, number: int, settling: _Settling, give_up_s: float
) -> int:
    """The same in the newer protocol: a member has settled when it has taken the one partition that is its share."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    beats = 0
    owned = 0
    while not settling.is_settled.is_set() and time.monotonic() < give_up_s:
        answer = load.ask(connected, "ConsumerGroupHeartbeat", 0, request)
        beats += 1
        assert answer.error_code == 0, answer
        is_new = answer.assignment is not None
        if is_new:
            taken = [
                TopicPartitions(topic_id=each.topic_id, partitions=each.partitions)
                for each in answer.assignment.topic_partitions
            ]
            owned = sum(len(each.partitions) for each in taken)
        settling.assigned(number, answer.member_epoch if owned == 1 else -1 - number)
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=answer.member_id,
            member_epoch=answer.member_epoch,
            topic_partitions=taken if is_new else None,
        )
        if not is_new:
            settling.is_settled.wait(HEARTBEAT_S)
    return beats
