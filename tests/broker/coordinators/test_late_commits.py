"""What a coordinator answers is committed: records that the in-sync replicas do not have yet are seen by nobody.

The machines and shells are real, and so is the partition; the test moves its high watermark.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from barnabas.broker.coordinators.group_shell import GroupShell
from barnabas.broker.coordinators.transaction_shell import TransactionShell
from barnabas.broker.replication.partition import ACKS_ALL
from barnabas.errors import (
    NONE,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerIdMapping,
    KafkaError,
    NotCoordinator,
    TransactionalIdNotFound,
    UnknownServerError,
    UnstableOffsetCommit,
)
from barnabas.model import NO_SEQUENCE, ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from barnabas.primitives.decision import Decision
from barnabas.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.heartbeat_request import HeartbeatRequest
from barnabas.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.records.builder import end_transaction_marker
from barnabas.records.layout import ControlRecordType
from barnabas.records.policy import AppendOrigin
from barnabas.transactions.answers import ProducerAnswer
from barnabas.transactions.listing import TransactionFilter, describe_transaction, list_transactions
from barnabas.transactions.markers import Markers
from barnabas.transactions.producer import TRANSACTION_VERSION_2, ProducerIdAndEpoch
from tests.broker.coordinators.late import (
    GROUP,
    TOPIC,
    LatePartition,
    Replies,
    ask,
    commit_code,
    commit_offset,
    fetch,
    listed,
)

NOTHING = (NONE, -1)
UNSTABLE = (UnstableOffsetCommit.code, -1)
PRODUCER = ProducerId(7)
ID = "id"
PARTITIONS = frozenset({TopicPartition(TOPIC, 0)})


def run(test: Callable[[LatePartition], Awaitable[None]]) -> None:
    async def start() -> None:
        await test(LatePartition())

    asyncio.run(start())


def test_an_offset_is_fetched_when_it_is_committed() -> None:
    async def test(late: LatePartition) -> None:
        shell = await late.group_shell()
        first = commit_offset(shell, 5)
        second = commit_offset(shell, 6, partition=1)
        await late.settle()
        assert not first.all
        assert (fetch(shell), fetch(shell, stable=True)) == (NOTHING, UNSTABLE)
        assert listed(shell) == []
        assert shell.coordinator.offset_count == 0
        assert shell.coordinator.groups_with_offsets() == []
        await late.commit(1)
        assert commit_code(first) == NONE
        assert not second.all
        assert fetch(shell) == fetch(shell, stable=True) == (NONE, 5)
        assert (fetch(shell, 1), fetch(shell, 1, stable=True)) == (NOTHING, UNSTABLE)
        assert listed(shell) == [GROUP]
        await late.commit()
        assert commit_code(second) == NONE
        assert fetch(shell, 1, stable=True) == (NONE, 6)

    run(test)


def test_what_is_lost_with_the_leadership_was_never_seen() -> None:
    async def test(late: LatePartition) -> None:
        shell = await late.group_shell()
        kept = commit_offset(shell, 5)
        await late.commit()
        assert commit_code(kept) == NONE
        lost = commit_offset(shell, 6)
        new = commit_offset(shell, 1, partition=1)
        assert (fetch(shell), fetch(shell, 1)) == ((NONE, 5), NOTHING)
        await late.resign()
        assert commit_code(lost) == commit_code(new) == NotCoordinator.code
        with pytest.raises(NotCoordinator):
            fetch(shell)
        shell.unload()
        after = await late.group_shell()
        assert (fetch(after, stable=True), fetch(after, 1, stable=True)) == ((NONE, 5), NOTHING)

    run(test)


def test_requests_that_wait_are_refused_when_the_shell_is_unloaded() -> None:
    async def test(late: LatePartition) -> None:
        shell = await late.group_shell()
        waiting = commit_offset(shell, 5)
        shell.unload()
        assert commit_code(waiting) == NotCoordinator.code
        await late.commit()
        assert not waiting.all

    run(test)


def test_a_commit_that_takes_too_long_counts_when_it_comes() -> None:
    async def test(late: LatePartition) -> None:
        shell = await late.group_shell()
        waiting = commit_offset(shell, 5)
        await late.time_out()
        assert commit_code(waiting) == CoordinatorNotAvailable.code
        assert fetch(shell) == NOTHING
        await late.commit()
        assert fetch(shell, stable=True) == (NONE, 5)

    run(test)


def test_a_reply_without_records_waits_for_those_it_may_rely_on() -> None:
    async def test(late: LatePartition) -> None:
        shell = await late.group_shell()
        joined = heartbeat(shell, 0)
        assert not joined.all
        again = heartbeat(shell, 0)
        assert not again.all
        assert (listed(shell), shell.coordinator.describe_consumer_group(GROUP).members) == ([], [])
        await late.commit()
        assert joined.one().member_epoch == again.one().member_epoch == 2
        assert listed(shell) == [GROUP]
        [member] = shell.coordinator.describe_consumer_group(GROUP).members
        assert member.member_id == "member"

    run(test)


def test_a_consumer_group_is_shown_without_records_that_are_not_committed() -> None:
    async def test(late: LatePartition) -> None:
        shell = await late.group_shell()
        heartbeat(shell, 0)
        await late.commit()
        heartbeat(shell, 0, member_id="other")
        left = heartbeat(shell, -1)
        shown = shell.coordinator.describe_consumer_group(GROUP)
        assert [member.member_id for member in shown.members] == ["member"]
        await late.resign()
        assert left.one().error_code == NotCoordinator.code
        shell.unload()
        after = await late.group_shell()
        assert after.coordinator.describe_consumer_group(GROUP) == shown

    run(test)


def heartbeat(shell: GroupShell, member_epoch: int, member_id: str = "member") -> Replies:
    request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=member_id, member_epoch=member_epoch)
    if member_epoch == 0:
        request.rebalance_timeout_ms = 60_000
        request.subscribed_topic_names = [TOPIC]
        request.topic_partitions = []
    return ask(shell, lambda caller: shell.coordinator.consumers.heartbeat(caller, request, 0), version=1)


def test_a_classic_group_is_listed_when_its_first_record_is_committed() -> None:
    async def test(late: LatePartition) -> None:
        shell = await late.group_shell()
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\x00\x00\x00\x00\x00\x00")],
        )
        joining = ask(shell, lambda caller: shell.coordinator.membership.join(caller, request, 0), version=4)
        unknown = HeartbeatRequest(group_id=GROUP, member_id="unknown")
        beating = ask(shell, lambda caller: shell.coordinator.membership.heartbeat(caller, unknown, 0))
        assert (joining.all, beating.all, listed(shell)) == ([], [], [])
        await late.commit()
        assert joining.one().member_id
        assert beating.one().error_code != NONE
        assert listed(shell) == [GROUP]

    run(test)


def test_a_group_is_there_until_its_deletion_is_committed() -> None:
    async def test(late: LatePartition) -> None:
        shell = await late.group_shell()
        commit_offset(shell, 5)
        await late.commit()
        deleting = ask(shell, lambda caller: shell.coordinator.delete_groups(caller, [GROUP]))
        assert not deleting.all
        assert (listed(shell), fetch(shell)) == ([GROUP], (NONE, 5))
        [described] = shell.coordinator.describe_groups([GROUP], 5)
        assert described.group_state == "Empty"
        await late.commit()
        assert deleting.one().results[0].error_code == NONE
        assert (listed(shell), fetch(shell)) == ([], NOTHING)

    run(test)


def test_a_group_that_is_deleted_takes_offsets_in_flight_with_it() -> None:
    async def test(late: LatePartition) -> None:
        shell = await late.group_shell()
        commit_offset(shell, 5)
        await late.commit()
        commit_offset(shell, 6, partition=1)
        ask(shell, lambda caller: shell.coordinator.delete_groups(caller, [GROUP]))
        await late.commit()
        assert (listed(shell), fetch(shell, 1, stable=True)) == ([], NOTHING)
        shell.unload()
        await late.resign()
        assert listed(await late.group_shell()) == []

    run(test)


def test_an_offset_is_there_until_its_tombstone_is_committed() -> None:
    async def test(late: LatePartition) -> None:
        shell = await late.group_shell()
        commit_offset(shell, 5)
        await late.commit()
        topic = OffsetDeleteRequestTopic(
            name=TOPIC, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
        )
        request = OffsetDeleteRequest(group_id=GROUP, topics=[topic])
        deleting = ask(shell, lambda caller: shell.coordinator.offsets.delete(caller, request), version=0)
        assert (deleting.all, fetch(shell)) == ([], (NONE, 5))
        await late.commit()
        assert deleting.one().error_code == NONE
        assert fetch(shell) == NOTHING

    run(test)


def test_offsets_that_expire_are_there_until_their_tombstones_are_committed() -> None:
    async def test(late: LatePartition) -> None:
        shell = await late.group_shell()
        # Long ago: the next look at offsets finds that it is too old.
        commit_offset(shell, 5, now_ms=1)
        await late.commit()
        shell.carry_out(shell.coordinator._clean_up(late.now_ms))
        log_end_offset = late.replica.log.log_end_offset
        assert (listed(shell), fetch(shell)) == ([GROUP], (NONE, 5))
        # What is on its way is not written again.
        shell.carry_out(shell.coordinator._clean_up(late.now_ms))
        assert late.replica.log.log_end_offset == log_end_offset == 3
        await late.commit()
        assert (listed(shell), fetch(shell)) == ([], NOTHING)

    run(test)


@pytest.mark.parametrize("is_committed", [True, False])
def test_offsets_of_a_transaction_wait_for_its_marker_to_be_committed(is_committed: bool) -> None:
    async def test(late: LatePartition) -> None:
        shell = await late.group_shell()
        commit_offset(shell, 5)
        await late.commit()
        waiting = commit_in_transaction(shell, 6)
        assert (waiting.all, fetch(shell), fetch(shell, stable=True)) == ([], (NONE, 5), UNSTABLE)
        await late.commit()
        assert commit_code(waiting) == NONE
        assert (fetch(shell), fetch(shell, stable=True)) == ((NONE, 5), UNSTABLE)
        end_transaction(shell, is_committed=is_committed)
        assert (fetch(shell), fetch(shell, stable=True)) == ((NONE, 5), UNSTABLE)
        await late.commit()
        assert fetch(shell) == fetch(shell, stable=True) == (NONE, 6 if is_committed else 5)

    run(test)


def test_a_marker_that_is_lost_ends_nothing() -> None:
    async def test(late: LatePartition) -> None:
        shell = await late.group_shell()
        commit_in_transaction(shell, 6)
        await late.commit()
        end_transaction(shell, is_committed=True)
        await late.resign()
        shell.unload()
        after = await late.group_shell()
        assert (fetch(after), fetch(after, stable=True)) == (NOTHING, UNSTABLE)

    run(test)


def commit_in_transaction(shell: GroupShell, offset: int) -> Replies:
    asked = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = TxnOffsetCommitRequest(
        transactional_id=ID,
        group_id=GROUP,
        producer_id=PRODUCER,
        producer_epoch=0,
        topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[asked])],
    )
    guard = shell.partition.leader_log().start_verification(PRODUCER, NO_SEQUENCE, ProducerEpoch(0))
    return ask(
        shell,
        lambda caller: shell.coordinator.offsets.commit_in_transaction(
            caller, request, 0, verification_guard=guard
        ),
        version=5,
    )


def end_transaction(shell: GroupShell, *, is_committed: bool) -> None:
    marker = end_transaction_marker(
        control_type=ControlRecordType.COMMIT if is_committed else ControlRecordType.ABORT,
        timestamp=TimestampMs(0),
        producer_id=PRODUCER,
        producer_epoch=ProducerEpoch(0),
        coordinator_epoch=0,
    )
    info = shell.partition.append(marker, ACKS_ALL, AppendOrigin.COORDINATOR)
    shell.marker_appended(PRODUCER, info, is_committed=is_committed)


def test_a_new_leader_answers_when_all_that_it_has_loaded_is_committed() -> None:
    async def test(late: LatePartition) -> None:
        before = await late.group_shell()
        commit_offset(before, 5)
        # It goes on in the next epoch, and loads a record that the other replica may not have.
        before.unload()
        shell = await late.group_shell()
        with pytest.raises(CoordinatorLoadInProgress):
            fetch(shell)
        await late.time_out()
        with pytest.raises(CoordinatorLoadInProgress):
            fetch(shell)
        await late.commit()
        assert fetch(shell) == (NONE, 5)

    run(test)


def test_a_machine_of_a_leadership_that_is_over_neither_answers_nor_writes() -> None:
    async def test(late: LatePartition) -> None:
        shell = await late.group_shell()
        commit_offset(shell, 5, now_ms=1)
        await late.commit()
        await late.resign()
        await late.lead()
        assert shell.is_outdated
        with pytest.raises(NotCoordinator):
            shell.check_ready()
        log_end_offset = late.replica.log.log_end_offset
        shell.carry_out(shell.coordinator._clean_up(late.now_ms))
        assert late.replica.log.log_end_offset == log_end_offset

    run(test)


class Producer:
    """A producer with a transactional id, and what its coordinator has told it."""

    def __init__(self, late: LatePartition, shell: TransactionShell) -> None:
        self._late = late
        self.shell = shell
        self.answers: list[ProducerAnswer] = []
        self.errors: list[KafkaError | None] = []
        self.producer = ProducerIdAndEpoch(ProducerId(0), ProducerEpoch(0))

    def init(self) -> None:
        decision = self.shell.coordinator.init_producer_id(
            ID, 60_000, None, self.answers.append, self._late.now_ms
        )
        self.shell.carry_out(decision)

    def add(self) -> None:
        decision = self.shell.coordinator.add_partitions(
            ID, self.producer, PARTITIONS, TRANSACTION_VERSION_2, self.errors.append, self._late.now_ms
        )
        self.shell.carry_out(decision)

    def end(self) -> None:
        decision = self.shell.coordinator.end_transaction(
            ID, self.producer, True, TRANSACTION_VERSION_2, self.answers.append, self._late.now_ms
        )
        self.shell.carry_out(decision)

    def state(self) -> str:
        described = describe_transaction(self.shell.coordinator, ID)
        coordinators = [self.shell.coordinator]
        found = [each.transaction_state for each in list_transactions(coordinators, TransactionFilter(), 0)]
        if described.error_code == TransactionalIdNotFound.code:
            assert found == []
            return ""
        assert found == [described.transaction_state]
        return described.transaction_state

    def verified(self) -> type[KafkaError] | None:
        [error] = self.shell.coordinator.verify_partitions(ID, self.producer, PARTITIONS).values()
        return None if error is None else type(error)


def test_a_transaction_takes_each_step_when_it_is_committed() -> None:
    async def test(late: LatePartition) -> None:
        markers: list[Markers] = []
        producer = Producer(late, await late.transaction_shell(markers))
        producer.init()
        assert (producer.answers, producer.state()) == ([], "")
        assert producer.verified() is not None
        await late.commit()
        [begun] = producer.answers
        assert (begun.error, begun.producer_epoch, producer.state()) == (None, 0, "Empty")
        producer.add()
        assert (producer.errors, producer.state()) == ([], "Empty")
        assert producer.verified() is not None
        await late.commit()
        assert (producer.errors, producer.state(), producer.verified()) == ([None], "Ongoing", None)
        producer.end()
        assert (len(producer.answers), producer.state(), markers) == (1, "Ongoing", [])
        await late.commit()
        assert (len(producer.answers), producer.state(), len(markers)) == (2, "PrepareCommit", 1)
        shell = producer.shell
        results: dict[TopicPartition, KafkaError | None] = dict.fromkeys(PARTITIONS)
        shell.carry_out(shell.coordinator.markers_written(markers[0], results, late.now_ms))
        assert producer.state() == "PrepareCommit"
        await late.commit()
        assert producer.state() == "CompleteCommit"

    run(test)


def test_the_end_of_a_transaction_that_is_lost_was_never_seen() -> None:
    async def test(late: LatePartition) -> None:
        markers: list[Markers] = []
        producer = Producer(late, await late.transaction_shell(markers))
        producer.init()
        await late.commit()
        producer.add()
        await late.commit()
        producer.end()
        await late.resign()
        producer.shell.unload()
        assert isinstance(producer.answers[-1].error, NotCoordinator)
        producer.shell = await late.transaction_shell(markers)
        assert (producer.state(), markers) == ("Ongoing", [])
        assert producer.verified() is None

    run(test)


def test_a_transactional_id_that_is_lost_was_never_seen() -> None:
    async def test(late: LatePartition) -> None:
        producer = Producer(late, await late.transaction_shell([]))
        producer.init()
        await late.time_out()
        assert producer.state() == ""
        await late.resign()
        producer.shell.unload()
        producer.shell = await late.transaction_shell([])
        assert producer.state() == ""
        assert producer.verified() is InvalidProducerIdMapping

    run(test)


class CountedRecord:
    """Notes how often a record is encoded."""

    def __init__(self, encoded: list[int], value_size: int) -> None:
        self._encoded = encoded
        self._value_size = value_size

    def key_bytes(self) -> bytes:
        return b"key"

    def value_bytes(self) -> bytes:
        self._encoded.append(self._value_size)
        return bytes(self._value_size)


def test_a_batch_that_is_too_large_is_refused_before_all_of_it_is_encoded() -> None:
    async def test(late: LatePartition) -> None:
        shell = await late.group_shell()
        encoded: list[int] = []
        decision = Decision()
        decision.append([CountedRecord(encoded, 4_000) for _ in range(1_000)])
        replies = Replies()
        partition = OffsetCommitResponsePartition(partition_index=0)
        topic = OffsetCommitResponseTopic(name=TOPIC, partitions=[partition])
        decision.reply(replies.caller(), OffsetCommitResponse(topics=[topic]))
        shell.carry_out(decision)
        assert commit_code(replies) == UnknownServerError.code
        assert late.replica.log.log_end_offset == 0
        assert 0 < len(encoded) <= late.replica.log.config.max_message_bytes // 4_000 + 1

    run(test)
