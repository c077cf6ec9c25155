"""Whole brokers of a cluster in a simulated world on a simulated ensemble, and a client that finds its way to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from barnabas.broker.replication.partition import Partition
from barnabas.errors import KafkaError, NotController, NotCoordinator, NotLeaderOrFollower
from barnabas.model import BrokerId, TopicPartition
from barnabas.protocol.message import Message
from barnabas.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from barnabas.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from tests.simulation.broker import PORT, SimulatedBroker
from tests.simulation.client import SimulatedClient
from tests.simulation.ensemble import SimulatedEnsemble
from tests.simulation.network import Network
from tests.simulation.world import Process, World

# Called with the topic, the partition, the base offset and the batch.
OnAcknowledged = Callable[[str, int, int, bytes], None]

ACKS_ALL: Final = -1
GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1


class SimulatedBrokers:
    """Brokers 0, 1 and so on. Their disks outlive their processes."""

    def __init__(
        self, world: World, network: Network, settings: Mapping[str, str], *, broker_count: int
    ) -> None:
        self.world = world
        self.network = network
        timeout_ms = int(settings["zookeeper.session.timeout.ms"])
        self.ensemble = SimulatedEnsemble(world, session_timeout_s=timeout_ms / 1_000)
        # Called for each batch whose producer has got an answer without an error to acks=all.
        self.on_acknowledged: OnAcknowledged = lambda topic, partition, base_offset, batch: None
        self.brokers = [
            SimulatedBroker(
                world,
                network,
                f"broker-{number}",
                {
                    "zookeeper.connect": "simulated",
                    "broker.id": str(number),
                    **settings,
                },
                self.ensemble,
            )
            for number in range(broker_count)
        ]

    def start(self) -> None:
        """Runs the world until all brokers answer."""
        started = [broker.begin_start() for broker in self.brokers]
        self.world.run_until(lambda: all(each.done() for each in started))
        for each in started:
            each.result()

    def running(self) -> Iterator[tuple[BrokerId, SimulatedBroker]]:
        """The brokers that have started."""
        for number, broker in enumerate(self.brokers):
            if broker.has_started:
                yield BrokerId(number), broker

    def replica(self, broker_id: BrokerId, key: TopicPartition) -> Partition | None:
        """The partition on a broker that runs."""
        broker = self.brokers[broker_id]
        return broker.server.broker.replicas.find(key) if broker.has_started else None

    def pause(self, broker: SimulatedBroker) -> None:
        broker.process.is_paused = True
        self.ensemble.note_pause(broker.host)

    def resume(self, broker: SimulatedBroker) -> None:
        if broker.is_running:
            broker.process.is_paused = False
            self.ensemble.note_pause(broker.host)


class ClusterClient(SimulatedClient):
    """Sends each request to the broker that answers it: a leader, a coordinator, the controller, or any."""

    def __init__(self, process: Process, brokers: SimulatedBrokers, name: str) -> None:
        transport = brokers.network.transport(process)
        self._brokers = brokers
        super().__init__(process, transport, (brokers.brokers[0].host, PORT), name)
        self._clients = [
            SimulatedClient(process, transport, broker.address, name) for broker in brokers.brokers
        ]
        # By what the broker is looked for.
        self._known: dict[object, int] = {}
        # The latest leader epochs: a broker that is cut off knows an earlier one, and clients do not go back to it.
        self._leader_epochs: dict[tuple[str, bytes, int], int] = {}

    async def ask(self, api_name: str, version: int, body: Message) -> Any:
        target = _target(api_name, body)
        if target is None:
            return await self._any().ask(api_name, version, body)
        if target not in self._known:
            self._known[target] = await self._find(target)
        try:
            response = await self._clients[self._known[target]].ask(api_name, version, body)
        except KafkaError:
            self.look_again()
            raise
        if api_name == "Produce":
            self._note_produced(body, response)
        return response

    def _note_produced(self, request: Any, response: Any) -> None:
        [topic] = request.topic_data
        [data] = topic.partition_data
        answer = response.responses[0].partition_responses[0]
        if request.acks == ACKS_ALL and answer.error_code == 0:
            self._brokers.on_acknowledged(topic.name, data.index, answer.base_offset, bytes(data.records))

    def look_again(self) -> None:
        self._known.clear()

    def _any(self) -> SimulatedClient:
        return self.rng.choice(self._clients)

    async def _find(self, target: tuple[Any, ...]) -> int:
        match target:
            case ("leader", topic, index):
                request = MetadataRequest(
                    topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
                )
                [found] = (await self._any().ask("Metadata", 10, request)).topics
                partition = next((each for each in found.partitions if each.partition_index == index), None)
                if partition is None or partition.leader_id < 0:
                    raise NotLeaderOrFollower(f"{topic}-{index} has no leader")
                at = (topic, found.topic_id, index)
                if partition.leader_epoch < self._leader_epochs.get(at, 0):
                    raise NotLeaderOrFollower(
                        f"{topic}-{index} has a later leader than broker {partition.leader_id}"
                    )
                self._leader_epochs[at] = partition.leader_epoch
                return int(partition.leader_id)
            case ("controller",):
                answer = await self._any().ask("Metadata", 4, MetadataRequest(topics=[]))
                if answer.controller_id < 0:
                    raise NotController("there is no controller")
                return int(answer.controller_id)
            case (int(key_type), key):
                request_ = FindCoordinatorRequest(key=key, key_type=key_type)
                coordinator = await self._any().ask("FindCoordinator", 3, request_)
                if coordinator.error_code:
                    raise NotCoordinator(f"nobody coordinates {key}: {coordinator.error_code}")
                return int(coordinator.node_id)
        raise AssertionError(target)


def _target(api_name: str, body: Any) -> tuple[Any, ...] | None:
    match api_name:
        case "Produce":
            return "leader", body.topic_data[0].name, body.topic_data[0].partition_data[0].index
        case "Fetch":
            return "leader", body.topics[0].topic, body.topics[0].partitions[0].partition
        case (
            "CreateTopics"
            | "DeleteTopics"
            | "CreatePartitions"
            | "AlterPartitionReassignments"
            | "ElectLeaders"
        ):
            return ("controller",)
        case "JoinGroup" | "SyncGroup" | "OffsetCommit" | "TxnOffsetCommit":
            return GROUP_KEY, body.group_id
        case "OffsetFetch":
            return GROUP_KEY, body.groups[0].group_id
        case "AddPartitionsToTxn":
            return TRANSACTION_KEY, body.v3_and_below_transactional_id
        case "AddOffsetsToTxn" | "EndTxn":
            return TRANSACTION_KEY, body.transactional_id
        case "InitProducerId" if body.transactional_id is not None:
            return TRANSACTION_KEY, body.transactional_id
    return None
