"""Kafka 3.9's data in ZooKeeper: the paths, and the bytes of each node.

    /barnabas/brokers/N                       a broker that uses an embedded store; no data; not Kafka's
    /barnabas/config_changes/config_change_   sequential: the same, of groups and of client metrics; not Kafka's
    /barnabas/migration                       while a single node's metadata is copied here: its cluster id; not Kafka's
    /admin/delete_topics/T                    a topic that is being deleted; no data
    /admin/preferred_replica_election         {"version":1,"partitions":[{"topic":T,"partition":P},…]}
    /admin/reassign_partitions                {"version":1,"partitions":[{"topic":T,"partition":P,"replicas":[…]},…]}
    /brokers/ids/N              ephemeral     BrokerRegistration; the node's czxid is the broker's epoch
    /brokers/seqid                            no data; its version numbers generated broker ids
    /brokers/topics/T                         TopicAssignment
    /brokers/topics/T/partitions/P/state      PartitionState; the node's version is the partition's epoch
    /cluster/id                               {"version":"1","id":ID}
    /config/brokers/N, /config/topics/T, …    {"version":1,"config":{name:text}}; <default> means all brokers
    /config/changes/config_change_            sequential: {"version":2,"entity_path":"topics/T"}
    /controller                 ephemeral     {"version":2,"brokerid":N,"timestamp":"ms","kraftControllerEpoch":-1}
    /controller_epoch                         a number in digits
    /feature                                  FeatureNode
    /isr_change_notification/isr_change_      sequential: {"version":1,"partitions":[{"topic":T,"partition":P},…]}
    /latest_producer_id_block                 ProducerIdBlock
    /log_dir_event_notification/log_dir_event_  sequential: {"version":1,"broker":N,"event":1}

Keys are in the order in which Kafka writes them. Bytes that another program wrote badly raise MalformedNode.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.config.listeners import Endpoint, SecurityProtocol, parse_endpoints
from barnabas.coordination.metadata.features import LevelRange, SupportedFeatures
from barnabas.coordination.metadata.node_reader import Json, MalformedNode, NodeReader
from barnabas.coordination.store.contract import BadArguments, validate_path
from barnabas.errors import InvalidConfig
from barnabas.model import BrokerId, LeaderEpoch, ProducerId, TopicPartition
from barnabas.value import Value, field

CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CLUSTER_ID: Final = "/cluster/id"
BROKER_IDS: Final = "/brokers/ids"
BROKER_SEQUENCE_ID: Final = "/brokers/seqid"
TOPICS: Final = "/brokers/topics"
KNOWN_BROKERS: Final = "/barnabas/brokers"
MIGRATION: Final = "/barnabas/migration"
# Brokers of Kafka 3.9 fail at notices of groups and of client metrics, and follow none after them.
OWN_CONFIG_CHANGES: Final = "/barnabas/config_changes"
OWN_CONFIG_CHANGE_PREFIX: Final = "/barnabas/config_changes/config_change_"
CONFIG_CHANGES: Final = "/config/changes"
CONFIG_CHANGE_PREFIX: Final = "/config/changes/config_change_"
ISR_CHANGES: Final = "/isr_change_notification"
ISR_CHANGE_PREFIX: Final = "/isr_change_notification/isr_change_"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX: Final = "/log_dir_event_notification/log_dir_event_"
DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION: Final = "/admin/preferred_replica_election"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
FEATURE: Final = "/feature"

CONFIG_TYPES: Final = ("topics", "clients", "users", "brokers", "ips", "groups", "client-metrics")
DEFAULT_ENTITY: Final = "<default>"
# Nodes that a broker makes when it starts, as far as they are missing.
PERSISTENT_PATHS: Final = (
    "/consumers",
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    OWN_CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE_ID,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    *(f"/config/{config_type}" for config_type in CONFIG_TYPES),
)

NO_KRAFT_EPOCH: Final = -1
NO_JMX_PORT: Final = -1
LEADER_RECOVERED: Final = 0
LEADER_RECOVERING: Final = 1
LOG_DIR_FAILURE: Final = 1
PRODUCER_ID_BLOCK_SIZE: Final = 1000


class BrokerRegistration(Value, kw_only=True):
    """A broker that is alive. Versions 1 to 5 are read, 5 is written."""

    broker_id: BrokerId
    endpoints: tuple[Endpoint, ...]
    timestamp_ms: int
    rack: str | None = None
    jmx_port: int = NO_JMX_PORT
    features: SupportedFeatures = field(default_factory=dict)


class ReplicaAssignment(Value, kw_only=True):
    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()


class TopicAssignment(Value, kw_only=True):
    """Where a topic's partitions are. Topics of releases before 2.8 have no id."""

    topic_id: bytes | None
    partitions: Mapping[int, ReplicaAssignment]


class PartitionState(Value, kw_only=True):
    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    controller_epoch: int
    leader_recovery_state: int = LEADER_RECOVERED


class ProducerIdBlock(Value, kw_only=True):
    """Producer ids that one broker may assign; both ends are inclusive."""

    broker_id: BrokerId
    first: ProducerId
    last: ProducerId


class FeatureNode(Value, kw_only=True):
    """The finalized features with their levels. Version 1 is for levels of the protocol below 3.3."""

    enabled: bool
    features: Mapping[str, int]
    version: int = 2


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def known_broker_path(broker_id: int) -> str:
    return f"{KNOWN_BROKERS}/{broker_id}"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(partition: TopicPartition) -> str:
    return f"{TOPICS}/{partition.topic}/partitions/{partition.partition}"


def partition_state_path(partition: TopicPartition) -> str:
    return f"{partition_path(partition)}/state"


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


def config_path(config_type: str, entity: str) -> str:
    """The entity is a topic, a broker id, or a user, client or address that `sanitize` has made safe."""
    assert config_type in CONFIG_TYPES, config_type
    return f"/config/{config_type}/{entity}"


def sanitize(name: str) -> str:
    """A user's or client's name as a node's name. The default entity keeps its angle brackets."""
    if name == DEFAULT_ENTITY:
        return name
    from urllib.parse import quote

    return quote(name, safe="-_.").replace("~", "%7E")


def desanitize(name: str) -> str:
    from urllib.parse import unquote_plus

    return unquote_plus(name)


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    return _encode(
        {
            "version": 2,
            "brokerid": broker_id,
            "timestamp": str(timestamp_ms),
            "kraftControllerEpoch": NO_KRAFT_EPOCH,
        }
    )


def decode_controller(data: bytes) -> BrokerId:
    return BrokerId(NodeReader(CONTROLLER, data).integer("brokerid"))


def encode_controller_epoch(epoch: int) -> bytes:
    return b"%d" % epoch


def decode_controller_epoch(data: bytes) -> int:
    if not data.isdigit() or len(data) > 10:
        raise MalformedNode(
            f"{CONTROLLER_EPOCH}: {data[:40]!r} is no number. Write the highest controller_epoch that the state of a"
            " partition has, or a higher number"
        )
    return int(data)


def encode_cluster_id(cluster_id: str) -> bytes:
    return _encode({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    return NodeReader(CLUSTER_ID, data).text("id")


def encode_broker(registration: BrokerRegistration) -> bytes:
    plaintext = (
        each for each in registration.endpoints if each.security_protocol is SecurityProtocol.PLAINTEXT
    )
    # Clients from before 0.9 know one plain listener, or none.
    oldest = next(plaintext, None)
    node: dict[str, Json] = {
        "features": {
            name: {"min_version": each.min_level, "max_version": each.max_level}
            for name, each in registration.features.items()
        },
        "listener_security_protocol_map": {
            each.listener_name: each.security_protocol.value for each in registration.endpoints
        },
        "endpoints": [str(each) for each in registration.endpoints],
        **({} if registration.rack is None else {"rack": registration.rack}),
        "jmx_port": registration.jmx_port,
        "port": -1 if oldest is None else oldest.port,
        "host": None if oldest is None else oldest.host,
        "version": 5,
        "timestamp": str(registration.timestamp_ms),
    }
    return _encode(node)


def decode_broker(broker_id: BrokerId, data: bytes) -> BrokerRegistration:
    node = NodeReader(broker_path(broker_id), data)
    version = node.integer("version")
    if version < 1:
        raise node.malformed(f"version {version} is not known")
    features = _decode_supported_features(node)
    return BrokerRegistration(
        broker_id=broker_id,
        endpoints=_decode_endpoints(node, version),
        timestamp_ms=node.integer_text("timestamp"),
        rack=None if node.optional("rack") is None else node.text("rack"),
        jmx_port=node.integer("jmx_port"),
        features=features,
    )


def encode_topic(assignment: TopicAssignment) -> bytes:
    partitions = assignment.partitions
    topic_id = assignment.topic_id
    return _encode(
        {
            "partitions": {str(index): list(each.replicas) for index, each in partitions.items()},
            **({} if topic_id is None else {"topic_id": encode_uuid(topic_id)}),
            "adding_replicas": {
                str(index): list(each.adding) for index, each in partitions.items() if each.adding
            },
            "removing_replicas": {
                str(index): list(each.removing) for index, each in partitions.items() if each.removing
            },
            "version": 3,
        }
    )


def decode_topic(topic: str, data: bytes) -> TopicAssignment:
    node = NodeReader(topic_path(topic), data)
    adding, removing = node.replicas("adding_replicas"), node.replicas("removing_replicas")
    topic_id = None if node.optional("topic_id") is None else node.text("topic_id")
    try:
        uuid = None if topic_id is None else decode_uuid(topic_id)
    except ValueError as error:
        raise node.malformed(f"topic_id {topic_id!r} is no id") from error
    return TopicAssignment(
        topic_id=uuid,
        partitions={
            index: ReplicaAssignment(
                replicas=replicas, adding=adding.get(index, ()), removing=removing.get(index, ())
            )
            for index, replicas in sorted(node.replicas("partitions").items())
        },
    )


def encode_partition_state(state: PartitionState) -> bytes:
    recovery = state.leader_recovery_state
    return _encode(
        {
            "controller_epoch": state.controller_epoch,
            "leader": state.leader,
            "version": 1,
            **({} if recovery == LEADER_RECOVERED else {"leader_recovery_state": recovery}),
            "leader_epoch": state.leader_epoch,
            "isr": list(state.isr),
        }
    )


def decode_partition_state(partition: TopicPartition, data: bytes) -> PartitionState:
    node = NodeReader(partition_state_path(partition), data)
    recovery = LEADER_RECOVERED
    if node.optional("leader_recovery_state") is not None:
        recovery = node.integer("leader_recovery_state")
        if recovery not in (LEADER_RECOVERED, LEADER_RECOVERING):
            raise node.malformed(f"leader_recovery_state {recovery} is not known")
    return PartitionState(
        leader=BrokerId(node.integer("leader")),
        leader_epoch=LeaderEpoch(node.integer("leader_epoch")),
        isr=node.broker_ids("isr", node.required("isr")),
        controller_epoch=node.integer("controller_epoch"),
        leader_recovery_state=recovery,
    )


def encode_config(properties: Mapping[str, str]) -> bytes:
    return _encode({"version": 1, "config": dict(properties)})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """A node without data, as that of a topic without settings, has none."""
    if not data:
        return {}
    node = NodeReader(path, data)
    config = node.optional("config") or {}
    if not isinstance(config, dict) or not all(isinstance(each, str) for each in config.values()):
        raise node.malformed("config is no object of texts")
    return config


def encode_config_change(config_type: str, entity: str) -> bytes:
    return _encode({"version": 2, "entity_path": f"{config_type}/{entity}"})


def decode_config_change(path: str, data: bytes) -> tuple[str, str]:
    """The type and the entity, which for a user's client is `user/clients/client`."""
    node = NodeReader(path, data)
    config_type, _, entity = node.text("entity_path").partition("/")
    names = entity.split("/")
    is_client_of_user = config_type == "users" and len(names) == 3 and names[1] == "clients"
    if config_type not in CONFIG_TYPES or not (len(names) == 1 or is_client_of_user):
        raise node.malformed("entity_path names nothing that has settings")
    try:
        validate_path(f"/config/{config_type}/{entity}")
    except BadArguments as error:
        raise node.malformed(f"entity_path: {error}") from error
    return config_type, entity


def encode_isr_change(partitions: Iterable[TopicPartition]) -> bytes:
    return _encode({"version": 1, "partitions": [_partition(each) for each in partitions]})


def decode_isr_change(path: str, data: bytes) -> list[TopicPartition]:
    node = NodeReader(path, data)
    return [partition for partition, _ in node.partitions()]


def encode_log_dir_event(broker_id: int) -> bytes:
    return _encode({"version": 1, "broker": broker_id, "event": LOG_DIR_FAILURE})


def decode_log_dir_event(path: str, data: bytes) -> BrokerId:
    return BrokerId(NodeReader(path, data).integer("broker"))


def encode_preferred_election(partitions: Iterable[TopicPartition]) -> bytes:
    return encode_isr_change(partitions)


def decode_preferred_election(data: bytes) -> list[TopicPartition]:
    return decode_isr_change(PREFERRED_REPLICA_ELECTION, data)


def encode_reassignment(replicas: Mapping[TopicPartition, Iterable[int]]) -> bytes:
    partitions = [{**_partition(partition), "replicas": list(ids)} for partition, ids in replicas.items()]
    return _encode({"version": 1, "partitions": partitions})


def decode_reassignment(data: bytes) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    node = NodeReader(REASSIGN_PARTITIONS, data)
    return {
        partition: node.broker_ids("replicas", item.get("replicas")) for partition, item in node.partitions()
    }


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    return _encode(
        {
            "version": 1,
            "broker": block.broker_id,
            "block_start": str(block.first),
            "block_end": str(block.last),
        }
    )


def decode_producer_id_block(data: bytes) -> ProducerIdBlock:
    node = NodeReader(PRODUCER_ID_BLOCK, data)
    return ProducerIdBlock(
        broker_id=BrokerId(node.integer("broker")),
        first=ProducerId(node.integer_text("block_start")),
        last=ProducerId(node.integer_text("block_end")),
    )


def encode_features(node: FeatureNode) -> bytes:
    features = {
        name: {"max_version_level": level, **({"min_version_level": level} if node.version == 1 else {})}
        for name, level in node.features.items()
    }
    return _encode({"features": features, "version": node.version, "status": int(node.enabled)})


def decode_features(data: bytes) -> FeatureNode:
    node = NodeReader(FEATURE, data)
    status, version, features = node.integer("status"), node.integer("version"), node.required("features")
    if status not in (0, 1) or version not in (1, 2) or not isinstance(features, dict):
        raise node.malformed("status, version or features are not what Kafka writes")
    levels = {}
    for name, each in features.items():
        level = each.get("max_version_level") if isinstance(each, dict) else None
        if type(level) is not int or level < 1:
            raise node.malformed(f"feature {name} has no max_version_level")
        levels[name] = level
    return FeatureNode(enabled=status == 1, features=levels, version=version)


def encode_uuid(uuid: bytes) -> str:
    """Kafka's spelling of an id: 22 characters of URL-safe base64."""
    assert len(uuid) == 16
    return base64.urlsafe_b64encode(uuid)[:22].decode()


def decode_uuid(text: str) -> bytes:
    """Raises ValueError."""
    if len(text) != 22:
        raise ValueError(f"an id has 22 characters, not {len(text)}")
    try:
        return base64.b64decode(text + "==", altchars="-_", validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error


def _encode(node: Mapping[str, Json]) -> bytes:
    return json.dumps(node, separators=(",", ":"), ensure_ascii=False).encode()


def _partition(partition: TopicPartition) -> dict[str, Json]:
    return {"topic": partition.topic, "partition": partition.partition}


def _decode_supported_features(node: NodeReader) -> dict[str, LevelRange]:
    features = node.optional("features") or {}
    if not isinstance(features, dict):
        raise node.malformed("features is no object")
    found = {}
    for name, each in features.items():
        least, most = (
            (each.get("min_version"), each.get("max_version")) if isinstance(each, dict) else (None, None)
        )
        if type(least) is not int or type(most) is not int:
            raise node.malformed(f"feature {name} has no min_version and max_version")
        found[name] = LevelRange(least, most)
    return found


def _decode_endpoints(node: NodeReader, version: int) -> tuple[Endpoint, ...]:
    if version == 1:
        protocol = SecurityProtocol.PLAINTEXT
        host, port = node.text("host"), node.integer("port")
        return (Endpoint(listener_name=protocol.value, host=host, port=port, security_protocol=protocol),)
    protocols: dict[str, SecurityProtocol] = {each.value: each for each in SecurityProtocol}
    try:
        if (named := node.optional("listener_security_protocol_map")) is not None:
            protocols = {name: SecurityProtocol(protocol) for name, protocol in named.items()}
        return parse_endpoints("endpoints", node.required("endpoints"), protocols)
    except (InvalidConfig, ValueError, TypeError, AttributeError) as error:
        raise node.malformed(f"endpoints: {error}") from error
