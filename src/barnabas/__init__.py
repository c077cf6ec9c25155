"""Barnabas: a Kafka in Python.

    with barnabas.Producer(bootstrap_servers="localhost:9092") as producer:
        producer.send("orders", b"value", key=b"key").result()

`Producer`, `Consumer` and `Admin` are the clients; `barnabas.aio` has them for asyncio, `barnabas.errors` has what they
raise, `barnabas.testing` has brokers for tests, and `barnabas.spark` has sources and sinks for Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from barnabas.client.admin.admin import Admin
    from barnabas.client.admin.results import (
        BROKER_DEFAULT,
        Acl,
        AclFilter,
        AclOperation,
        AclPatternType,
        AclPermission,
        AclResourceType,
        ClusterDescription,
        CommittedOffset,
        ConfigChange,
        ConfigEntry,
        ConfigOperation,
        ConfigResource,
        ConfigSource,
        ConfigSynonym,
        ConfigType,
        CreatedTopic,
        ElectionType,
        Feature,
        FencedProducer,
        GroupDescription,
        GroupListing,
        GroupMember,
        GroupType,
        IsolationLevel,
        ListedOffset,
        LogDir,
        MemberToRemove,
        NewTopic,
        OffsetSpec,
        PartitionDescription,
        ProducerState,
        Reassignment,
        ReplicaOnDisk,
        ResourceType,
        ScramMechanism,
        TopicDescription,
        TopicListing,
        TopicPartitionReplica,
        TransactionDescription,
        TransactionListing,
        UpgradeType,
    )
    from barnabas.client.admin.topics import HIGH_WATERMARK
    from barnabas.client.connections.cluster import PartitionInfo, TopicInfo
    from barnabas.client.consumer.consumer import Consumer
    from barnabas.client.consumer.front import ConsumerInterceptor, RebalanceListener
    from barnabas.client.consumer.intake import RawBatch
    from barnabas.client.consumer.record import ConsumerRecord
    from barnabas.client.producer.futures import SendFuture, SendManyFuture
    from barnabas.client.producer.partitioners import RoundRobin
    from barnabas.client.producer.producer import Producer, Transaction
    from barnabas.client.producer.records import OutgoingRecord, RecordMetadata, SharedTransaction
    from barnabas.client.schemas.avro import AvroDeserializer, AvroSerializer
    from barnabas.client.schemas.decoding import DecodedValue, SchemaDecoder
    from barnabas.client.schemas.json_schema import JsonSchemaDeserializer, JsonSchemaSerializer
    from barnabas.client.schemas.protobuf import ProtobufDeserializer, ProtobufSerializer
    from barnabas.client.schemas.registry import RegisteredSchema, Schema, SchemaReference, SchemaRegistry
    from barnabas.client.subscription import ConsumerGroupMetadata, OffsetAndMetadata, OffsetAndTimestamp
    from barnabas.model import TopicPartition
    from barnabas.peers.node import Node

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "Acl",
    "AclFilter",
    "AclOperation",
    "AclPatternType",
    "AclPermission",
    "AclResourceType",
    "Admin",
    "AvroDeserializer",
    "AvroSerializer",
    "BROKER_DEFAULT",
    "ClusterDescription",
    "CommittedOffset",
    "ConfigChange",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigResource",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerInterceptor",
    "ConsumerRecord",
    "CreatedTopic",
    "DecodedValue",
    "ElectionType",
    "Feature",
    "FencedProducer",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "GroupType",
    "HIGH_WATERMARK",
    "IsolationLevel",
    "JsonSchemaDeserializer",
    "JsonSchemaSerializer",
    "ListedOffset",
    "LogDir",
    "MemberToRemove",
    "NewTopic",
    "Node",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetSpec",
    "OutgoingRecord",
    "PartitionDescription",
    "PartitionInfo",
    "Producer",
    "ProducerState",
    "ProtobufDeserializer",
    "ProtobufSerializer",
    "RawBatch",
    "Reassignment",
    "RebalanceListener",
    "RecordMetadata",
    "RegisteredSchema",
    "ReplicaOnDisk",
    "ResourceType",
    "RoundRobin",
    "Schema",
    "SchemaDecoder",
    "SchemaReference",
    "SchemaRegistry",
    "ScramMechanism",
    "SendFuture",
    "SendManyFuture",
    "SharedTransaction",
    "TopicDescription",
    "TopicInfo",
    "TopicListing",
    "TopicPartition",
    "TopicPartitionReplica",
    "Transaction",
    "TransactionDescription",
    "TransactionListing",
    "UpgradeType",
]

# Public names by the module that has them, which is loaded at first use: a broker needs none of the clients.
_LAZY: Final[dict[str, tuple[str, ...]]] = {
    "barnabas.client.admin.admin": ("Admin",),
    "barnabas.client.admin.results": (
        "Acl",
        "AclFilter",
        "AclOperation",
        "AclPatternType",
        "AclPermission",
        "AclResourceType",
        "BROKER_DEFAULT",
        "ClusterDescription",
        "CommittedOffset",
        "ConfigChange",
        "ConfigEntry",
        "ConfigOperation",
        "ConfigResource",
        "ConfigSource",
        "ConfigSynonym",
        "ConfigType",
        "CreatedTopic",
        "ElectionType",
        "Feature",
        "FencedProducer",
        "GroupDescription",
        "GroupListing",
        "GroupMember",
        "GroupType",
        "IsolationLevel",
        "ListedOffset",
        "LogDir",
        "MemberToRemove",
        "NewTopic",
        "OffsetSpec",
        "PartitionDescription",
        "ProducerState",
        "Reassignment",
        "ReplicaOnDisk",
        "ResourceType",
        "ScramMechanism",
        "TopicDescription",
        "TopicListing",
        "TopicPartitionReplica",
        "TransactionDescription",
        "TransactionListing",
        "UpgradeType",
    ),
    "barnabas.client.admin.topics": ("HIGH_WATERMARK",),
    "barnabas.client.connections.cluster": (
        "PartitionInfo",
        "TopicInfo",
    ),
    "barnabas.client.consumer.consumer": ("Consumer",),
    "barnabas.client.consumer.front": (
        "ConsumerInterceptor",
        "RebalanceListener",
    ),
    "barnabas.client.consumer.intake": ("RawBatch",),
    "barnabas.client.consumer.record": ("ConsumerRecord",),
    "barnabas.client.producer.futures": (
        "SendFuture",
        "SendManyFuture",
    ),
    "barnabas.client.producer.partitioners": ("RoundRobin",),
    "barnabas.client.producer.producer": (
        "Producer",
        "Transaction",
    ),
    "barnabas.client.producer.records": (
        "OutgoingRecord",
        "RecordMetadata",
        "SharedTransaction",
    ),
    "barnabas.client.schemas.avro": (
        "AvroDeserializer",
        "AvroSerializer",
    ),
    "barnabas.client.schemas.decoding": (
        "DecodedValue",
        "SchemaDecoder",
    ),
    "barnabas.client.schemas.json_schema": (
        "JsonSchemaDeserializer",
        "JsonSchemaSerializer",
    ),
    "barnabas.client.schemas.protobuf": (
        "ProtobufDeserializer",
        "ProtobufSerializer",
    ),
    "barnabas.client.schemas.registry": (
        "RegisteredSchema",
        "Schema",
        "SchemaReference",
        "SchemaRegistry",
    ),
    "barnabas.client.subscription": (
        "ConsumerGroupMetadata",
        "OffsetAndMetadata",
        "OffsetAndTimestamp",
    ),
    "barnabas.model": ("TopicPartition",),
    "barnabas.peers.node": ("Node",),
}


def __getattr__(name: str) -> object:
    # A broker that starts does without this module.
    from importlib import import_module

    for module, names in _LAZY.items():
        if name in names:
            found: object = getattr(import_module(module), name)
            # The next use finds it without this function.
            globals()[name] = found
            return found
    raise AttributeError(f"module 'barnabas' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
