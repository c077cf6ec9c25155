"""Brokers in a simulated world that replicate partitions: real logs, handlers and links; the test is the controller.

Each broker has the parts that records pass through, and no store. The controller of the test knows everything at once:
it elects clean leaders, sends roles and metadata with delays of the seed, and answers AlterPartition by Kafka's rules.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from barnabas.broker.broker import Broker
from barnabas.broker.coordinators.group_runtime import GroupRuntime
from barnabas.broker.coordinators.producer_ids import ProducerIds
from barnabas.broker.coordinators.runtime import Surroundings
from barnabas.broker.coordinators.transaction_markers import TransactionMarkers
from barnabas.broker.coordinators.transaction_runtime import TransactionRuntime
from barnabas.broker.dispatch import Dispatcher, build_endpoints
from barnabas.broker.parts import ClientParts, ClusterParts, CoordinatorParts
from barnabas.broker.quotas.quotas import Quotas
from barnabas.broker.replication.replication import Replication
from barnabas.broker.requests.fetch_sessions import FetchSessions
from barnabas.broker.waiting.scheduling import Scheduling
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.listeners import Endpoint, SecurityProtocol
from barnabas.config.live_settings import LiveSettings
from barnabas.coordination.metadata.cache import MetadataCache
from barnabas.coordination.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from barnabas.errors import (
    NONE,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidUpdateVersion,
    NetworkException,
    NotController,
)
from barnabas.log.manager.manager import LogManager
from barnabas.log.manager.settings import ManagerSettings
from barnabas.log.partition.environment import LogEnvironment
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.log.partition.read import Isolation
from barnabas.metrics.registry import Registry
from barnabas.model import BrokerId, LeaderEpoch, TopicPartition
from barnabas.net.listener import Connections
from barnabas.peers.node import Node
from barnabas.peers.peers import Peers
from barnabas.peers.versions import ProtocolLevel
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_partition_request import AlterPartitionRequest
from barnabas.protocol.messages.alter_partition_response import (
    AlterPartitionResponse,
    PartitionData,
    TopicData,
)
from barnabas.protocol.messages.leader_and_isr_request import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from barnabas.records.header import iterate_headers
from barnabas.server.environment import Environment
from barnabas.server.listeners import connection_limits
from barnabas.server.replicas import build_replicas, start_replication
from tests.log.simulated import SimulatedFileSystem
from tests.simulation.client import SimulatedClient
from tests.simulation.network import Network
from tests.simulation.world import Process, World

PORT: Final = 9092
TOPIC: Final = "copied"
TOPIC_ID: Final = bytes(range(16))
SETTINGS: Final = {
    "log.dirs": "/data",
    "log.segment.bytes": "3000",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.max.bytes": "2000",
    "replica.fetch.response.max.bytes": "5000",
    "replica.fetch.backoff.ms": "100",
    "replica.fetch.wait.max.ms": "300",
    "replica.socket.timeout.ms": "1500",
}
ROLE_DELAY_S_MAX: Final = 0.2
LEADER_AND_ISR_VERSION: Final = 7


@dataclass(slots=True, kw_only=True)
class State:
    """A partition as its node in the store would have it."""

    replicas: tuple[BrokerId, ...]
    leader: BrokerId
    isr: tuple[BrokerId, ...]
    leader_epoch: int = 0
    partition_epoch: int = 0


class SimulatedReplicas:
    """One broker. Its disk outlives its processes."""

    def __init__(self, cluster: SimulatedCluster, broker_id: BrokerId) -> None:
        self.broker_id = broker_id
        self.host = f"broker-{broker_id}"
        self.fs = SimulatedFileSystem()
        self._cluster = cluster
        self._process: Process | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_alive

    @property
    def process(self) -> Process:
        assert self._process is not None
        return self._process

    def start(self) -> None:
        process = self._process = self._cluster.world.process(self.host)
        self.fs.clock = process.clock
        self.fs.on_crash = process.kill
        self._cluster.world.run(process, self._start(process))

    async def _start(self, process: Process) -> None:
        transport = self._cluster.network.transport(process)
        environment = Environment(
            clock=process.clock,
            rng=process.rng,
            fs=self.fs,
            transport=transport,
            new_executor=process.new_executor,
            locks_directories=False,
        )
        config = BrokerConfig(
            {"listeners": f"PLAINTEXT://{self.host}:{PORT}", **self._cluster.settings},
            dynamic_broker=self._cluster.dynamic_settings,
        )
        scheduling = Scheduling(process.loop, process.clock, process.new_executor(4, "background"))
        settings = self.settings = LiveSettings(config)
        self.metadata = MetadataCache(self._cluster.image())
        self.manager = LogManager(
            ["/data"],
            environment=LogEnvironment(
                fs=self.fs, clock=process.clock, scheduler=scheduling.background, rng=process.rng
            ),
            config_of=lambda _: config.topic_config(self._cluster.topic_settings),
            settings=ManagerSettings(num_recovery_threads_per_data_dir=1),
            locks=False,
        )
        self.manager.open()
        scheduling.background.repeat(
            "checkpoint", self.manager.checkpoint_high_watermarks, first_ms=300, every_ms=300
        )
        self.parts = build_replicas(self.broker_id, settings, self.metadata, self.manager, scheduling)
        self.peers = Peers(
            self.broker_id, self._node, transport, process.loop, ProtocolLevel.parse(self._cluster.level)
        )
        self.replication = self._replicate(settings, scheduling, environment)
        connections = Connections(
            process.loop, scheduling.background.executor, connection_limits(config), transport
        )
        broker = self._broker(scheduling, settings)
        connections.bind(self.host, PORT, "PLAINTEXT").open(
            Dispatcher(broker, "PLAINTEXT", build_endpoints(broker))
        )

    def _replicate(
        self, settings: LiveSettings, scheduling: Scheduling, environment: Environment
    ) -> Replication:
        controller: Any = ControllerLink(self._cluster, self)
        return start_replication(
            self.parts, settings, scheduling, environment, self.peers, controller, lambda: 1
        )

    def _broker(self, scheduling: Scheduling, settings: LiveSettings) -> Broker:
        """The parts that requests for records use."""
        absent: Any = None
        return Broker(
            scheduling=scheduling,
            metrics=Registry(),
            cluster=ClusterParts(
                metadata=self.metadata,
                settings=settings,
                controller=absent,
                writer=absent,
                automatic_topics=absent,
                control=absent,
            ),
            replicas=self.parts,
            coordinators=self._coordinators(scheduling, settings),
            clients=ClientParts(
                quotas=Quotas(),
                fetch_sessions=FetchSessions(rng=self.process.rng),
                conversions=absent,
                client_metrics=absent,
            ),
        )

    def _coordinators(self, scheduling: Scheduling, settings: LiveSettings) -> CoordinatorParts:
        """They coordinate nothing: there are no internal topics."""
        absent: Any = None
        replicas = self.parts.replicas
        surroundings = Surroundings(self.metadata, settings, absent, replicas, scheduling)
        groups = GroupRuntime(surroundings, self.process.rng)
        markers = TransactionMarkers(replicas, groups, scheduling.clock, scheduling.turns, timeout_ms=1_000)
        producer_ids = ProducerIds(absent, scheduling.tasks)
        transactions = TransactionRuntime(surroundings, markers, producer_ids)
        return CoordinatorParts(
            groups=groups, transactions=transactions, markers=markers, producer_ids=producer_ids
        )

    def _node(self, broker_id: BrokerId) -> Node | None:
        if broker_id not in self.metadata.image.brokers:
            return None
        return Node(broker_id, f"broker-{broker_id}", PORT)

    def kill(self) -> None:
        self.process.kill()
        self._process = None
        self.fs = self.fs.kill()

    def log(self, index: int) -> PartitionLog:
        log = self.manager.log(TopicPartition(TOPIC, index))
        assert log is not None, (self.broker_id, index)
        return log

    def copy(self, index: int) -> bytes:
        """All bytes of the log from its start to its end."""
        log = self.log(index)
        parts = []
        offset: int = log.log_start_offset
        while offset < log.log_end_offset:
            found = log.read(offset, 1 << 20, Isolation.LOG_END, min_one_message=True).records
            assert found is not None
            data = bytes(found.read())
            parts.append(data)
            offset = _next_offset(data)
        return b"".join(parts)


def _next_offset(data: bytes) -> int:
    return iterate_headers(data)[-1].next_offset


class ControllerLink:
    """A broker's way to the controller: requests and answers are encoded, delayed and sometimes lost."""

    def __init__(self, cluster: SimulatedCluster, host: SimulatedReplicas) -> None:
        self._cluster = cluster
        self._host = host

    async def ask(
        self, api_name: str, request: Message, *, timeout_ms: float, version: int | None = None
    ) -> Any:
        assert api_name == "AlterPartition"
        assert version is not None
        rng = self._host.process.rng
        await asyncio.sleep(rng.random() * 0.05)
        if rng.random() < self._cluster.lost_requests:
            raise NetworkException("lost on the way there")
        answer = self._cluster.alter(decode(AlterPartitionRequest, encode(request, version), version))
        data = encode(answer, version)
        await asyncio.sleep(rng.random() * 0.05)
        if rng.random() < self._cluster.lost_requests:
            raise NetworkException("lost on the way back")
        return decode(AlterPartitionResponse, data, version)


@dataclass(slots=True)
class SimulatedCluster:
    """Brokers 1, 2 and so on, and the states of the partitions of one topic."""

    world: World
    network: Network
    broker_count: int = 3
    partition_count: int = 2
    level: str = "3.9"
    settings: dict[str, str] = field(default_factory=lambda: dict(SETTINGS))
    dynamic_settings: dict[str, str] = field(default_factory=dict)
    topic_settings: dict[str, str] = field(default_factory=dict)
    lost_requests: float = 0.0
    hosts: dict[BrokerId, SimulatedReplicas] = field(init=False)
    states: list[State] = field(init=False)
    live: set[BrokerId] = field(init=False)

    def __post_init__(self) -> None:
        ids = [BrokerId(number + 1) for number in range(self.broker_count)]
        self.hosts = {each: SimulatedReplicas(self, each) for each in ids}
        self.live = set(ids)
        self.states = [
            State(replicas=tuple(ids), leader=ids[index % len(ids)], isr=tuple(ids))
            for index in range(self.partition_count)
        ]

    def start(self) -> None:
        for host in self.hosts.values():
            host.start()
        for index in range(self.partition_count):
            self.send_role(index, is_new=True)

    def image(self) -> MetadataImage:
        brokers = {
            each: BrokerImage(
                id=each,
                epoch=1,
                rack=f"rack-{each}",
                endpoints=(
                    Endpoint(
                        listener_name="PLAINTEXT",
                        host=f"broker-{each}",
                        port=PORT,
                        security_protocol=SecurityProtocol.PLAINTEXT,
                    ),
                ),
            )
            for each in sorted(self.live)
        }
        partitions = tuple(
            PartitionImage(
                leader=state.leader,
                leader_epoch=LeaderEpoch(state.leader_epoch),
                replicas=state.replicas,
                isr=state.isr,
                partition_epoch=state.partition_epoch,
            )
            for state in self.states
        )
        topic = TopicImage(name=TOPIC, id=TOPIC_ID, partitions=partitions)
        image = MetadataImage(cluster_id="simulated", controller_id=BrokerId(1), brokers=brokers)
        return image.with_topics([topic])

    def run_until_led(self) -> None:
        """Until the leader of each partition serves."""
        self.world.run_until(lambda: all(map(self._is_led, range(self.partition_count))))

    def _is_led(self, index: int) -> bool:
        partition = self.hosts[self.states[index].leader].parts.replicas.find(TopicPartition(TOPIC, index))
        return partition is not None and partition.leadership is not None

    def ask(self, broker_id: BrokerId, api_name: str, version: int, request: Message) -> Any:
        """The answer of a broker to a client."""
        process = self.world.process("client")
        return self.world.run(process, self.client(process, broker_id).ask(api_name, version, request))

    def client(self, process: Process, broker_id: BrokerId) -> SimulatedClient:
        transport = self.network.transport(process)
        return SimulatedClient(process, transport, (f"broker-{broker_id}", PORT), "client")

    def send_role(self, index: int, *, is_new: bool = False) -> None:
        """Sends the present role to every live replica, and the metadata before it."""
        state = replace(self.states[index])
        partition = LeaderAndIsrPartitionState(
            partition_index=index,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            partition_epoch=state.partition_epoch,
            replicas=list(state.replicas),
            is_new=is_new,
        )
        request = LeaderAndIsrRequest(
            controller_epoch=1,
            topic_states=[
                LeaderAndIsrTopicState(topic_name=TOPIC, topic_id=TOPIC_ID, partition_states=[partition])
            ],
        )
        data = encode(request, LEADER_AND_ISR_VERSION)
        for each in state.replicas:
            if each in self.live and self.hosts[each].is_running:
                self._deliver(self.hosts[each], self.image(), data)

    def _deliver(self, host: SimulatedReplicas, image: MetadataImage, data: bytes) -> None:
        """Requests to a broker may overtake each other here: its epochs tell the old ones."""
        process = host.process

        def arrive() -> None:
            if process.is_alive:
                process.loop.call_soon(partial(self._take_role, host, image, data))

        self.world.call_at(self.world.now_s + self.world.rng.random() * ROLE_DELAY_S_MAX, arrive)

    def _take_role(self, host: SimulatedReplicas, image: MetadataImage, data: bytes) -> None:
        host.metadata.publish(self.image())
        host.peers.check_addresses()
        host.parts.replicas.become(decode(LeaderAndIsrRequest, data, LEADER_AND_ISR_VERSION))

    def kill(self, broker_id: BrokerId) -> None:
        """The broker is gone, and the controller knows at once."""
        self.hosts[broker_id].kill()
        self.live.discard(broker_id)
        for index, state in enumerate(self.states):
            if broker_id not in state.replicas:
                continue
            if state.isr != (broker_id,):
                state.isr = tuple(each for each in state.isr if each != broker_id)
            if state.leader == broker_id:
                state.leader = next((each for each in state.isr if each in self.live), BrokerId(-1))
            self._write(index)

    def restart(self, broker_id: BrokerId) -> None:
        self.live.add(broker_id)
        self.hosts[broker_id].start()
        for index, state in enumerate(self.states):
            if broker_id in state.replicas:
                if state.leader == -1 and broker_id in state.isr:
                    state.leader = broker_id
                self._write(index)

    def move_leader(self, index: int) -> None:
        """Another live replica of the ISR leads."""
        state = self.states[index]
        others = [each for each in state.isr if each in self.live and each != state.leader]
        if others:
            state.leader = self.world.rng.choice(others)
            self._write(index)

    def _write(self, index: int) -> None:
        state = self.states[index]
        state.leader_epoch += 1
        state.partition_epoch += 1
        self.send_role(index)

    def alter(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        answers = []
        for topic in request.topics:
            for each in topic.partitions:
                in_sync = each.new_isr or [member.broker_id for member in each.new_isr_with_epochs]
                answers.append(
                    self._alter(each.partition_index, each.leader_epoch, each.partition_epoch, in_sync)
                )
        topic_answer = TopicData(topic_name=TOPIC, topic_id=TOPIC_ID, partitions=answers)
        return AlterPartitionResponse(topics=[topic_answer])

    def _alter(
        self, index: int, leader_epoch: int, partition_epoch: int, in_sync: list[int]
    ) -> PartitionData:
        state = self.states[index]
        code = NONE
        is_same = leader_epoch == state.leader_epoch and tuple(in_sync) == state.isr
        if leader_epoch > state.leader_epoch or partition_epoch > state.partition_epoch:
            code = NotController.code
        elif leader_epoch < state.leader_epoch:
            code = FencedLeaderEpoch.code
        elif not is_same and partition_epoch < state.partition_epoch:
            code = InvalidUpdateVersion.code
        elif not is_same and not set(in_sync) <= self.live:
            code = IneligibleReplica.code
        if code != NONE:
            return PartitionData(partition_index=index, error_code=code)
        if not is_same:
            state.isr = tuple(map(BrokerId, in_sync))
            state.partition_epoch += 1
        return PartitionData(
            partition_index=index,
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            partition_epoch=state.partition_epoch,
        )
