"""Arguments and results of the admin client: plain values, nothing that talks to a broker.

Node ids, epochs and producer ids that Kafka writes as -1 are None here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple, TypeAlias

from barnabas.client.argument_hints import hinting
from barnabas.errors import KafkaError
from barnabas.model import TopicPartition
from barnabas.peers.node import Node

ConfigValue: TypeAlias = str | int | float | bool | Sequence[str]
"""The value of a setting as people give it; brokers get it as text."""

BROKER_DEFAULT: Final = -1
"""A number of partitions or replicas that the broker chooses."""


class ResourceType(IntEnum):
    """Resources that have settings."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """Something with settings; a broker is named by its id, and all brokers together by an empty name."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.type.name.lower()} {self.name or '(all)'}"


class ConfigSource(IntEnum):
    """Where a value comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ConfigType(IntEnum):
    """The type of a setting."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigOperation(IntEnum):
    """What a change does with the value of a setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ElectionType(IntEnum):
    """Which replica an election chooses."""

    PREFERRED = 0
    UNCLEAN = 1


class OffsetSpec(IntEnum):
    """Offsets that have a name; any other is asked for by a timestamp."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


class IsolationLevel(IntEnum):
    """Whether records of open transactions count."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class GroupType(StrEnum):
    """The protocol of a group."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """The brokers. Fenced brokers, which serve no clients, are included on request."""

    cluster_id: str | None
    controller_id: int | None
    nodes: tuple[Node, ...]
    fenced: frozenset[int] = frozenset()


@hinting
@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. With an assignment (partition to replicas) the two numbers follow from it."""

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    _: KW_ONLY
    assignment: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, ConfigValue | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """Numbers and settings are None if a broker before 2.4 does not return them, or may not."""

    name: str
    topic_id: str | None
    partitions: int | None
    replication_factor: int | None
    configs: Mapping[str, ConfigEntry] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicListing:
    name: str
    topic_id: str | None
    is_internal: bool
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    partition: int
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    name: str
    topic_id: str | None
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedOffset:
    """`offset` is None if there is no record at or behind the timestamp that was asked for."""

    offset: int | None
    timestamp_ms: int | None
    leader_epoch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSynonym:
    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """A setting; the value of a sensitive one is None."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    type: ConfigType = ConfigType.UNKNOWN
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """An operation on a setting, other than setting it (a plain text) or deleting it (None)."""

    operation: ConfigOperation
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaOnDisk:
    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDir:
    """A directory of a broker. Its sizes are None if the broker does not return them (before 3.3)."""

    path: str
    error: KafkaError | None
    total_bytes: int | None
    usable_bytes: int | None
    is_cordoned: bool
    replicas: Mapping[TopicPartition, ReplicaOnDisk]


class TopicPartitionReplica(NamedTuple):
    topic: str
    partition: int
    broker_id: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} on broker {self.broker_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """State and type are those of the broker: None from a broker before 2.6 and 3.8."""

    group_id: str
    protocol_type: str
    state: str | None
    type: GroupType | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """Epoch, target and subscription are known of members of a consumer group alone."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    rack_id: str | None = None
    member_epoch: int | None = None
    target_assignment: tuple[TopicPartition, ...] | None = None
    subscribed_topics: tuple[str, ...] | None = None
    subscribed_pattern: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    group_id: str
    type: GroupType
    state: str
    protocol_type: str
    assignor: str
    coordinator: int
    members: tuple[GroupMember, ...]
    group_epoch: int | None = None
    assignment_epoch: int | None = None


class MemberToRemove(NamedTuple):
    """A member of a classic group: a static one by its instance id, any by its member id."""

    member_id: str = ""
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    offset: int
    leader_epoch: int | None = None
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    """A producer that has written to a partition."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int | None
    transaction_start_offset: int | None


class FencedProducer(NamedTuple):
    """The current id and epoch of a transactional id."""

    producer_id: int
    producer_epoch: int


QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""(type, name) pairs by type, such as (("client-id", "loader"), ("user", "ann")); a name of None is the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """The level that the cluster has agreed on, None if there is none, and those that the broker knows."""

    name: str
    level: int | None
    min_version: int
    max_version: int
    # Counts changes of the finalized features; None if the cluster has none.
    epoch: int | None = None


class UpgradeType(IntEnum):
    """Whether the level of a feature may be lowered."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class ScramMechanism(IntEnum):
    """Codes of the protocol."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


class AclResourceType(IntEnum):
    """Resources that ACLs are for; codes of the protocol."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPatternType(IntEnum):
    """Codes of the protocol. MATCH is for filters: all patterns that apply to a name."""

    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """Codes of the protocol."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(IntEnum):
    """Codes of the protocol."""

    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """What a principal, such as `User:ann`, may do on a resource, or may not do, from a host or from all (`*`).

    The cluster is the resource of type CLUSTER and name `kafka-cluster`. The literal name `*` means all resources of a
    type.
    """

    principal: str
    operation: AclOperation
    resource_type: AclResourceType
    resource: str
    pattern_type: AclPatternType = AclPatternType.LITERAL
    host: str = "*"
    permission: AclPermission = AclPermission.ALLOW


class AclFilter(NamedTuple):
    """Selects ACLs; None means any."""

    principal: str | None = None
    operation: AclOperation | None = None
    resource_type: AclResourceType | None = None
    resource: str | None = None
    pattern_type: AclPatternType | None = None
    host: str | None = None
    permission: AclPermission | None = None
