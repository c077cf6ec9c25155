"""A world with a real ZooKeeper, and a broker in a process of its own as the controller: Apache Kafka's, or ours."""

from __future__ import annotations

import asyncio
import contextlib
import json
import operator
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

from barnabas.coordination.metadata.tree import (
    CONTROLLER_EPOCH,
    broker_path,
    decode_uuid,
    partitions_path,
    topic_path,
)
from barnabas.coordination.metadata.updates import LEADER_DURING_DELETE
from barnabas.coordination.store.contract import children_of
from barnabas.coordination.store.zookeeper import ZooKeeperSession, ZooKeeperStore
from barnabas.coordination.store.zookeeper_client import ZooKeeperSettings
from barnabas.model import BrokerId, TopicPartition
from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.alter_partition_request import AlterPartitionRequest
from barnabas.protocol.messages.controlled_shutdown_request import ControlledShutdownRequest
from barnabas.protocol.messages.create_partitions_request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from barnabas.protocol.messages.update_metadata_request import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tests.broker.raw_client import RawClient
from tests.transcripts.golden import Transcript
from tests.transcripts.transaction_log import TransactionLog
from tests.transcripts.world import ALTER_PARTITION_VERSION, CONTROLLER_ID, NOBODY, Errors, World, Written

TIMEOUT_MS: Final = 2_000
SETTLE_S_MAX: Final = 60.0
QUIET_S: Final = 1.0


class RealWorld(World):
    def __init__(
        self,
        tree: ZooKeeperSession,
        level: str,
        port: int,
        writes: Callable[[], list[Written]],
        *,
        quiet_s: float,
    ) -> None:
        super().__init__(tree, level)
        self._port = port
        self._new_writes = writes
        self._quiet_s = quiet_s
        self._written: list[Written] = []
        # What comes, if it is known.
        self.expected: Transcript | None = None
        self.names.ports[port] = CONTROLLER_ID

    async def settle(self) -> None:
        """Nobody can ask a foreign controller whether it is done: nothing may happen for a while.

        Where the transcript is known, each broker has to have as many requests as there.
        """
        deadline = time.monotonic() + SETTLE_S_MAX
        seen, since = self._received(), time.monotonic()
        while not self._is_settled(seen, since):
            assert time.monotonic() < deadline, f"the controller does not settle: {seen}"
            await asyncio.sleep(0.02)
            if (now := self._received()) != seen:
                seen, since = now, time.monotonic()

    async def rest(self) -> None:
        if self.expected is None:
            await self.settle()

    def _received(self) -> list[int]:
        """How many writes there are, and how many requests each broker has."""
        self._written += self._new_writes()
        return [len(self._written), *(len(stub.requests) for stub in self.stubs.values())]

    def _is_settled(self, received: Sequence[int], since: float) -> bool:
        if self.expected is None:
            return time.monotonic() - since >= self._quiet_s
        step = self.expected[len(self.steps)]
        wanted = [len(step["writes"]), *(len(each) for each in step["requests"].values())]
        return len(wanted) == len(received) and all(map(operator.ge, received, wanted))

    def take_writes(self) -> list[Written]:
        self._received()
        taken, self._written = self._written, []
        return taken

    async def forget_topics(self, topics: Sequence[str]) -> None:
        """Sends what a controller sends that has deleted them."""
        if not topics:
            return
        epoch = int((await self.tree.get(CONTROLLER_EPOCH))[0])
        states = [
            UpdateMetadataTopicState(
                topic_name=name,
                topic_id=decode_uuid(json.loads((await self.tree.get(topic_path(name)))[0])["topic_id"]),
                partition_states=[
                    UpdateMetadataPartitionState(
                        partition_index=int(index), controller_epoch=epoch, leader=LEADER_DURING_DELETE
                    )
                    for index in await children_of(self.tree, partitions_path(name))
                ],
            )
            for name in topics
        ]
        request = UpdateMetadataRequest(
            controller_id=NOBODY,
            controller_epoch=epoch,
            broker_epoch=-1,
            topic_states=states,
            live_brokers=[],
        )
        response = await self._ask("UpdateMetadata", 7, request)
        assert response.error_code == 0, response

    async def create_topics(
        self, topics: Mapping[str, Mapping[int, Sequence[int]]], configs: Mapping[str, str] | None = None
    ) -> Errors:
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[
                        CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
                        for index, replicas in assignment.items()
                    ],
                    configs=[
                        CreatableTopicConfig(name=each, value=value)
                        for each, value in (configs or {}).items()
                    ],
                )
                for name, assignment in topics.items()
            ],
            timeout_ms=TIMEOUT_MS,
        )
        response = await self._ask("CreateTopics", 7, request)
        return {each.name: each.error_code for each in response.topics}

    async def create_partitions(self, topic: str, count: int, assignment: Sequence[Sequence[int]]) -> Errors:
        new = CreatePartitionsTopic(
            name=topic,
            count=count,
            assignments=[CreatePartitionsAssignment(broker_ids=list(each)) for each in assignment],
        )
        response = await self._ask(
            "CreatePartitions", 3, CreatePartitionsRequest(topics=[new], timeout_ms=TIMEOUT_MS)
        )
        return {each.name: each.error_code for each in response.results}

    async def delete_topics(self, *topics: str) -> Errors:
        states = [DeleteTopicState(name=each) for each in topics]
        response = await self._ask(
            "DeleteTopics", 6, DeleteTopicsRequest(topics=states, timeout_ms=TIMEOUT_MS)
        )
        return {each.name: each.error_code for each in response.responses}

    async def reassign(self, targets: Mapping[TopicPartition, Sequence[int] | None]) -> Errors:
        topics: dict[str, ReassignableTopic] = {}
        for at, target in targets.items():
            topic = topics.setdefault(at.topic, ReassignableTopic(name=at.topic))
            topic.partitions.append(
                ReassignablePartition(
                    partition_index=at.partition, replicas=None if target is None else list(target)
                )
            )
        request = AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=list(topics.values()))
        response = await self._ask("AlterPartitionReassignments", 0, request)
        return {
            f"{topic.name}-{each.partition_index}": each.error_code
            for topic in response.responses
            for each in topic.partitions
        }

    async def elect(self, partitions: Sequence[TopicPartition], election_type: int) -> Errors:
        request = ElectLeadersRequest(
            election_type=election_type,
            topic_partitions=[
                TopicPartitions(topic=at.topic, partitions=[at.partition]) for at in partitions
            ],
            timeout_ms=TIMEOUT_MS,
        )
        response = await self._ask("ElectLeaders", 2, request)
        found = {
            f"{topic.topic}-{each.partition_id}": each.error_code
            for topic in response.replica_election_results
            for each in topic.partition_result
        }
        return dict(sorted(found.items()))

    async def ask_alter_partition(self, request: AlterPartitionRequest) -> Message:
        response: Message = await self._ask("AlterPartition", ALTER_PARTITION_VERSION, request)
        return response

    async def ask_controlled_shutdown(self, broker_id: BrokerId, broker_epoch: int) -> Message:
        request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch)
        response: Message = await self._ask("ControlledShutdown", 3, request)
        return response

    async def _ask(self, api: str, version: int, request: Message) -> Any:
        def ask() -> Any:
            with RawClient(self._port) as client:
                return client.ask(api, version, request)

        return await asyncio.to_thread(ask)


@contextlib.asynccontextmanager
async def real_world(
    level: str, port: int, connect: str, log: TransactionLog, *, quiet_s: float = QUIET_S
) -> AsyncIterator[RealWorld]:
    """`connect` names a part of the tree that a broker with the id of the controller uses; it listens on `port`."""
    settings = ZooKeeperSettings(connect=connect, session_timeout_ms=30_000)
    tree = await ZooKeeperStore(settings).connect()
    registration, sessions = settings.chroot + broker_path(CONTROLLER_ID), set[int]()

    def writes() -> list[Written]:
        found = []
        for session, each in log.read():
            if each.path == registration and each.kind == "create":
                sessions.add(session)
            if session in sessions:
                found.append(each._replace(path=each.path.removeprefix(settings.chroot)))
        return found

    world = RealWorld(tree, level, port, writes, quiet_s=quiet_s)
    try:
        yield world
    finally:
        await world.close()
