"""Brokers that join, restart, shut down and die: who leads then, what the store has, and what brokers are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.coordination.planning.partition_changes import ElectionType
from barnabas.errors import (
    BrokerNotAvailable,
    NotController,
    StaleBrokerEpoch,
    StaleControllerEpoch,
)
from barnabas.model import BrokerId, TopicPartition
from barnabas.protocol.messages.alter_partition_request import AlterPartitionRequest
from barnabas.protocol.messages.controlled_shutdown_request import ControlledShutdownRequest
from barnabas.protocol.messages.leader_and_isr_request import LeaderAndIsrRequest
from barnabas.protocol.messages.stop_replica_request import StopReplicaRequest
from barnabas.protocol.messages.update_metadata_request import UpdateMetadataRequest
from tests.coordination.controller.model import ModelCluster, run

T0 = TopicPartition("t", 0)


def test_a_new_topic_has_its_roles_on_all_replicas(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [1, 2, 3], [2, 3, 1])
        node = await cluster.node("/brokers/topics/t")
        assert node["partitions"] == {"0": [1, 2, 3], "1": [2, 3, 1]}
        assert (node["version"], node["adding_replicas"], node["removing_replicas"]) == (3, {}, {})
        assert await cluster.node("/brokers/topics/t/partitions/1/state") == {
            "controller_epoch": 1,
            "leader": 2,
            "version": 1,
            "leader_epoch": 0,
            "isr": [2, 3, 1],
        }
        for broker in cluster.brokers.values():
            roles, metadata = broker.requests[-2:]
            # One request for both partitions, and the role before the metadata.
            assert isinstance(roles, LeaderAndIsrRequest)
            assert isinstance(metadata, UpdateMetadataRequest)
            states = roles.topic_states[0].partition_states
            assert [(each.leader, each.is_new, each.partition_epoch) for each in states] == [
                (1, True, 0),
                (2, True, 0),
            ]
            assert [each.broker_id for each in roles.live_leaders] == [1, 2]

    run(scenario, tmp_path, 1, 2, 3)


def test_leaders_of_a_broker_that_dies_move_to_the_next_in_sync(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [2, 3, 1], [1, 2, 3], [2], [3, 1])
        await cluster.kill(2)
        assert await cluster.state("t", 0) == (3, 1, (3, 1))
        assert await cluster.state("t", 1) == (1, 1, (1, 3))
        # The last replica in sync stays so: nobody else has all records.
        assert await cluster.state("t", 2) == (-1, 1, (2,))
        assert await cluster.state("t", 3) == (3, 0, (3, 1))
        for broker in cluster.brokers.values():
            assert broker.live == [1, 3]
            assert [broker.metadata[TopicPartition("t", index)] for index in range(4)] == [3, 1, -1, 3]
            assert broker.offline[T0] == [2]
        await cluster.start_broker(2)
        assert await cluster.state("t", 2) == (2, 2, (2,))
        # It follows where it led before, and is not in sync until the leader says so.
        assert cluster.brokers[BrokerId(2)].roles[T0].leader == 3
        assert await cluster.propose("t", 0, [3, 1, 2]) == 0
        assert await cluster.state("t", 0) == (3, 1, (3, 1, 2))

    run(scenario, tmp_path, 1, 2, 3)


def test_a_broker_that_restarts_at_once_loses_its_leaderships(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [2, 3], [3, 2], [2])
        await cluster.restart(2)
        assert await cluster.state("t", 0) == (3, 1, (3,))
        assert await cluster.state("t", 1) == (3, 1, (3,))
        assert (await cluster.state("t", 2))[0] == 2
        assert cluster.brokers[BrokerId(2)].roles[T0].leader == 3

    run(scenario, tmp_path, 1, 2, 3)


def test_a_broker_that_joins_has_metadata_before_its_roles(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [1, 2])
        await cluster.kill(2)
        broker = await cluster.start_broker(2)
        first, second, third = broker.requests[:3]
        assert isinstance(first, UpdateMetadataRequest)
        assert [each.id for each in first.live_brokers] == [1, 2]
        assert [each.leader for each in first.topic_states[0].partition_states] == [1]
        assert isinstance(second, LeaderAndIsrRequest)
        role = second.topic_states[0].partition_states[0]
        assert (role.leader, role.is_new, role.isr) == (1, False, [1])
        assert isinstance(third, UpdateMetadataRequest)

    run(scenario, tmp_path, 1, 2)


def test_a_partition_without_live_replicas_gets_its_state_later(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        session = await cluster.store.connect()
        data = b'{"version":1,"partitions":{"0":[2,3],"1":[1]}}'
        await session.create("/config/topics/t", b'{"version":1,"config":{}}')
        await session.create("/brokers/topics/t", data)
        await cluster.settle()
        assert await cluster.node("/brokers/topics/t/partitions/0/state") is None
        assert await cluster.state("t", 1) == (1, 0, (1,))
        # The topic has got an id, and keeps its assignment.
        node = await cluster.node("/brokers/topics/t")
        assert (len(node["topic_id"]), node["partitions"]) == (22, {"0": [2, 3], "1": [1]})
        await cluster.start_broker(3)
        assert await cluster.state("t", 0) == (3, 0, (3,))
        assert cluster.brokers[BrokerId(3)].roles[T0].is_new

    run(scenario, tmp_path, 1)


@pytest.mark.parametrize("allowed", [True, False])
def test_unclean_leaders_only_where_the_topic_allows_them(tmp_path: Path, allowed: bool) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [2, 3], unclean_leader_election_enable=str(allowed).lower())
        await cluster.kill(3)
        await cluster.start_broker(3)
        await cluster.kill(2)
        if not allowed:
            assert await cluster.state("t") == (-1, 2, (2,))
            elected = await cluster.controller.elect_leaders([T0], ElectionType.UNCLEAN)
            assert elected == {T0: None}
        assert (await cluster.state("t"))[::2] == (3, (3,))
        node = await cluster.node("/brokers/topics/t/partitions/0/state")
        assert node["leader_recovery_state"] == 1
        await cluster.settle()
        role = cluster.brokers[BrokerId(3)].roles[T0]
        assert role.leader_recovery_state == 1
        # It has recovered when it says so.
        assert await cluster.propose("t", 0, [3]) == 0
        assert "leader_recovery_state" not in await cluster.node("/brokers/topics/t/partitions/0/state")

    run(scenario, tmp_path, 1, 2, 3)


def test_a_broker_that_shuts_down_hands_over_its_leaderships(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [2, 3], [3, 2], [2], [2, 4])
        await cluster.kill(4)
        broker = cluster.brokers[BrokerId(2)]
        request = ControlledShutdownRequest(broker_id=2, broker_epoch=broker.epoch)
        answer = await cluster.controller.controlled_shutdown(request)
        await cluster.settle()
        # A partition that nobody else can lead remains; one that nobody else has does not count.
        remaining = [(each.topic_name, each.partition_index) for each in answer.remaining_partitions]
        assert (answer.error_code, remaining) == (0, [("t", 3)])
        assert await cluster.state("t", 0) == (3, 1, (3,))
        assert await cluster.state("t", 1) == (3, 1, (3,))
        assert await cluster.state("t", 2) == (2, 0, (2,))
        (stop,) = [each for each in broker.requests if isinstance(each, StopReplicaRequest)]
        stopped = stop.topic_states[0].partition_states
        # It stops before it has left the in-sync replicas, and gets no role after that.
        assert [(each.partition_index, each.leader_epoch, each.delete_partition) for each in stopped] == [
            (1, 0, False)
        ]
        # While it is on its way out it may not come back into sync.
        assert await cluster.propose("t", 0, [3, 2]) != 0
        again = await cluster.controller.controlled_shutdown(request)
        assert [each.partition_index for each in again.remaining_partitions] == [3]
        await cluster.kill(2)
        assert (await cluster.state("t", 0))[0] == 3
        await cluster.start_broker(2)
        assert await cluster.propose("t", 0, [3, 2]) == 0

    run(scenario, tmp_path, 1, 2, 3, 4)


def test_a_shutdown_of_another_registration_is_refused(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        shutdown = cluster.controller.controlled_shutdown
        old = await shutdown(ControlledShutdownRequest(broker_id=2, broker_epoch=0))
        assert old.error_code == StaleBrokerEpoch.code
        unknown = await shutdown(ControlledShutdownRequest(broker_id=9, broker_epoch=1))
        assert unknown.error_code == BrokerNotAvailable.code
        other = cluster.brokers[BrokerId(2)].controller
        refused = await other.controlled_shutdown(ControlledShutdownRequest(broker_id=2))
        assert refused.error_code in (NotController.code, StaleControllerEpoch.code)
        isr = await other.alter_partition(AlterPartitionRequest(broker_id=2))
        assert isr.error_code == NotController.code

    run(scenario, tmp_path, 1, 2)


def test_replicas_in_a_failed_log_directory_lead_no_more(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [2, 3], [2, 3], [2])
        broker = cluster.brokers[BrokerId(2)]
        broker.failed = {T0, TopicPartition("t", 2)}
        await cluster.session.create(
            "/log_dir_event_notification/log_dir_event_0", b'{"version":1,"broker":2,"event":1}'
        )
        await cluster.settle()
        assert await cluster.state("t", 0) == (3, 1, (3,))
        assert await cluster.state("t", 1) == (2, 0, (2, 3))
        assert await cluster.state("t", 2) == (-1, 1, (2,))
        assert cluster.brokers[BrokerId(3)].offline[T0] == [2]
        assert (await cluster.session.children("/log_dir_event_notification"))[0] == []
        # A restart with all directories puts it right.
        await cluster.restart(2)
        assert (await cluster.state("t", 2))[0] == 2

    run(scenario, tmp_path, 1, 2, 3)


def test_addresses_that_change_are_told_to_all(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        data, _ = await cluster.session.get("/brokers/ids/2")
        await cluster.session.set("/brokers/ids/2", data.replace(b"host2", b"moved"))
        await cluster.settle()
        for broker in cluster.brokers.values():
            told = broker.requests[-1]
            assert isinstance(told, UpdateMetadataRequest)
            assert [each.endpoints[0].host for each in told.live_brokers] == ["host1", "moved"]

    run(scenario, tmp_path, 1, 2)
