"""A cluster of model brokers: real controllers and a real store, brokers that only take roles and check them.

Each request that arrives is checked against what all brokers together have seen: one leader per leader epoch, in-sync
replicas among the replicas, never none, and no request of a controller that has been replaced.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from barnabas.clock import ManualClock
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.listeners import Endpoint, SecurityProtocol
from barnabas.config.live_settings import LiveSettings
from barnabas.coordination.controller.controller import Controller
from barnabas.coordination.controller.events import ControlRequest
from barnabas.coordination.controller.links import ControlResponse, OnAnswer
from barnabas.coordination.metadata.image import BrokerImage
from barnabas.coordination.metadata.membership import join_cluster, register
from barnabas.coordination.metadata.tree import (
    decode_partition_state,
    decode_topic,
    partition_state_path,
    topic_path,
)
from barnabas.coordination.planning.topic_creation import NewTopic, PlannedTopic
from barnabas.coordination.store.contract import NoNode
from barnabas.coordination.store.embedded import EmbeddedSession, EmbeddedStore
from barnabas.errors import KafkaStorageError
from barnabas.model import BrokerId, TopicPartition
from barnabas.protocol.messages.alter_partition_request import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from barnabas.protocol.messages.leader_and_isr_request import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
)
from barnabas.protocol.messages.leader_and_isr_response import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from barnabas.protocol.messages.stop_replica_request import StopReplicaRequest
from barnabas.protocol.messages.stop_replica_response import StopReplicaPartitionError, StopReplicaResponse
from barnabas.protocol.messages.update_metadata_request import UpdateMetadataRequest
from barnabas.protocol.messages.update_metadata_response import UpdateMetadataResponse
from tests.waiting import wait_until_async

PATIENCE_S = 120.0


class ModelBroker:
    def __init__(self, cluster: ModelCluster, broker_id: BrokerId, session: EmbeddedSession) -> None:
        self.id = broker_id
        self.session = session
        self.epoch = -1
        self.controller_epoch = 0
        self.roles: dict[TopicPartition, LeaderAndIsrPartitionState] = {}
        self.topic_ids: dict[str, bytes] = {}
        # What clients would see: leaders by partition.
        self.metadata: dict[TopicPartition, int] = {}
        self.offline: dict[TopicPartition, list[int]] = {}
        self.live: list[int] = []
        self.logs: set[TopicPartition] = set()
        # Replicas in failed log directories.
        self.failed: set[TopicPartition] = set()
        self.requests: list[ControlRequest] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.links = ModelLinks(cluster)
        self.controller = Controller(
            session, broker_id, "c", LiveSettings(cluster.config), self.links, cluster.clock, cluster.rng
        )

    @property
    def led(self) -> set[TopicPartition]:
        return {at for at, role in self.roles.items() if role.leader == self.id}

    def receive(self, request: ControlRequest) -> ControlResponse:
        self.requests.append(request)
        if request.controller_epoch < self.controller_epoch:
            return _refused(request, 11)
        if 0 <= request.broker_epoch < self.epoch:
            return _refused(request, 77)
        self.controller_epoch = request.controller_epoch
        if isinstance(request, UpdateMetadataRequest):
            return self._update(request)
        if isinstance(request, StopReplicaRequest):
            return self._stop(request)
        return self._become(request)

    def _update(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        self.live = [each.id for each in request.live_brokers]
        for topic in request.topic_states:
            for each in topic.partition_states:
                at = TopicPartition(topic.topic_name, each.partition_index)
                if each.leader == -2:
                    self.metadata.pop(at, None)
                else:
                    self.metadata[at] = each.leader
                    self.offline[at] = each.offline_replicas
        return UpdateMetadataResponse()

    def _become(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        topics = []
        for topic in request.topic_states:
            errors = []
            self.topic_ids[topic.topic_name] = topic.topic_id
            for each in topic.partition_states:
                at = TopicPartition(topic.topic_name, each.partition_index)
                assert self.id in each.replicas
                code = 0
                known = self.roles.get(at)
                if at in self.failed:
                    self.roles.pop(at, None)
                    code = KafkaStorageError.code
                elif known is not None and each.leader_epoch <= known.leader_epoch:
                    code = 11
                else:
                    self.roles[at] = each
                    self.logs.add(at)
                errors.append(LeaderAndIsrPartitionError(partition_index=at.partition, error_code=code))
            topics.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors))
        return LeaderAndIsrResponse(topics=topics)

    def _stop(self, request: StopReplicaRequest) -> StopReplicaResponse:
        errors = []
        for topic in request.topic_states:
            for each in topic.partition_states:
                at = TopicPartition(topic.topic_name, each.partition_index)
                code = KafkaStorageError.code if at in self.failed else 0
                if code == 0:
                    self.roles.pop(at, None)
                    if each.delete_partition:
                        self.logs.discard(at)
                errors.append(
                    StopReplicaPartitionError(
                        topic_name=at.topic, partition_index=at.partition, error_code=code
                    )
                )
        return StopReplicaResponse(partition_errors=errors)


def _refused(request: ControlRequest, code: int) -> ControlResponse:
    if isinstance(request, UpdateMetadataRequest):
        return UpdateMetadataResponse(error_code=code)
    if isinstance(request, StopReplicaRequest):
        return StopReplicaResponse(error_code=code)
    return LeaderAndIsrResponse(error_code=code)


class ModelLinks:
    """The channels of one controller: a queue for each broker, which is dropped when the broker goes or restarts."""

    def __init__(self, cluster: ModelCluster) -> None:
        self._cluster = cluster
        self._on_answer: OnAnswer
        self._epochs: dict[BrokerId, int] = {}
        self._queues: dict[BrokerId, deque[ControlRequest]] = {}
        self._tasks: dict[BrokerId, asyncio.Task[None]] = {}
        # Requests that no broker will answer, which the controller hears at once or when the test wants it.
        self.dropped: deque[tuple[BrokerId, ControlRequest]] = deque()
        self.reports_late = False

    @property
    def is_idle(self) -> bool:
        """Requests to brokers that answer nothing may wait."""
        return not any(
            queue and (broker := self._cluster.brokers.get(each)) is not None and broker.may_answer.is_set()
            for each, queue in self._queues.items()
        )

    def __repr__(self) -> str:
        return f"queues { ({each: len(queue) for each, queue in self._queues.items()}) } of {self._epochs}"

    def listen(self, on_answer: OnAnswer) -> None:
        self._on_answer = on_answer

    def connect(self, brokers: Mapping[BrokerId, BrokerImage]) -> None:
        for broker_id, epoch in list(self._epochs.items()):
            found = brokers.get(broker_id)
            if found is None or found.epoch != epoch:
                self._drop(broker_id)
        self._epochs = {broker_id: broker.epoch for broker_id, broker in brokers.items()}

    def send(self, broker_id: BrokerId, request: ControlRequest) -> None:
        assert broker_id in self._epochs
        assert request.broker_epoch == self._epochs[broker_id]
        self._queues.setdefault(broker_id, deque()).append(request)
        if broker_id not in self._tasks:
            task = asyncio.get_running_loop().create_task(self._run(broker_id, self._queues[broker_id]))
            self._tasks[broker_id] = task

    async def close(self) -> None:
        for broker_id in list(self._tasks):
            self._drop(broker_id)

    def _drop(self, broker_id: BrokerId) -> None:
        task = self._tasks.pop(broker_id, None)
        if task is not None:
            task.cancel()
        for request in self._queues.pop(broker_id, ()):
            self.dropped.append((broker_id, request))
        if not self.reports_late:
            asyncio.get_running_loop().call_soon(self.report_dropped)

    def report_dropped(self, answer: ControlResponse | None = None) -> None:
        """Without an answer, or with one that had not arrived when the channel was dropped."""
        while self.dropped:
            broker_id, request = self.dropped.popleft()
            self._on_answer(broker_id, request, answer if isinstance(request, StopReplicaRequest) else None)

    async def _run(self, broker_id: BrokerId, queue: deque[ControlRequest]) -> None:
        while queue:
            broker = self._cluster.brokers.get(broker_id)
            if broker is None or broker.epoch != self._epochs[broker_id]:
                # Until the controller knows that it is gone.
                await asyncio.sleep(0.001)
                continue
            await broker.may_answer.wait()
            try:
                self._cluster.check(queue[0])
                response = broker.receive(queue[0])
            except AssertionError as error:
                self._cluster.failure = error
                raise
            self._on_answer(broker_id, queue.popleft(), response)
        del self._tasks[broker_id]


class ModelCluster:
    def __init__(self, store: EmbeddedStore, config: BrokerConfig, seed: int = 1) -> None:
        self.store = store
        self.config = config
        self.clock = ManualClock()
        self.rng = Random(seed)
        self.brokers: dict[BrokerId, ModelBroker] = {}
        # Controllers of brokers that lost their sessions may still be at work.
        self.all_brokers: list[ModelBroker] = []
        # What a broker was told that must not be.
        self.failure: AssertionError | None = None
        self._leaders: dict[tuple[bytes, int, int], int] = {}
        self.session: EmbeddedSession

    async def start(self, *broker_ids: int) -> None:
        self.session = await self.store.connect()
        await join_cluster(self.session, self.rng, None)
        for broker_id in broker_ids:
            await self.start_broker(broker_id)

    async def start_broker(
        self, broker_id: int, logs: Collection[TopicPartition] = (), *, answers: bool = True
    ) -> ModelBroker:
        session = await self.store.connect()
        broker = ModelBroker(self, BrokerId(broker_id), session)
        if not answers:
            broker.may_answer.clear()
        broker.logs.update(logs)
        self.all_brokers.append(broker)
        endpoint = Endpoint(
            listener_name="PLAINTEXT",
            host=f"host{broker_id}",
            port=9092,
            security_protocol=SecurityProtocol.PLAINTEXT,
        )
        image = await register(session, broker.id, endpoints=[endpoint], rack=None, clock=self.clock)
        broker.epoch = image.epoch
        self.brokers[broker.id] = broker
        await broker.controller.start()
        await self.settle()
        return broker

    async def kill(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            broker = self.brokers.pop(BrokerId(broker_id))
            await broker.session.expire()
        await self.settle()

    async def restart(self, broker_id: int) -> ModelBroker:
        """So fast that others see only another epoch."""
        old = self.brokers.pop(BrokerId(broker_id))
        await old.session.expire()
        return await self.start_broker(broker_id, old.logs)

    @property
    def controller(self) -> Controller:
        return self.controlling.controller

    @property
    def controlling(self) -> ModelBroker:
        (broker,) = [each for each in self.brokers.values() if each.controller.is_active]
        return broker

    def check(self, request: ControlRequest) -> None:
        if not isinstance(request, LeaderAndIsrRequest):
            return
        for topic in request.topic_states:
            for each in topic.partition_states:
                assert each.isr
                assert set(each.isr) <= set(each.replicas), each
                assert each.leader in (-1, *each.isr), each
                if each.leader >= 0:
                    key = (topic.topic_id, each.partition_index, each.leader_epoch)
                    assert self._leaders.setdefault(key, each.leader) == each.leader, each

    async def settle(self) -> None:
        """Waits until nobody has anything to do."""

        def is_settled() -> bool:
            if self.failure is not None:
                raise self.failure
            return all(each.controller.work.is_idle and each.links.is_idle for each in self.all_brokers) and (
                not self.brokers or any(each.controller.is_active for each in self.brokers.values())
            )

        for _ in range(3):
            await asyncio.sleep(0)
            await wait_until_async(is_settled, self._unsettled, poll_s=0.002)

    def _unsettled(self) -> str:
        return "settled: " + ", ".join(
            f"broker {each.id}{'' if each.id in self.brokers else ' (gone)'}:"
            f" active {each.controller.is_active}, work {len(each.controller.work)}, {each.links}"
            for each in self.all_brokers
            if each.id in self.brokers or not each.links.is_idle
        )

    async def create(self, name: str, *assignments: Sequence[int], **configs: str) -> None:
        if len({len(each) for each in assignments}) > 1:
            # Only nodes can say so, as after reassignments.
            partitions = {str(index): list(each) for index, each in enumerate(assignments)}
            data = json.dumps({"version": 1, "partitions": partitions}).encode()
            await self.session.create(topic_path(name), data)
            await self.settle()
            return
        new = NewTopic(
            name=name,
            assignments=list(enumerate(assignments)),
            configs={key.replace("_", "."): value for key, value in configs.items()},
        )
        (created,) = await self.controller.create_topics([new])
        assert isinstance(created, PlannedTopic), created
        await self.settle()

    async def propose(self, name: str, partition: int, isr: Sequence[int]) -> int:
        """AlterPartition of the leader. Returns the error code of the partition."""
        at = TopicPartition(name, partition)
        (leader,) = [each for each in self.brokers.values() if at in each.led]
        role = leader.roles[at]
        proposal = PartitionData(
            partition_index=partition,
            leader_epoch=role.leader_epoch,
            new_isr_with_epochs=[BrokerState(broker_id=each) for each in isr],
            partition_epoch=role.partition_epoch,
        )
        topic = TopicData(topic_id=leader.topic_ids[name], partitions=[proposal])
        response = await self.controller.alter_partition(
            AlterPartitionRequest(broker_id=leader.id, broker_epoch=leader.epoch, topics=[topic])
        )
        assert response.error_code == 0
        answer = response.topics[0].partitions[0]
        if answer.error_code == 0:
            # As a leader does that has not been replaced in the meantime.
            role.isr, role.partition_epoch = answer.isr, answer.partition_epoch
        await self.settle()
        return answer.error_code

    async def node(self, path: str) -> Any:
        """The JSON of a node; None without one."""
        try:
            data, _ = await self.session.get(path)
        except NoNode:
            return None
        return json.loads(data) if data else ""

    async def state(self, name: str, partition: int = 0) -> tuple[int, int, tuple[int, ...]]:
        """Leader, leader epoch, in-sync replicas."""
        at = TopicPartition(name, partition)
        data, _ = await self.session.get(partition_state_path(at))
        state = decode_partition_state(at, data)
        return state.leader, state.leader_epoch, state.isr

    async def check_store(self) -> None:
        """Every state fits its assignment, and brokers have the roles that the store says."""
        names, _ = await self.session.children("/brokers/topics")
        deleted, _ = await self.session.children("/admin/delete_topics")
        for name in sorted({*names} - {*deleted}):
            data, _ = await self.session.get(topic_path(name))
            for index, assignment in decode_topic(name, data).partitions.items():
                at = TopicPartition(name, index)
                try:
                    data, _ = await self.session.get(partition_state_path(at))
                except NoNode:
                    continue
                state = decode_partition_state(at, data)
                assert state.isr
                assert set(state.isr) <= set(assignment.replicas), (at, state, assignment)
                assert state.leader in (-1, *state.isr)
                if state.leader in self.brokers:
                    role = self.brokers[state.leader].roles.get(at)
                    assert role is not None, (at, state)
                    assert role.leader_epoch == state.leader_epoch, (at, state, role)

    async def stop(self) -> None:
        for broker in self.all_brokers:
            await broker.controller.close()
        await self.store.close()


def run(
    scenario: Callable[[ModelCluster], Awaitable[None]],
    directory: Path,
    *broker_ids: int,
    seed: int = 1,
    **properties: str,
) -> None:
    """Runs a scenario on a cluster of these brokers, the first of which is the controller."""

    async def main() -> None:
        settings = {name.replace("_", "."): value for name, value in properties.items()}
        config = BrokerConfig({"broker.id": "0", "auto.leader.rebalance.enable": "false", **settings})
        store = await EmbeddedStore.open([str(directory)], clock=ManualClock())
        cluster = ModelCluster(store, config, seed)
        try:
            await cluster.start(*broker_ids)
            await scenario(cluster)
            await cluster.settle()
            await cluster.check_store()
        finally:
            await cluster.stop()

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
