"""A client that creates, changes and deletes topics and writes to them, and knows what a power cut must not lose.

The rules, whatever was synced before the power failed:

- What the broker has acknowledged about a topic holds: it exists or not, with its partitions and settings.
- Each of its partitions takes records.
- A partition holds no record of another partition, nor one of a deleted topic that had the same name.
- A topic with `flush.messages=1` has each acknowledged record at its offset. Others may lose records, as in Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.errors import (
    InvalidPartitions,
    LeaderNotAvailable,
    OffsetOutOfRange,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from barnabas.protocol.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.delete_topics_request import DeleteTopicsRequest
from barnabas.protocol.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from barnabas.protocol.messages.fetch_request import FetchRequest
from barnabas.protocol.messages.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from barnabas.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from barnabas.records.reader import iterate_batches
from tests.broker.config_requests import SET, TOPIC, incremental_resource
from tests.broker.record_requests import batch, fetch_request
from tests.simulation.client import SimulatedClient
from tests.simulation.workload import ask, now_ms, persist, produce

NAMES: Final = 3
PARTITIONS_MAX: Final = 4
RETENTION: Final = "retention.ms"
ABSENT: Final = frozenset({UnknownTopicOrPartition.code})


@dataclass(slots=True, kw_only=True)
class KnownTopic:
    """What the broker has acknowledged about a topic."""

    # Tells the topics apart that had the same name.
    life: int
    partitions: int
    retention_ms: int
    is_flushed: bool
    # Values by partition and offset.
    acknowledged: dict[tuple[int, int], bytes] = field(default_factory=dict)


class TopicKeeper:
    """No other client uses its names, so an attempt that was not answered can be made again."""

    def __init__(self, client: SimulatedClient) -> None:
        self._client = client
        self._topics: dict[str, KnownTopic] = {}
        self._lives = 0
        self.changes = 0

    async def run(self, count: int) -> None:
        for _ in range(count):
            name = f"{self._client.name}-{self._client.rng.randrange(NAMES)}"
            topic = self._topics.get(name)
            if topic is None:
                await self._create(name)
            else:
                action = self._client.rng.choice(
                    (self._delete, self._grow, self._alter, self._write, self._write)
                )
                await action(name, topic)
            self.changes += 1
            await self._client.pause(0.2)

    async def _create(self, name: str) -> None:
        rng = self._client.rng
        self._lives += 1
        topic = KnownTopic(
            life=self._lives,
            partitions=rng.randint(1, PARTITIONS_MAX),
            retention_ms=rng.randrange(1 << 40, 1 << 41),
            is_flushed=rng.random() < 0.5,
        )
        settings = {RETENTION: str(topic.retention_ms)}
        if topic.is_flushed:
            settings["flush.messages"] = "1"
        configs = [CreatableTopicConfig(name=key, value=value) for key, value in settings.items()]
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name, num_partitions=topic.partitions, replication_factor=1, configs=configs
                )
            ],
            timeout_ms=30_000,
        )
        exists = frozenset({TopicAlreadyExists.code})
        await ask(
            self._client, "CreateTopics", 7, request, lambda each: int(each.topics[0].error_code), exists
        )
        self._topics[name] = topic

    async def _delete(self, name: str, topic: KnownTopic) -> None:
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000)

        async def attempt() -> bool:
            [answer] = (await self._client.ask("DeleteTopics", 4, request)).responses
            assert answer.error_code == 0 or answer.error_code in ABSENT, answer
            return True

        await persist(self._client, attempt)
        del self._topics[name]

    async def _grow(self, name: str, topic: KnownTopic) -> None:
        topic.partitions += 1
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=topic.partitions, assignments=None)],
            timeout_ms=30_000,
        )
        # An attempt without an answer may have succeeded.
        has_so_many = frozenset({InvalidPartitions.code})
        await ask(
            self._client,
            "CreatePartitions",
            3,
            request,
            lambda each: int(each.results[0].error_code),
            has_so_many,
        )

    async def _alter(self, name: str, topic: KnownTopic) -> None:
        topic.retention_ms += 1
        change = incremental_resource(TOPIC, name, (RETENTION, SET, str(topic.retention_ms)))
        await ask(
            self._client,
            "IncrementalAlterConfigs",
            1,
            IncrementalAlterConfigsRequest(resources=[change]),
            lambda each: int(each.responses[0].error_code),
        )

    async def _write(self, name: str, topic: KnownTopic) -> None:
        partition = self._client.rng.randrange(topic.partitions)
        value = self._value(name, topic, partition)
        produced = await produce(self._client, name, partition, batch(value, timestamp=now_ms()))
        if topic.is_flushed:
            at = (partition, produced.base_offset)
            assert at not in topic.acknowledged, f"offset {at} of {name} was acknowledged twice"
        topic.acknowledged[partition, produced.base_offset] = value

    def _value(self, name: str, topic: KnownTopic, partition: int) -> bytes:
        return f"{name} {topic.life} {partition}".encode()

    async def check(self) -> None:
        for index in range(NAMES):
            name = f"{self._client.name}-{index}"
            topic = self._topics.get(name)
            found = await self._described(name)
            if topic is None:
                assert found.error_code in ABSENT, f"{name} was deleted: {found}"
                continue
            assert found.error_code == 0, f"{name}: {found}"
            assert len(found.partitions) == topic.partitions, f"{name}: {found}"
            assert await self._retention_ms(name) == topic.retention_ms, name
            for partition in range(topic.partitions):
                await self._check_records(name, topic, partition)
                await self._write_once(name, topic, partition)

    async def _described(self, name: str) -> Any:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)

        async def attempt() -> Any:
            [topic] = (await self._client.ask("Metadata", 9, request)).topics
            # A broker that has just started may not have given the partitions their roles.
            if any(each.error_code for each in topic.partitions):
                raise LeaderNotAvailable(str(topic))
            return topic

        return await persist(self._client, attempt)

    async def _retention_ms(self, name: str) -> int:
        resource = DescribeConfigsResource(
            resource_type=TOPIC, resource_name=name, configuration_keys=[RETENTION]
        )
        response = await ask(
            self._client,
            "DescribeConfigs",
            4,
            DescribeConfigsRequest(resources=[resource]),
            lambda each: int(each.results[0].error_code),
        )
        return int(response.results[0].configs[0].value)

    async def _check_records(self, name: str, topic: KnownTopic, partition: int) -> None:
        found: dict[int, bytes] = {}
        offset = 0
        while True:
            request: FetchRequest = fetch_request(name, offset, partition=partition)
            response = await ask(
                self._client,
                "Fetch",
                12,
                request,
                lambda each: int(each.responses[0].partitions[0].error_code),
                # The power may fail in the middle of it, and take records that have just been read.
                frozenset() if topic.is_flushed else frozenset({OffsetOutOfRange.code}),
            )
            answer = response.responses[0].partitions[0]
            if answer.error_code:
                offset = 0
                continue
            if not answer.records:
                assert offset == answer.high_watermark, f"{name}-{partition} ends at {offset}"
                break
            for header, records in iterate_batches(bytes(answer.records)):
                found.update((int(record.offset), record.value or b"") for record in records)
                offset = int(header.next_offset)
        mine = self._value(name, topic, partition)
        assert all(value == mine for value in found.values()), f"{name}-{partition}: {found}"
        if topic.is_flushed:
            missing = [at for index, at in topic.acknowledged if index == partition and at not in found]
            assert not missing, f"{name}-{partition} has lost {missing}"

    async def _write_once(self, name: str, topic: KnownTopic, partition: int) -> None:
        """It fails if the partition is offline."""
        value = self._value(name, topic, partition)
        await produce(self._client, name, partition, batch(value, timestamp=now_ms()))
