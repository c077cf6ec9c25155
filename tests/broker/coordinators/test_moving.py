"""Coordinators load and unload with the leadership of their partition, whenever it changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from barnabas.broker.coordinators import group_shell
from barnabas.broker.coordinators.group_runtime import OFFSETS_TOPIC, GroupRuntime
from barnabas.broker.coordinators.group_shell import GroupShell
from barnabas.broker.coordinators.transaction_runtime import TRANSACTIONS_TOPIC, TransactionRuntime
from barnabas.errors import (
    NONE,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidReplicationFactor,
    KafkaError,
    LeaderNotAvailable,
    NotCoordinator,
)
from barnabas.primitives.decision import Decision
from barnabas.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.transactions.answers import ProducerAnswer
from tests.broker.coordinators.late import GROUP, fetch
from tests.broker.coordinators.moving import Asked, Moving, groups_of, ready, transactions_of
from tests.sampling import seeds

GONE = NotCoordinator.code
LOADING = CoordinatorLoadInProgress.code
# What a client gets that meets a change: it looks for the coordinator again, or asks again.
RETRIED = {GONE, LOADING, CoordinatorNotAvailable.code}


def run(test: Callable[[Moving], Awaitable[None]], topic: str = OFFSETS_TOPIC) -> None:
    async def start() -> None:
        moving = Moving(topic)
        try:
            await test(moving)
        finally:
            await moving.close()

    asyncio.run(start())


def commit(groups: GroupRuntime, offset: int) -> Asked:
    asked = Asked()
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(
        group_id=GROUP, topics=[OffsetCommitRequestTopic(name="topic", partitions=[partition])]
    )
    try:
        shell = groups.shell_of(GROUP)
    except KafkaError as error:
        asked.answers.append(error.code)
    else:
        caller = asked.caller(9)
        shell.carry_out(shell.coordinator.offsets.commit(caller, request, 0))
    return asked


async def groups_with_offsets(moving: Moving) -> GroupRuntime:
    """The last of the committed offsets is 19."""
    moving.show_topic()
    groups = groups_of(moving, Random(0))
    moving.lead()
    await moving.settle()
    for offset in range(1, 20):
        commit(groups, offset)
    moving.commit()
    await moving.settle()
    return groups


def code_of(asked: Asked) -> int:
    answer = asked.answer
    return answer if isinstance(answer, int) else int(answer.topics[0].partitions[0].error_code)


def join(groups: GroupRuntime, group_id: str = "joined") -> Asked:
    """Waits for other members."""
    asked = Asked()
    request = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\x00\x00\x00\x00\x00\x00")],
    )
    shell = groups.shell_of(group_id)
    shell.carry_out(shell.coordinator.membership.join(asked.caller(3), request, 0))
    return asked


def error_code(groups: GroupRuntime) -> int:
    try:
        groups.shell_at(0)
    except KafkaError as error:
        return error.code
    return NONE


def test_roles_load_and_unload_without_news_from_the_metadata() -> None:
    async def test(moving: Moving) -> None:
        moving.show_topic()
        groups = groups_of(moving, Random(0))
        assert error_code(groups) == GONE
        moving.lead()
        assert error_code(groups) == LOADING
        await moving.settle()
        assert error_code(groups) == NONE
        moving.follow()
        assert (error_code(groups), list(groups)) == (GONE, [])
        moving.lead()
        assert error_code(groups) == LOADING
        await moving.settle()
        assert error_code(groups) == NONE
        moving.stop()
        assert (error_code(groups), list(groups)) == (GONE, [])

    run(test)


def test_a_topic_that_is_known_after_its_roles_is_loaded_then() -> None:
    async def test(moving: Moving) -> None:
        groups = groups_of(moving, Random(0))
        moving.lead()
        assert error_code(groups) == GONE
        moving.show_topic()
        assert error_code(groups) == LOADING
        await moving.settle()
        assert error_code(groups) == NONE

    run(test)


def test_a_leader_that_goes_on_in_the_next_epoch_keeps_its_coordinator() -> None:
    async def test(moving: Moving) -> None:
        moving.show_topic()
        groups = groups_of(moving, Random(0))
        moving.lead()
        await moving.settle()
        shell = ready(groups)
        joining = join(groups)
        moving.lead()
        assert ready(groups) is shell
        assert not joining.answers

    run(test)


def test_a_disk_that_fails_takes_the_coordinator_with_it() -> None:
    async def test(moving: Moving) -> None:
        moving.show_topic()
        groups = groups_of(moving, Random(0))
        moving.lead()
        await moving.settle()
        joining = join(groups)
        moving.replica.manager.take_offline("directory", [moving.replica.topic_partition])
        assert joining.answer.error_code == GONE
        assert list(groups) == []

    run(test)


def test_a_topic_that_another_broker_is_creating_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async def test(moving: Moving) -> None:
        groups = groups_of(moving, Random(0))
        moving.creation_error = LeaderNotAvailable("Topic already exists.")
        with pytest.raises(CoordinatorNotAvailable):
            await groups.ensure_topic()
        assert not caplog.records
        moving.creation_error = InvalidReplicationFactor("There are too few brokers.")
        with pytest.raises(CoordinatorNotAvailable):
            await groups.ensure_topic()
        assert "too few brokers" in caplog.text

    run(test)


@pytest.mark.parametrize("end", [Moving.follow, Moving.stop])
def test_requests_that_wait_are_answered_when_the_leadership_ends(end: Callable[[Moving], None]) -> None:
    async def test(moving: Moving) -> None:
        moving.show_topic()
        groups = groups_of(moving, Random(0))
        moving.lead()
        await moving.settle()
        joining, committing = join(groups), commit(groups, 1)
        assert (joining.answers, committing.answers) == ([], [])
        end(moving)
        assert (joining.answer.error_code, code_of(committing)) == (GONE, GONE)

    run(test)


def test_a_broker_that_stops_loads_nothing_more() -> None:
    async def test(moving: Moving) -> None:
        moving.show_topic()
        groups = groups_of(moving, Random(0))
        moving.lead()
        await moving.settle()
        groups.end()
        moving.lead()
        await moving.settle()
        assert list(groups) == []

    run(test)


@pytest.mark.parametrize("part", ["_replay", "_loaded", "forget_partitions"])
def test_a_load_that_fails_unexpectedly_keeps_no_other_from_being_loaded(
    part: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if not group_shell.__file__.endswith(".py"):
        pytest.skip("functions of compiled modules cannot be replaced: the run as plain Python has this test")

    async def test(moving: Moving) -> None:
        moving.show_topic()
        groups = groups_of(moving, Random(0))
        moving.lead()
        await moving.settle()
        commit(groups, 1)
        moving.commit()

        def fail(shell: GroupShell, *arguments: object) -> Decision:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(GroupShell, part, fail)
        shells = [groups._new_shell(moving.replica.partition) for _ in range(2)]
        await groups._load(shells)
        for shell in shells:
            with pytest.raises(NotCoordinator):
                shell.check_ready()
        traces = [each.exc_info for each in caplog.records if "cannot be loaded" in each.getMessage()]
        assert len(traces) == 2
        assert all(traces)

    run(test)


@pytest.mark.parametrize("step", range(0, 60, 4))
def test_a_load_that_is_overtaken_stops(step: int) -> None:
    """The leadership ends after some steps of the load, and comes back while the first load may still be reading."""

    async def test(moving: Moving) -> None:
        groups = await groups_with_offsets(moving)
        lost = commit(groups, 20)
        moving.follow()
        assert code_of(lost) == GONE
        moving.lead()
        for _ in range(step):
            await asyncio.sleep(0)
        moving.follow()
        assert error_code(groups) == GONE
        moving.lead()
        await moving.settle()
        shell = ready(groups)
        assert shell is not None
        assert fetch(shell) == (NONE, 19)
        assert len(list(groups)) == 1

    run(test)


@pytest.mark.parametrize("step", range(0, 60, 4))
def test_a_log_that_is_exchanged_keeps_its_coordinator(step: int) -> None:
    """It is asked for after some steps of the load, again and again until nobody reads the log."""

    async def test(moving: Moving) -> None:
        groups = await groups_with_offsets(moving)
        moving.follow()
        moving.lead()
        for _ in range(step):
            await asyncio.sleep(0)
        for _ in range(200):
            if moving.exchange():
                break
            await asyncio.sleep(0)
        lost = commit(groups, 20)
        assert code_of(lost) in RETRIED
        await moving.settle()
        shell = ready(groups)
        assert shell is not None
        assert fetch(shell) == (NONE, 19)

    run(test)


def test_a_request_waits_for_its_commit_while_the_log_is_exchanged() -> None:
    async def test(moving: Moving) -> None:
        moving.show_topic()
        groups = groups_of(moving, Random(0))
        moving.lead()
        await moving.settle()
        committing = commit(groups, 1)
        assert moving.exchange()
        partition = moving.replica.partition
        partition.delayed.note_change(partition.topic_partition)
        await moving.settle()
        assert not committing.answers
        moving.commit()
        await moving.settle()
        assert code_of(committing) == NONE

    run(test)


class Register:
    """Offsets that one client commits in order, each once: what the group shows of them never goes back."""

    def __init__(self, groups: GroupRuntime) -> None:
        self._groups = groups
        self._asked: dict[int, Asked] = {}
        self._seen = -1

    def commit(self) -> None:
        offset = len(self._asked)
        self._asked[offset] = commit(self._groups, offset)

    def acknowledged(self) -> int:
        found = [offset for offset, asked in self._asked.items() if asked.answers and code_of(asked) == NONE]
        return max(found, default=-1)

    def read(self) -> None:
        shell = ready(self._groups)
        if shell is None:
            return
        code, offset = fetch(shell)
        assert code == NONE
        assert offset >= self.acknowledged()
        assert offset >= self._seen
        assert offset < len(self._asked)
        self._seen = offset

    def check_answers(self) -> None:
        assert {code_of(asked) for asked in self._asked.values()} <= {NONE, *RETRIED}


@pytest.mark.parametrize("seed", seeds(40, fast=10))
def test_offsets_survive_roles_that_change_at_any_moment(seed: int) -> None:
    async def test(moving: Moving) -> None:
        rng = Random(seed)
        moving.show_topic()
        groups = groups_of(moving, rng)
        moving.lead()
        register = Register(groups)
        joins: list[Asked] = []
        for _ in range(150):
            action = rng.choices(
                ["commit", "read", "replicate", "join", "exchange", "lead", "follow", "stop"],
                [8, 6, 6, 2, 2, 2, 2, 1],
            )[0]
            if action == "commit":
                register.commit()
            elif action == "read":
                register.read()
            elif action == "replicate":
                moving.commit(rng.random())
            elif action == "join":
                if ready(groups) is not None:
                    joins.append(join(groups, f"joined-{rng.randrange(5)}"))
            else:
                getattr(moving, action)()
            for _ in range(rng.choice([0, 0, 1, 2, 5, 20])):
                await asyncio.sleep(0)
        moving.lead()
        await moving.settle()
        moving.commit()
        await moving.settle()
        register.read()
        moving.follow()
        await moving.settle()
        register.check_answers()
        assert {asked.answer.error_code for asked in joins} <= {NONE, *RETRIED}
        assert list(groups) == []

    run(test)


def init(transactions: TransactionRuntime, answers: list[ProducerAnswer]) -> None:
    try:
        shell = transactions.shell_of("id")
    except KafkaError as error:
        answers.append(ProducerAnswer(error=error))
        return
    shell.carry_out(shell.coordinator.init_producer_id("id", 60_000, None, answers.append, 0))


@pytest.mark.parametrize("seed", seeds(20, fast=5))
def test_no_producer_epoch_is_given_twice_while_roles_change(seed: int) -> None:
    async def test(moving: Moving) -> None:
        rng = Random(seed)
        moving.show_topic()
        transactions = await transactions_of(moving)
        moving.lead()
        answers: list[ProducerAnswer] = []
        asked = 0
        for _ in range(150):
            action = rng.choices(
                ["init", "replicate", "exchange", "lead", "follow", "stop"], [8, 8, 1, 1, 1, 1]
            )[0]
            if action == "init":
                init(transactions, answers)
                asked += 1
            elif action == "replicate":
                moving.commit(rng.random())
            else:
                getattr(moving, action)()
            for _ in range(rng.choice([0, 0, 1, 2, 5, 20])):
                await asyncio.sleep(0)
        moving.follow()
        await moving.settle()
        assert len(answers) == asked
        given = [(each.producer_id, each.producer_epoch) for each in answers if each.error is None]
        assert len(set(given)) == len(given)
        assert given == sorted(given)

    run(test, TRANSACTIONS_TOPIC)
