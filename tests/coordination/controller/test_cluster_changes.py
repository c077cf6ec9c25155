"""Deletions with replicas that are down, elections, balance, AlterPartition, producer ids, other controllers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from barnabas.coordination.controller.events import News
from barnabas.coordination.metadata.image import MetadataImage
from barnabas.coordination.metadata.tree import encode_config, encode_isr_change, encode_preferred_election
from barnabas.coordination.planning.partition_changes import ElectionType
from barnabas.coordination.planning.topic_creation import NewTopic, PlannedTopic
from barnabas.coordination.store.contract import (
    Create,
    Delete,
    Operation,
    OperationResult,
    StoreUnavailable,
)
from barnabas.coordination.store.embedded import EmbeddedSession
from barnabas.errors import (
    BrokerIdNotRegistered,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    NotController,
    OperationNotAttempted,
    PreferredLeaderNotAvailable,
    StaleBrokerEpoch,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.model import BrokerId, TopicPartition
from barnabas.protocol.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from barnabas.protocol.messages.alter_partition_request import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from barnabas.protocol.messages.stop_replica_response import StopReplicaResponse
from barnabas.protocol.messages.update_metadata_request import UpdateMetadataRequest
from tests.coordination.controller.model import ModelCluster, run

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_deletion_waits_for_a_replica_that_is_down(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [1, 2], [2, 3])
        logs = cluster.brokers[BrokerId(3)].logs
        await cluster.kill(3)
        assert await cluster.controller.delete_topics(["t"]) == {"t": None}
        await cluster.settle()
        # Nobody sees it, the others have deleted it, and its nodes stay.
        for broker in cluster.brokers.values():
            assert (broker.metadata, broker.logs) == ({}, set())
        assert await cluster.node("/admin/delete_topics/t") == ""
        assert await cluster.node("/brokers/topics/t") is not None
        (again,) = await cluster.controller.create_topics([NewTopic("t")])
        assert isinstance(again, TopicAlreadyExists)
        broker = await cluster.start_broker(3, logs)
        assert broker.logs == set()
        for path in ("/admin/delete_topics/t", "/brokers/topics/t", "/config/topics/t"):
            assert await cluster.node(path) is None
        await cluster.create("t", [3])

    run(scenario, tmp_path, 1, 2, 3)


def test_a_broker_that_restarts_is_asked_again_to_delete(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [2, 3])
        cluster.brokers[BrokerId(3)].may_answer.clear()
        assert await cluster.controller.delete_topics(["t"]) == {"t": None}
        # That the first request is lost is known after the broker has come back.
        links = cluster.controlling.links
        links.reports_late = True
        logs = cluster.brokers[BrokerId(3)].logs
        await cluster.kill(3)
        broker = await cluster.start_broker(3, logs)
        assert links.dropped
        links.report_dropped()
        await cluster.settle()
        assert broker.logs == set()
        assert await cluster.node("/brokers/topics/t") is None

    run(scenario, tmp_path, 1, 2, 3)


@pytest.mark.parametrize("code", [0, StaleBrokerEpoch.code])
def test_an_answer_of_an_earlier_registration_is_none_to_the_next_request(tmp_path: Path, code: int) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [2, 3])
        cluster.brokers[BrokerId(3)].may_answer.clear()
        assert await cluster.controller.delete_topics(["t"]) == {"t": None}
        links = cluster.controlling.links
        links.reports_late = True
        logs = cluster.brokers[BrokerId(3)].logs
        await cluster.kill(3)
        broker = await cluster.start_broker(3, logs, answers=False)
        # The broker was asked again, and now its answer to the first request arrives.
        links.report_dropped(StopReplicaResponse(error_code=code))
        await cluster.settle()
        assert await cluster.node("/brokers/topics/t") is not None
        broker.may_answer.set()
        await cluster.settle()
        assert broker.logs == set()
        assert await cluster.node("/brokers/topics/t") is None

    run(scenario, tmp_path, 1, 2, 3)


def test_another_controller_completes_a_deletion(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [2, 3])
        cluster.brokers[BrokerId(3)].may_answer.clear()
        assert await cluster.controller.delete_topics(["t"]) == {"t": None}
        assert await cluster.node("/brokers/topics/t") is not None
        await cluster.kill(1)
        cluster.brokers[BrokerId(3)].may_answer.set()
        await cluster.settle()
        assert await cluster.node("/brokers/topics/t") is None
        assert await cluster.node("/admin/delete_topics/t") is None

    run(scenario, tmp_path, 1, 2, 3)


def test_a_topic_is_deleted_while_it_is_reassigned(tmp_path: Path) -> None:
    """As in Apache Kafka. The target may be on a broker that never comes."""

    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [1, 2])
        await cluster.controller.alter_reassignments({T0: [1, 3]})
        assert await cluster.controller.delete_topics(["t"]) == {"t": None}
        await cluster.settle()
        assert await cluster.node("/brokers/topics/t") is None
        assert [broker.logs for broker in cluster.brokers.values()] == [set(), set(), set()]

    run(scenario, tmp_path, 1, 2, 3)


def test_a_new_controller_deletes_a_topic_that_is_being_reassigned(tmp_path: Path) -> None:
    """Its replicas may have no logs any more, and would never be in sync."""

    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [1, 2])
        await cluster.controller.alter_reassignments({T0: [1, 3]})
        # The next controller finds both.
        await cluster.session.multi([Delete("/controller"), Create("/admin/delete_topics/t")])
        await cluster.settle()
        assert await cluster.node("/brokers/topics/t") is None
        assert [broker.logs for broker in cluster.brokers.values()] == [set(), set(), set()]

    run(scenario, tmp_path, 1, 2, 3)


def test_marks_of_others_delete_topics(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [1, 2])
        await cluster.session.create("/admin/delete_topics/none")
        await cluster.session.create("/admin/delete_topics/t")
        await cluster.settle()
        assert await cluster.node("/brokers/topics/t") is None
        assert (await cluster.session.children("/admin/delete_topics"))[0] == []

    run(scenario, tmp_path, 1, 2)


def test_a_topic_that_another_has_just_marked_is_deleted_with_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [1, 2])
        await cluster.create("u", [2, 1])
        # The mark comes while the controller is at work, which sees it afterwards.
        multi = EmbeddedSession.multi

        async def after_another(
            session: EmbeddedSession, operations: Sequence[Operation]
        ) -> list[OperationResult]:
            monkeypatch.undo()
            await cluster.session.create("/admin/delete_topics/t")
            return await multi(session, operations)

        monkeypatch.setattr(EmbeddedSession, "multi", after_another)
        assert await cluster.controller.delete_topics(["t", "u"]) == {"t": None, "u": None}
        await cluster.settle()
        for name in ("t", "u"):
            assert await cluster.node(f"/brokers/topics/{name}") is None
        assert (await cluster.session.children("/admin/delete_topics"))[0] == []

    run(scenario, tmp_path, 1, 2)


def test_preferred_leaders_by_request_and_by_node(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [2, 1], [2, 1])
        await cluster.restart(2)
        results = await cluster.controller.elect_leaders([T0], ElectionType.PREFERRED)
        assert isinstance(results[T0], PreferredLeaderNotAvailable)
        for index in (0, 1):
            assert await cluster.propose("t", index, [1, 2]) == 0
        assert await cluster.controller.elect_leaders([T0], ElectionType.PREFERRED) == {T0: None}
        assert await cluster.state("t", 0) == (2, 2, (1, 2))
        data = encode_preferred_election([T1, TopicPartition("none", 0)])
        await cluster.session.create("/admin/preferred_replica_election", data)
        await cluster.settle()
        assert await cluster.state("t", 1) == (2, 2, (1, 2))
        assert await cluster.node("/admin/preferred_replica_election") is None

    run(scenario, tmp_path, 1, 2)


def test_leaders_are_balanced(tmp_path: Path) -> None:
    from barnabas.coordination.controller.balance import balance_leaders

    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", *[[2, 1]] * 10, *[[1, 2]] * 10)
        await cluster.restart(2)
        for index in range(20):
            assert await cluster.propose("t", index, [1, 2]) == 0
        assert not cluster.brokers[BrokerId(2)].led
        await cluster.controller._feed(News(balance_leaders))
        await cluster.settle()
        assert cluster.brokers[BrokerId(2)].led == {TopicPartition("t", index) for index in range(10)}
        # One of ten is not more than the percentage that is allowed.
        await cluster.controller.alter_reassignments({T0: [1, 2]})
        await cluster.controller.elect_leaders([T0], ElectionType.PREFERRED)
        await cluster.controller.alter_reassignments({T0: [2, 1]})
        await cluster.controller._feed(News(balance_leaders))
        assert (await cluster.state("t", 0))[0] == 1

    run(scenario, tmp_path, 1, 2)


def proposal(
    isr: list[int], *, leader_epoch: int = 1, partition_epoch: int = 1, recovery: int = 0
) -> PartitionData:
    return PartitionData(
        partition_index=0,
        leader_epoch=leader_epoch,
        new_isr=isr,
        new_isr_with_epochs=[BrokerState(broker_id=each) for each in isr],
        leader_recovery_state=recovery,
        partition_epoch=partition_epoch,
    )


@pytest.mark.parametrize(
    ("proposed", "version", "code"),
    [
        (proposal([2], leader_epoch=2), 3, NotController.code),
        (proposal([2], partition_epoch=2), 3, NotController.code),
        (proposal([2], leader_epoch=0), 3, FencedLeaderEpoch.code),
        # The same again succeeds, although it is old.
        (proposal([2, 3], partition_epoch=0), 3, 0),
        (proposal([2], partition_epoch=0), 3, InvalidUpdateVersion.code),
        (proposal([2, 3], recovery=1), 3, InvalidRequest.code),
        (proposal([2], recovery=1), 3, InvalidRequest.code),
        (proposal([2, 3, 4]), 3, IneligibleReplica.code),
        (proposal([2, 3, 4]), 1, OperationNotAttempted.code),
        (proposal([2]), 3, 0),
        (proposal([2]), 1, 0),
    ],
)
def test_proposals_of_leaders_are_checked(
    tmp_path: Path, proposed: PartitionData, version: int, code: int
) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [4, 2, 3])
        await cluster.kill(4)
        leader = cluster.brokers[BrokerId(2)]
        topic_id = leader.topic_ids["t"]

        async def ask(epoch: int, topic: TopicData) -> tuple[int, list[int]]:
            request = AlterPartitionRequest(broker_id=2, broker_epoch=epoch, topics=[topic])
            answer = await cluster.controller.alter_partition(request, version)
            return answer.error_code, [each.partitions[0].error_code for each in answer.topics]

        topic = TopicData(topic_name="t", topic_id=topic_id, partitions=[proposed])
        assert await ask(leader.epoch - 1, topic) == (StaleBrokerEpoch.code, [])
        assert await ask(leader.epoch, topic) == (0, [code])
        await cluster.settle()
        changed = code == 0 and proposed.new_isr == [2]
        # The leader epoch stays as it is.
        assert await cluster.state("t") == (2, 1, (2,) if changed else (2, 3))
        told = cluster.brokers[BrokerId(3)].requests[-1]
        assert isinstance(told, UpdateMetadataRequest)
        unknown = TopicData(topic_name="none", topic_id=bytes(16), partitions=[proposed])
        missing = UnknownTopicId if version > 1 else UnknownTopicOrPartition
        assert await ask(leader.epoch, unknown) == (0, [missing.code])

    run(scenario, tmp_path, 1, 2, 3, 4)


def test_changes_of_old_brokers_are_told_to_all(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [1, 2])
        path = "/brokers/topics/t/partitions/0/state"
        data = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}'
        await cluster.session.set(path, data)
        await cluster.session.create("/isr_change_notification/isr_change_0", encode_isr_change([T0]))
        await cluster.settle()
        told = cluster.brokers[BrokerId(2)].requests[-1]
        assert isinstance(told, UpdateMetadataRequest)
        state = told.topic_states[0].partition_states[0]
        assert (state.isr, state.zk_version) == ([1], 1)
        assert (await cluster.session.children("/isr_change_notification"))[0] == []

    run(scenario, tmp_path, 1, 2)


def test_a_state_that_others_changed_is_read_again(tmp_path: Path) -> None:
    """One stale state does not hold up the others, and is decided by what the store has."""

    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", *[[2, 3, 1]] * 5)
        path = "/brokers/topics/t/partitions/3/state"
        data = b'{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":0,"isr":[2,1]}'
        await cluster.session.set(path, data)
        await cluster.kill(2)
        states = [await cluster.state("t", index) for index in range(5)]
        assert states == [(3, 1, (3, 1))] * 3 + [(1, 1, (1,))] + [(3, 1, (3, 1))]

    run(scenario, tmp_path, 1, 2, 3)


def test_producer_ids_are_given_in_blocks(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        allocate = cluster.controller.allocate_producer_ids
        epoch = cluster.brokers[BrokerId(2)].epoch
        request = AllocateProducerIdsRequest(broker_id=2, broker_epoch=epoch)
        blocks = await asyncio.gather(allocate(request), allocate(request))
        assert [(each.producer_id_start, each.producer_id_len) for each in blocks] == [
            (0, 1000),
            (1000, 1000),
        ]
        assert await cluster.node("/latest_producer_id_block") == {
            "version": 1,
            "broker": 2,
            "block_start": "1000",
            "block_end": "1999",
        }
        stale = await allocate(AllocateProducerIdsRequest(broker_id=2, broker_epoch=0))
        assert stale.error_code == StaleBrokerEpoch.code
        unknown = await allocate(AllocateProducerIdsRequest(broker_id=9, broker_epoch=0))
        assert unknown.error_code == BrokerIdNotRegistered.code
        other = cluster.brokers[BrokerId(2)].controller
        assert (await other.allocate_producer_ids(request)).error_code == NotController.code

    run(scenario, tmp_path, 1, 2)


def test_the_next_controller_keeps_states_and_repairs_what_is_gone(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [1, 2, 3], [2, 3, 1])
        requests = {each.id: len(each.requests) for each in cluster.brokers.values()}
        await cluster.kill(1)
        assert cluster.controlling.id == 2
        assert await cluster.state("t", 0) == (2, 1, (2, 3))
        assert await cluster.state("t", 1) == (2, 1, (2, 3))
        node = await cluster.node("/brokers/topics/t/partitions/0/state")
        assert node["controller_epoch"] == 2
        broker = cluster.brokers[BrokerId(3)]
        first = broker.requests[requests[broker.id]]
        # The live brokers come first: without them nobody could follow a leader.
        assert isinstance(first, UpdateMetadataRequest)
        assert (first.topic_states, [each.id for each in first.live_brokers]) == ([], [2, 3])

    run(scenario, tmp_path, 1, 2, 3)


def test_a_controller_that_was_replaced_changes_nothing_more(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [2, 3])
        old = cluster.controlling
        # Its session is over for the store, and it does not know yet.
        session, old_session = await cluster.store.connect(), old.session
        await session.delete("/controller")
        await cluster.settle()
        assert cluster.controlling.id in (1, 2, 3)
        epoch = await cluster.node("/controller_epoch")
        assert epoch == 2
        assert old_session is old.session
        if not old.controller.is_active:
            with pytest.raises(NotController):
                await old.controller.create_topics([NewTopic("u")])
        (created,) = await cluster.controller.create_topics([NewTopic("u", 1, 1)])
        assert isinstance(created, PlannedTopic)
        node = await cluster.node("/brokers/topics/u/partitions/0/state")
        assert node["controller_epoch"] == 2

    run(scenario, tmp_path, 1, 2, 3)


def test_settings_that_allow_unclean_leaders_take_effect_at_once(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [2, 3])
        await cluster.kill(3)
        await cluster.start_broker(3)
        await cluster.kill(2)
        assert (await cluster.state("t"))[0] == -1
        before = MetadataImage(cluster_id="c", controller_id=BrokerId(1))
        config = {"unclean.leader.election.enable": "true"}
        await cluster.session.set("/config/topics/t", encode_config(config))
        cluster.controller.follow_settings(before, before.with_topic_configs({"t": config}))
        await cluster.settle()
        assert (await cluster.state("t"))[::2] == (3, (3,))

    run(scenario, tmp_path, 1, 2, 3)


def test_a_controller_that_does_not_know_what_is_stored_reads_everything_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [2, 3], [3, 2])
        session, multi = cluster.controlling.session, EmbeddedSession.multi
        losses = iter([True])

        async def multi_without_answer(
            each: EmbeddedSession, operations: Sequence[Operation]
        ) -> list[OperationResult]:
            results = await multi(each, operations)
            if each is session and next(losses, False):
                raise StoreUnavailable("the connection is gone, and so is the answer")
            return results

        monkeypatch.setattr(EmbeddedSession, "multi", multi_without_answer)
        await cluster.kill(2)
        assert await cluster.node("/controller_epoch") == 2
        # The write that had no answer has taken place, and is not repeated.
        assert [await cluster.state("t", index) for index in (0, 1)] == [(3, 1, (3,))] * 2
        assert cluster.brokers[BrokerId(3)].led == {T0, T1}

    run(scenario, tmp_path, 1, 2, 3, zookeeper_connect="localhost:2181")
