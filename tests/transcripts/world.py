"""The world of a scenario: a controller, its tree, and stub brokers that note what the controller sends to them.

There are two kinds of worlds: one with a real process and a real ZooKeeper (`real_world.py`), and one with our
controller in this process on the embedded store (`own_world.py`). A scenario does the same in both. It is a list of
steps. After each step the world waits until the controller has nothing more to do, and adds to the transcript what
the brokers have received, what the controller has written, and its replies.
"""

from __future__ import annotations

import contextlib
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from barnabas.config.listeners import Endpoint, SecurityProtocol
from barnabas.coordination.metadata.tree import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    DELETE_TOPICS,
    ISR_CHANGES,
    LOG_DIR_EVENTS,
    PREFERRED_REPLICA_ELECTION,
    REASSIGN_PARTITIONS,
    TOPICS,
    BrokerRegistration,
    broker_path,
    encode_broker,
    encode_controller,
    partition_state_path,
)
from barnabas.coordination.store.contract import (
    Create,
    CreateMode,
    Delete,
    NoNode,
    Operation,
    SetData,
    Stat,
    Store,
    child_path,
    children_of,
)
from barnabas.errors import KafkaStorageError
from barnabas.model import BrokerId, TopicPartition
from barnabas.protocol.json_form import to_json
from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_partition_request import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from barnabas.protocol.messages.leader_and_isr_request import LeaderAndIsrRequest
from barnabas.protocol.messages.leader_and_isr_response import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from barnabas.protocol.messages.stop_replica_request import StopReplicaRequest
from barnabas.protocol.messages.stop_replica_response import StopReplicaPartitionError, StopReplicaResponse
from barnabas.protocol.messages.update_metadata_response import UpdateMetadataResponse
from tests.peers.link_peers import ScriptedBroker
from tests.transcripts.names import Names

CONTROLLER_ID: Final = BrokerId(0)
# Holds the node of the controller while a scenario prepares the tree.
NOBODY: Final = 99
ALTER_PARTITION_VERSION: Final = 3

# Error codes by topic or partition.
Errors = dict[str, int]


class Written(NamedTuple):
    """A change of the tree: what (create, set, delete), which node, and its data."""

    kind: str
    path: str
    data: bytes = b""


class Stub(ScriptedBroker):
    """A broker that does as it is asked, apart from replicas that cannot be used or deleted."""

    def __init__(self, broker_id: BrokerId) -> None:
        super().__init__(self._obey)
        self.broker_id = broker_id
        self.failed: set[TopicPartition] = set()
        self.stuck: set[TopicPartition] = set()

    def take(self) -> list[tuple[str, int, dict[str, Any]]]:
        """The requests since the last call: API, version, content."""
        taken, self.requests = self.requests, []
        return [(each.api.name, each.version, to_json(each.body, each.version)) for each in taken]

    async def _obey(self, request: Any) -> Message:
        body = request.body
        if isinstance(body, LeaderAndIsrRequest):
            return self._take_roles(body)
        if isinstance(body, StopReplicaRequest):
            return StopReplicaResponse(
                partition_errors=[
                    StopReplicaPartitionError(
                        topic_name=topic.topic_name,
                        partition_index=each.partition_index,
                        error_code=self._error(self.stuck, topic.topic_name, each.partition_index),
                    )
                    for topic in body.topic_states
                    for each in topic.partition_states
                ]
            )
        return UpdateMetadataResponse()

    def _take_roles(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        return LeaderAndIsrResponse(
            topics=[
                LeaderAndIsrTopicError(
                    topic_id=topic.topic_id,
                    partition_errors=[
                        LeaderAndIsrPartitionError(
                            partition_index=each.partition_index,
                            error_code=self._error(self.failed, topic.topic_name, each.partition_index),
                        )
                        for each in topic.partition_states
                    ],
                )
                for topic in request.topic_states
            ]
        )

    def _error(self, bad: set[TopicPartition], topic: str, partition: int) -> int:
        return KafkaStorageError.code if TopicPartition(topic, partition) in bad else 0


class World(ABC):
    """`tree` is a session of the scenario's own."""

    def __init__(self, tree: Store, level: str) -> None:
        self.tree = tree
        self.level = level
        self.names = Names()
        self.stubs: dict[BrokerId, Stub] = {}
        self.broker_epochs: dict[BrokerId, int] = {}
        self.steps: list[dict[str, Any]] = []

    @abstractmethod
    async def settle(self) -> None:
        """Waits until the controller has nothing more to do."""

    async def rest(self) -> None:
        """Waits until nothing that happened before a step has consequences."""
        await self.settle()

    @abstractmethod
    def take_writes(self) -> list[Written]:
        """What the controller has written since the last call, in order."""

    @abstractmethod
    async def create_topics(
        self, topics: Mapping[str, Mapping[int, Sequence[int]]], configs: Mapping[str, str] | None = None
    ) -> Errors: ...

    @abstractmethod
    async def create_partitions(
        self, topic: str, count: int, assignment: Sequence[Sequence[int]]
    ) -> Errors: ...

    @abstractmethod
    async def delete_topics(self, *topics: str) -> Errors: ...

    @abstractmethod
    async def reassign(self, targets: Mapping[TopicPartition, Sequence[int] | None]) -> Errors: ...

    @abstractmethod
    async def elect(self, partitions: Sequence[TopicPartition], election_type: int) -> Errors: ...

    @abstractmethod
    async def ask_alter_partition(self, request: AlterPartitionRequest) -> Message: ...

    @abstractmethod
    async def ask_controlled_shutdown(self, broker_id: BrokerId, broker_epoch: int) -> Message: ...

    def stub(self, broker_id: int) -> Stub:
        return self.stubs[BrokerId(broker_id)]

    async def step(self, name: str, *actions: Awaitable[Any]) -> None:
        """Does something, waits for all that follows, and adds it to the transcript."""
        replies = [await action for action in actions]
        await self.settle()
        writes = self.take_writes()
        for each in writes:
            self.names.learn(each.path, each.data)
        self.steps.append(
            {
                "step": name,
                "requests": {
                    str(stub.broker_id): self.names.requests(stub.broker_id, stub.take())
                    for stub in self.stubs.values()
                },
                "writes": [self.names.write(*each) for each in writes],
                "replies": [self.names.reply(each) for each in replies if each is not None],
            }
        )

    async def begin(self, brokers: Sequence[int] = (1, 2, 3)) -> None:
        """An empty tree with these brokers, and no controller."""
        await self.vacate()
        await self.forget_topics(await children_of(self.tree, TOPICS))
        for parent in (
            TOPICS,
            "/config/topics",
            DELETE_TOPICS,
            LOG_DIR_EVENTS,
            ISR_CHANGES,
            "/config/changes",
        ):
            for name in await children_of(self.tree, parent):
                await self._remove(child_path(parent, name))
        for path in (REASSIGN_PARTITIONS, PREFERRED_REPLICA_ELECTION):
            await self._remove(path)
        for broker_id in list(self.stubs):
            await self.dismiss(broker_id)
        self.names.reset(int((await self.tree.get(CONTROLLER_EPOCH))[0]))
        self.broker_epochs.clear()
        for each in brokers:
            await self.register(each)
        await self.rest()
        self.take_writes()
        self.steps = []

    @abstractmethod
    async def forget_topics(self, topics: Sequence[str]) -> None:
        """The broker of the controller forgets them: a scenario begins with nothing."""

    async def vacate(self) -> None:
        """Ends the office of the controller. No other broker can be elected until `open_election`."""
        holder: list[Operation] = [
            Create(CONTROLLER, encode_controller(NOBODY, 0), CreateMode.EPHEMERAL),
        ]
        found = await self.tree.exists(CONTROLLER)
        if found is not None and found.ephemeral_owner == self.tree.session_id:
            return
        await self.tree.multi(holder if found is None else [Delete(CONTROLLER), *holder])
        await self.rest()

    async def open_election(self) -> None:
        await self.tree.delete(CONTROLLER)

    async def depose(self) -> None:
        """Removes the node of the controller, which is elected again."""
        await self.tree.delete(CONTROLLER)

    async def register(self, broker_id: int) -> None:
        """A broker comes, or comes again after a restart."""
        each = BrokerId(broker_id)
        stub = self.stubs.get(each)
        if stub is None:
            stub = self.stubs[each] = Stub(each)
            await stub.start()
            self.names.ports[stub.port] = each
        path = broker_path(each)
        operations: list[Operation] = [
            Create(path, b"", CreateMode.EPHEMERAL),
            SetData(path, self._registration(stub)),
        ]
        if await self.tree.exists(path) is not None:
            operations.insert(0, Delete(path))
        stat = (await self.tree.multi(operations))[-1]
        assert isinstance(stat, Stat)
        self.broker_epochs[each] = stat.czxid
        self.names.learn_epoch(each, stat.czxid)

    async def move(self, broker_id: int, host: str) -> None:
        """A broker that stays registered has another address."""
        await self.tree.set(broker_path(broker_id), self._registration(self.stub(broker_id), host))

    async def leave(self, broker_id: int) -> None:
        """A broker goes: its session has ended."""
        await self.tree.delete(broker_path(broker_id))

    async def dismiss(self, broker_id: BrokerId) -> None:
        await self._remove(broker_path(broker_id))
        await self.stubs.pop(broker_id).stop()

    async def alter_isr(self, leader: int, isrs: Mapping[TopicPartition, Sequence[int]], **other: int) -> Any:
        """The leader proposes these in-sync replicas, with the epochs that the tree has now or with others."""
        topics: dict[str, TopicData] = {}
        for at, isr in isrs.items():
            if at.topic not in topics:
                topics[at.topic] = TopicData(topic_id=self.names.current_id(at.topic))
            data, stat = await self.tree.get(partition_state_path(at))
            state = json.loads(data)
            topics[at.topic].partitions.append(
                PartitionData(
                    partition_index=at.partition,
                    leader_epoch=other.get("leader_epoch", state["leader_epoch"]),
                    new_isr_with_epochs=[BrokerState(broker_id=each) for each in isr],
                    leader_recovery_state=other.get("leader_recovery_state", 0),
                    partition_epoch=other.get("partition_epoch", stat.version),
                )
            )
        request = AlterPartitionRequest(
            broker_id=leader,
            broker_epoch=other.get("broker_epoch", self.broker_epochs[BrokerId(leader)]),
            topics=list(topics.values()),
        )
        return to_json(await self.ask_alter_partition(request), ALTER_PARTITION_VERSION)

    async def shut_down(self, broker_id: int) -> Any:
        each = BrokerId(broker_id)
        return to_json(await self.ask_controlled_shutdown(each, self.broker_epochs[each]), 3)

    async def write(
        self, path: str, content: Any, *, is_new: bool = True, is_sequential: bool = False
    ) -> None:
        """Writes a node as another broker or an old tool does."""
        data = b"" if content is None else json.dumps(content).encode()
        self.names.learn(path, data)
        if is_new:
            mode = CreateMode.PERSISTENT_SEQUENTIAL if is_sequential else CreateMode.PERSISTENT
            await self.tree.create(path, data, mode=mode)
        else:
            await self.tree.set(path, data)

    async def _remove(self, path: str) -> None:
        for name in await children_of(self.tree, path):
            await self._remove(child_path(path, name))
        with contextlib.suppress(NoNode):
            await self.tree.delete(path)

    def _registration(self, stub: Stub, host: str = "127.0.0.1") -> bytes:
        endpoint = Endpoint(
            listener_name="PLAINTEXT",
            host=host,
            port=stub.port,
            security_protocol=SecurityProtocol.PLAINTEXT,
        )
        return encode_broker(
            BrokerRegistration(broker_id=stub.broker_id, endpoints=(endpoint,), timestamp_ms=1)
        )

    async def close(self) -> None:
        for stub in self.stubs.values():
            await stub.stop()
        await self.tree.close()
