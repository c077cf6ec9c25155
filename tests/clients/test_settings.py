"""Settings and log directories through each client's administration, and that settings take effect at once."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AioConfigResourceType
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    ResourceType,
)

from tests.broker.record_requests import batch, produce
from tests.clients.broker_process import BrokerProcess

with warnings.catch_warnings():
    # It loads its schemas in a way that Python means to give up.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient
    from kafka.admin import ConfigResource as PythonConfigResource

WAIT_S = 60
# That a broker is away for a moment is no news to print.
QUIET = {"log_level": 2}


@pytest.fixture(scope="module")
def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.address, **QUIET})


@pytest.fixture
def created(admin: AdminClient, topic: str) -> str:
    new = NewTopic(topic, num_partitions=2, replication_factor=1, config={"retention.ms": "1234567"})
    admin.create_topics([new])[topic].result(WAIT_S)
    return topic


def described(admin: AdminClient, resource: ConfigResource) -> dict[str, ConfigEntry]:
    found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(WAIT_S)
    return found


def change(admin: AdminClient, kind: ResourceType, name: str, **values: str | None) -> None:
    entries = [
        ConfigEntry(
            key.replace("_", "."),
            value,
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for key, value in values.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)


def test_settings_of_a_topic_with_confluent_kafka(
    broker: BrokerProcess, admin: AdminClient, created: str
) -> None:
    resource = ConfigResource(ResourceType.TOPIC, created)
    found = described(admin, resource)
    assert found["retention.ms"].value == "1234567"
    assert found["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert found["cleanup.policy"].value == "delete"
    assert found["cleanup.policy"].is_default
    assert set(found["segment.bytes"].synonyms) == {"log.segment.bytes"}

    change(admin, ResourceType.TOPIC, created, max_message_bytes="1000", retention_ms=None)
    found = described(admin, resource)
    assert found["max.message.bytes"].value == "1000"
    assert found["retention.ms"].value == "604800000"
    with broker.client() as client:
        assert produce(client, created, batch(bytes(2_000))).error_code == KafkaError.MSG_SIZE_TOO_LARGE
        change(admin, ResourceType.TOPIC, created, max_message_bytes=None)
        assert produce(client, created, batch(bytes(2_000))).error_code == 0

    for values, code in (
        ({"retention_ms": "soon"}, KafkaError.INVALID_CONFIG),
        ({"no_such_setting": "1"}, KafkaError.INVALID_CONFIG),
    ):
        with pytest.raises(KafkaException) as refused:
            change(admin, ResourceType.TOPIC, created, **values)
        assert refused.value.args[0].code() == code


def test_settings_replaced_as_a_whole_with_confluent_kafka(admin: AdminClient, created: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, created, set_config={"segment.bytes": "2000000"})
    # The client itself advises against this request, which forgets every setting that it does not name.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        admin.alter_configs([resource])[resource].result(WAIT_S)
    found = described(admin, ConfigResource(ResourceType.TOPIC, created))
    assert found["segment.bytes"].value == "2000000"
    assert found["retention.ms"].is_default


def test_settings_of_the_broker_with_confluent_kafka(admin: AdminClient) -> None:
    [broker_id] = [str(node) for node in admin.list_topics(timeout=WAIT_S).brokers]
    resource = ConfigResource(ResourceType.BROKER, broker_id)
    assert described(admin, resource)["log.cleaner.backoff.ms"].value == "15000"
    change(admin, ResourceType.BROKER, broker_id, log_cleaner_backoff_ms="14000")
    found = described(admin, resource)["log.cleaner.backoff.ms"]
    assert (found.value, found.source) == ("14000", ConfigSource.DYNAMIC_BROKER_CONFIG.value)
    change(admin, ResourceType.BROKER, broker_id, log_cleaner_backoff_ms=None)
    assert described(admin, resource)["log.cleaner.backoff.ms"].value == "15000"


def test_settings_of_a_topic_with_aiokafka(broker: BrokerProcess, admin: AdminClient, created: str) -> None:
    async def alter_and_describe() -> list[Any]:
        client = AIOKafkaAdminClient(bootstrap_servers=broker.address)
        await client.start()
        try:
            settings = {"retention.ms": "7654321"}
            await client.alter_configs([AioConfigResource(AioConfigResourceType.TOPIC, created, settings)])
            answers: list[Any] = await client.describe_configs(
                [AioConfigResource(AioConfigResourceType.TOPIC, created)]
            )
            return answers
        finally:
            await client.close()

    [answer] = asyncio.run(asyncio.wait_for(alter_and_describe(), WAIT_S))
    [resource] = answer.resources
    error_code, _, _, name, entries = resource
    assert (error_code, name) == (0, created)
    assert {entry[0]: entry[1] for entry in entries}["retention.ms"] == "7654321"
    assert described(admin, ConfigResource(ResourceType.TOPIC, created))["retention.ms"].value == "7654321"


@pytest.fixture
def python_admin(broker: BrokerProcess) -> Iterator[Any]:
    with closing(KafkaAdminClient(bootstrap_servers=broker.address)) as client:
        yield client
    gc.collect()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_settings_and_directories_with_kafka_python(
    broker: BrokerProcess, python_admin: Any, created: str
) -> None:
    resource = PythonConfigResource("TOPIC", created, {"retention.ms": "7654321"})
    assert python_admin.alter_configs([resource]) == {"topic": {created: "OK"}}
    found = python_admin.describe_configs([PythonConfigResource("TOPIC", created)])
    assert found["topic"][created]["retention.ms"]["value"] == "7654321"

    [described_broker] = python_admin.describe_log_dirs([created])
    [directory] = described_broker["log_dirs"]
    assert (directory["error_code"], directory["log_dir"]) == (0, str(broker.directory))
    [of_topic] = [each for each in directory["topics"] if each["name"] == created]
    assert sorted(each["partition_index"] for each in of_topic["partitions"]) == [0, 1]
    assert python_admin.list_partition_reassignments() == {}
