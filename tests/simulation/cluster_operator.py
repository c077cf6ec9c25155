"""An operator of a simulated cluster: creates topics, moves and adds partitions, elects leaders, changes settings,
deletes topics and repeats.

Each topic has the same name as the one before it. It holds what was written to it and nothing else: a record of an
earlier topic in it would be a fault.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from barnabas.errors import (
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from barnabas.protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.delete_topics_request import DeleteTopicsRequest
from barnabas.protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from barnabas.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from tests.broker.record_requests import batch
from tests.simulation.client import SimulatedClient
from tests.simulation.workload import now_ms, persist, produce, read

TOPIC: Final = "moved"
TIMEOUT_MS: Final = 5_000
PREFERRED: Final = 0
SET: Final = 0
TOPIC_RESOURCE: Final = 2


class Operator:
    def __init__(self, client: SimulatedClient, broker_ids: list[int], *, moves: bool = True) -> None:
        """One that does not move partitions has all topics on the same brokers, and changes nothing but topics."""
        self._moves = moves
        self._client = client
        self._rng = client.rng
        self._broker_ids = broker_ids
        self._partitions = 0
        self._topic_id = b""
        # Values by partition, of the topic that there is now.
        self._written: list[list[bytes]] = []

    async def run(self, topics: int, changes: int) -> None:
        for number in range(topics):
            await self._create()
            for change in range(changes):
                await self._write(f"{number}-{change}".encode())
                if self._moves:
                    kinds = (self._reassign, self._grow, self._elect, self._alter_settings, self._pause)
                    await self._rng.choice(kinds)()
            await self._check()
            if number < topics - 1:
                await self._delete()

    async def _pause(self) -> None:
        await self._client.pause(0.5)

    def _replicas(self) -> list[int]:
        if not self._moves:
            return self._broker_ids
        return self._rng.sample(self._broker_ids, self._rng.randint(2, len(self._broker_ids)))

    async def _create(self) -> None:
        self._partitions = self._rng.randint(1, 2)
        self._written = [[] for _ in range(self._partitions)]
        # All partitions of a new topic have the same number of replicas.
        replicas = self._replicas()
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=replicas[index:] + replicas[:index])
            for index in range(self._partitions)
        ]
        topic = CreatableTopic(name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=assignments)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)

        async def attempt() -> bytes | None:
            # Brokers that are down cannot get replicas, so any error may pass.
            [answer] = (await self._client.ask("CreateTopics", 7, request)).topics
            if answer.error_code == 0:
                return bytes(answer.topic_id)
            return await self._created() if answer.error_code == TopicAlreadyExists.code else None

        self._topic_id = await persist(self._client, attempt)

    async def _created(self) -> bytes | None:
        """The id of a topic that an attempt without an answer has made; None if it is the one that was deleted."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
        [found] = (await self._client.ask("Metadata", 12, request)).topics
        return bytes(found.topic_id) if found.error_code == 0 and found.topic_id != self._topic_id else None

    async def _delete(self) -> None:
        """Until there is no such topic: a deletion waits for the brokers that have replicas."""
        request = DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=TIMEOUT_MS)

        async def attempt() -> bool | None:
            [answer] = (await self._client.ask("DeleteTopics", 4, request)).responses
            return answer.error_code == UnknownTopicOrPartition.code or None

        await persist(self._client, attempt)

    async def _write(self, value: bytes) -> None:
        """Written once at most: without a sequence, a second attempt could write it twice."""
        index = self._rng.randrange(self._partitions)
        value = b"%s in %d: " % (value, index) + b"x" * self._rng.choice((10, 1_000))
        await produce(self._client, TOPIC, index, batch(value, timestamp=now_ms()))
        self._written[index].append(value)

    async def _reassign(self) -> None:
        """Or cancels a reassignment, or does nothing, as the cluster permits."""
        replicas = None if self._rng.random() < 0.2 else self._replicas()
        partition = ReassignablePartition(
            partition_index=self._rng.randrange(self._partitions), replicas=replicas
        )
        topic = ReassignableTopic(name=TOPIC, partitions=[partition])
        await self._try(
            "AlterPartitionReassignments",
            0,
            AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=TIMEOUT_MS),
        )

    async def _grow(self) -> None:
        count = self._partitions + 1
        topic = CreatePartitionsTopic(name=TOPIC, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        answer = await self._try("CreatePartitions", 3, request)
        if answer is not None and answer.results[0].error_code == 0:
            self._partitions = count
            self._written.append([])

    async def _elect(self) -> None:
        partitions = TopicPartitions(topic=TOPIC, partitions=list(range(self._partitions)))
        request = ElectLeadersRequest(
            election_type=PREFERRED, topic_partitions=[partitions], timeout_ms=TIMEOUT_MS
        )
        await self._try("ElectLeaders", 2, request)

    async def _alter_settings(self) -> None:
        setting = AlterableConfig(
            name=self._rng.choice(("retention.ms", "segment.ms")),
            config_operation=SET,
            value=str(self._rng.randint(3_600_000, 7_200_000)),
        )
        resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=TOPIC, configs=[setting])
        await self._try("IncrementalAlterConfigs", 1, IncrementalAlterConfigsRequest(resources=[resource]))

    async def _try(self, api_name: str, version: int, request: Any) -> Any:
        """The first answer. Its error, if it has one, may be of the faults."""

        async def attempt() -> Any:
            return await self._client.ask(api_name, version, request)

        return await persist(self._client, attempt)

    async def _check(self) -> None:
        for index, written in enumerate(self._written):
            await persist(self._client, partial(self._read, index, written))

    async def _read(self, index: int, written: list[bytes]) -> bool | None:
        """A new leader does not know at once how far its records are committed: what it exposes is a beginning."""
        found = await read(self._client, TOPIC, index)
        # An attempt that was not answered may have written a value before the attempt that was.
        assert [*dict.fromkeys(found)] == written[: len(set(found))], f"{TOPIC}-{index}"
        return len(set(found)) == len(written) or None
