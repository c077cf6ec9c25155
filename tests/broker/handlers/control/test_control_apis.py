"""The controller's requests over the network, in all their versions, of a controller that is another process."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import pytest

from barnabas.config.broker_config import BrokerConfig
from barnabas.coordination.store.contract import StoreEngine
from barnabas.coordination.store.embedded import EmbeddedStore
from barnabas.errors import (
    InconsistentTopicId,
    KafkaStorageError,
    StaleBrokerEpoch,
    StaleControllerEpoch,
    UnknownTopicOrPartition,
)
from barnabas.model import BrokerId
from barnabas.protocol.messages.api_versions_request import ApiVersionsRequest
from barnabas.protocol.messages.leader_and_isr_request import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from barnabas.protocol.messages.leader_and_isr_response import LeaderAndIsrResponse
from barnabas.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.stop_replica_request import (
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from barnabas.protocol.messages.update_metadata_request import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from barnabas.server.environment import Environment
from tests.broker.raw_client import RawClient
from tests.broker.running import RunningBroker

# Later than any that the broker's own controller has.
EPOCH = 1_000
CONTROLLER = 7
# When the broker stops, there is no controller that would answer it.
IN_CLUSTER = {
    "zookeeper.connect": "nowhere:2181",
    "broker.id": "1",
    "controlled.shutdown.enable": "false",
}


async def open_own_store(
    environment: Environment, config: BrokerConfig, directories: Sequence[str], losses: Collection[str]
) -> StoreEngine:
    """A store of its own for a broker that believes it is in a cluster: only these requests matter here."""
    return await EmbeddedStore.open(directories, clock=environment.clock, fs=environment.fs)


def member(directory: Path) -> RunningBroker:
    return RunningBroker(directory, IN_CLUSTER, open_store=open_own_store)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with member(tmp_path_factory.mktemp("broker")) as running:
        yield running


def topic_id(topic: str) -> bytes:
    return topic.encode()[:16].ljust(16, b".")


def role(
    topic: str, version: int, index: int = 0, *, leader: int = 1, leader_epoch: int = 0
) -> LeaderAndIsrPartitionState:
    return LeaderAndIsrPartitionState(
        topic_name=topic,
        partition_index=index,
        controller_epoch=EPOCH,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=[leader],
        replicas=[1, leader] if leader != 1 else [1],
        is_new=version >= 1,
    )


def roles(
    topic: str, version: int, *states: LeaderAndIsrPartitionState, epoch: int = EPOCH, broker_epoch: int = -1
) -> LeaderAndIsrRequest:
    request = LeaderAndIsrRequest(controller_id=CONTROLLER, controller_epoch=epoch)
    if version >= 2:
        request.broker_epoch = broker_epoch
        request.topic_states = [LeaderAndIsrTopicState(topic_name=topic, partition_states=list(states))]
        if version >= 5:
            request.topic_states[0].topic_id = topic_id(topic)
    else:
        request.ungrouped_partition_states = list(states)
    return request


def errors_of(response: LeaderAndIsrResponse) -> list[int]:
    grouped = [each for topic in response.topics for each in topic.partition_errors]
    return [each.error_code for each in [*response.partition_errors, *grouped]]


def stop(topic: str, version: int, *, delete: bool) -> StopReplicaRequest:
    request = StopReplicaRequest(controller_id=CONTROLLER, controller_epoch=EPOCH)
    if version >= 3:
        state = StopReplicaPartitionState(partition_index=0, leader_epoch=0, delete_partition=delete)
        request.topic_states = [StopReplicaTopicState(topic_name=topic, partition_states=[state])]
        return request
    request.delete_partitions = delete
    if version >= 1:
        request.topics = [StopReplicaTopicV1(name=topic, partition_indexes=[0])]
    else:
        request.ungrouped_partitions = [StopReplicaPartitionV0(topic_name=topic, partition_index=0)]
    return request


def metadata(topic: str, version: int, *indexes: int, epoch: int = EPOCH) -> UpdateMetadataRequest:
    states = [
        UpdateMetadataPartitionState(
            topic_name=topic, partition_index=index, controller_epoch=epoch, leader=1, isr=[1], replicas=[1]
        )
        for index in indexes
    ]
    broker = UpdateMetadataBroker(id=1)
    if version == 0:
        broker.v0_host, broker.v0_port = "here", 9092
    else:
        broker.endpoints = [UpdateMetadataEndpoint(host="here", port=9092)]
        if version >= 3:
            broker.endpoints[0].listener = "PLAINTEXT"
    request = UpdateMetadataRequest(controller_id=CONTROLLER, controller_epoch=epoch, live_brokers=[broker])
    if version >= 5:
        request.topic_states = [UpdateMetadataTopicState(topic_name=topic, partition_states=states)]
        if version >= 7:
            request.topic_states[0].topic_id = topic_id(topic)
    else:
        request.ungrouped_partition_states = states
    return request


@pytest.mark.parametrize("version", range(8))
def test_leader_and_isr_gives_roles(broker: RunningBroker, client: RawClient, version: int) -> None:
    topic = f"roles-{version}"
    request = roles(topic, version, role(topic, version, 0), role(topic, version, 1))
    response = client.ask("LeaderAndIsr", version, request)
    assert (response.error_code, errors_of(response)) == (0, [0, 0])
    if version < 5:
        assert [each.topic_name for each in response.partition_errors] == [topic] * 2
    else:
        assert [each.topic_id for each in response.topics] == [topic_id(topic)]
    partition = broker.server.broker.replicas.partition(topic, 1)
    assert partition.is_leader
    assert partition.log is not None, "the answer came before the log was open"
    again = client.ask("LeaderAndIsr", version, request)
    assert (again.error_code, errors_of(again)) == (0, [StaleControllerEpoch.code] * 2)


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("delete", [False, True])
def test_stop_replica_ends_roles(
    broker: RunningBroker, client: RawClient, version: int, delete: bool
) -> None:
    topic = f"stops-{version}-{delete}"
    client.ask("LeaderAndIsr", 7, roles(topic, 7, role(topic, 7)))
    response = client.ask("StopReplica", version, stop(topic, version, delete=delete))
    assert response.error_code == 0
    assert [(each.topic_name, each.error_code) for each in response.partition_errors] == [(topic, 0)]
    assert (broker.directory / f"{topic}-0").exists() != delete


@pytest.mark.parametrize("version", range(9))
def test_update_metadata_shows_partitions(broker: RunningBroker, client: RawClient, version: int) -> None:
    topic = f"known-{version}"
    response = client.ask("UpdateMetadata", version, metadata(topic, version, 0, 1))
    assert response.error_code == 0
    image = broker.server.broker.image
    assert image.controller_id == CONTROLLER
    assert image.brokers[BrokerId(1)].endpoints[0].listener_name == "PLAINTEXT"
    shown = client.ask("Metadata", 1, MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))
    assert [(each.host, each.port) for each in shown.brokers] == [("here", 9092)]
    assert [each.leader_id for each in shown.topics[0].partitions] == [1, 1]


def test_partitions_of_an_older_version_join_the_topic_that_is_known(
    broker: RunningBroker, client: RawClient
) -> None:
    client.ask("UpdateMetadata", 8, metadata("grows", 8, 0))
    client.ask("UpdateMetadata", 6, metadata("grows", 6, 1))
    topic = broker.server.broker.image.topics["grows"]
    assert (topic.id, len(topic.partitions)) == (topic_id("grows"), 2)


def test_a_replaced_controller_is_refused(broker: RunningBroker, client: RawClient) -> None:
    client.ask("UpdateMetadata", 8, metadata("fences", 8, 0))
    stale = StaleControllerEpoch.code
    for version in (4, 7):
        request = roles("fences", version, role("fences", version), epoch=EPOCH - 1)
        response = client.ask("LeaderAndIsr", version, request)
        assert (response.error_code, errors_of(response)) == (stale, [stale])
    stopping = stop("fences", 4, delete=True)
    stopping.controller_epoch = EPOCH - 1
    stopped = client.ask("StopReplica", 4, stopping)
    assert (stopped.error_code, stopped.partition_errors) == (stale, [])
    assert client.ask("UpdateMetadata", 8, metadata("other", 8, 0, epoch=EPOCH - 1)).error_code == stale
    assert "other" not in broker.server.broker.image.topics


def test_a_request_for_an_earlier_registration_is_refused(broker: RunningBroker, client: RawClient) -> None:
    stale = StaleBrokerEpoch.code
    request = roles("earlier", 7, role("earlier", 7), broker_epoch=0)
    response = client.ask("LeaderAndIsr", 7, request)
    assert (response.error_code, errors_of(response)) == (stale, [stale])
    stopping = stop("earlier", 4, delete=False)
    stopping.broker_epoch = 0
    assert client.ask("StopReplica", 4, stopping).error_code == stale
    update = metadata("earlier", 8, 0)
    update.broker_epoch = 0
    assert client.ask("UpdateMetadata", 8, update).error_code == stale
    # A later registration than this broker knows of is possible.
    later = roles("earlier", 7, role("earlier", 7), broker_epoch=2**60)
    assert client.ask("LeaderAndIsr", 7, later).error_code == 0


def test_errors_of_single_partitions(broker: RunningBroker, client: RawClient) -> None:
    elsewhere = role("errors", 7, 1, leader=2)
    elsewhere.replicas = [2, 3]
    request = roles("errors", 7, role("errors", 7, 0), elsewhere)
    assert errors_of(client.ask("LeaderAndIsr", 7, request)) == [0, UnknownTopicOrPartition.code]
    request = roles("errors", 7, role("errors", 7, 0, leader_epoch=1))
    request.topic_states[0].topic_id = topic_id("another")
    assert errors_of(client.ask("LeaderAndIsr", 7, request)) == [InconsistentTopicId.code]


def test_a_log_that_cannot_be_opened_is_reported(tmp_path: Path) -> None:
    with member(tmp_path) as broker, broker.client() as client:
        # A file is where the directory of the partition would be.
        (broker.directory / "blocked-0").write_text("")
        response = client.ask("LeaderAndIsr", 7, roles("blocked", 7, role("blocked", 7)))
        assert (response.error_code, errors_of(response)) == (0, [KafkaStorageError.code])


@pytest.mark.parametrize("topic", ["..", "a/../../b", "", "x" * 250])
def test_names_that_are_no_topics_end_the_connection(broker: RunningBroker, topic: str) -> None:
    for api, version, request in (
        ("LeaderAndIsr", 7, roles(topic, 7, role(topic, 7))),
        ("StopReplica", 4, stop(topic, 4, delete=True)),
        ("UpdateMetadata", 7, metadata(topic, 7, 0)),
    ):
        with broker.client() as client:
            client.send(api, version, request)
            assert client.is_closed_by_broker()


@pytest.mark.parametrize("index", [-1, 2**31 - 1])
def test_partitions_that_cannot_be_end_the_connection(broker: RunningBroker, index: int) -> None:
    with broker.client() as client:
        client.send("UpdateMetadata", 8, metadata("many", 8, index))
        assert client.is_closed_by_broker()


@pytest.mark.slow
def test_a_cluster_of_many_partitions_is_taken_at_once(broker: RunningBroker, client: RawClient) -> None:
    request = metadata("wide", 8, *range(10_000))
    for state in request.topic_states[0].partition_states:
        state.replicas = state.isr = [1, 2, 3]
    assert client.ask("UpdateMetadata", 8, request).error_code == 0
    assert len(broker.server.broker.image.topics["wide"].partitions) == 10_000


def test_a_single_node_does_not_serve_them(tmp_path: Path) -> None:
    with RunningBroker(tmp_path) as alone, alone.client() as client:
        keys = {each.api_key for each in client.ask("ApiVersions", 3, VERSIONS_REQUEST).api_keys}
        assert not keys & {4, 5, 6, 7, 56, 67}
        client.send("UpdateMetadata", 8, metadata("alone", 8, 0))
        assert client.is_closed_by_broker()


def test_a_broker_of_a_cluster_advertises_them(client: RawClient) -> None:
    answer = client.ask("ApiVersions", 3, VERSIONS_REQUEST)
    offered = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert [offered[key] for key in (4, 5, 6, 7)] == [(0, 7), (0, 4), (0, 8), (0, 3)]
    assert [offered[key] for key in (56, 67)] == [(0, 3), (0, 0)]


VERSIONS_REQUEST = ApiVersionsRequest(client_software_name="test", client_software_version="1")
