"""The state of the cluster at one moment: brokers, topics, partitions, settings.

An image never changes. A change of the cluster creates the next image and publishes it; the handler of a request takes
the current one once and sees a consistent state. A new image costs a copy of the map that changed and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

from barnabas.config.listeners import Endpoint
from barnabas.coordination.metadata.features import LATEST, FinalizedFeatures, SupportedFeatures
from barnabas.coordination.metadata.scram_credentials import ScramCredential
from barnabas.model import BrokerId, LeaderEpoch
from barnabas.value import Value, replace

Uuid = bytes
K = TypeVar("K")
V = TypeVar("V")
# User, client id and address, as far as a quota has them; `<default>` means all that have none of their own.
QuotaEntity = tuple[str | None, str | None, str | None]

NO_LEADER: Final = BrokerId(-1)
ZERO_UUID: Final = bytes(16)
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})

_EMPTY: Final[Mapping[str, str]] = MappingProxyType({})
_NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})


class BrokerImage(Value, kw_only=True):
    id: BrokerId
    epoch: int
    rack: str | None = None
    endpoints: tuple[Endpoint, ...] = ()
    features: SupportedFeatures = _NOTHING
    """The features in the broker's registration. Only the controller knows them."""

    def endpoint(self, listener: str) -> Endpoint | None:
        return next((found for found in self.endpoints if found.listener_name == listener), None)


class PartitionImage(Value, kw_only=True):
    leader: BrokerId
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    partition_epoch: int = 0
    """The version of the partition's node in the store: a change for an older version is rejected."""
    adding: tuple[BrokerId, ...] = ()
    """Replicas that a reassignment adds; they are among the replicas already. Only the controller knows them."""
    removing: tuple[BrokerId, ...] = ()
    """Replicas that a reassignment takes away at its end."""
    leader_recovery_state: int = 0
    """1 after an unclean election, until the leader has said that it has recovered."""
    controller_epoch: int = 0
    """The epoch of the controller that wrote the state."""
    failed_replicas: tuple[BrokerId, ...] = ()
    """Replicas on live brokers that are offline, as in a failed log directory. The controller does not use them."""

    @property
    def is_reassigned(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def has_state(self) -> bool:
        """A partition has no state in the store as long as none of its replicas has been alive."""
        return self.partition_epoch >= 0


class TopicImage(Value, kw_only=True):
    name: str
    id: Uuid
    partitions: tuple[PartitionImage, ...]

    @property
    def size(self) -> str:
        """For people: `1 partition`, `3 partitions`."""
        count = len(self.partitions)
        return "1 partition" if count == 1 else f"{count} partitions"

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


class MetadataImage(Value, kw_only=True):
    cluster_id: str
    controller_id: BrokerId
    controller_epoch: int = 0
    brokers: Mapping[BrokerId, BrokerImage] = _NOTHING
    topics: Mapping[str, TopicImage] = _NOTHING
    topic_names: Mapping[Uuid, str] = _NOTHING
    topic_configs: Mapping[str, Mapping[str, str]] = _NOTHING
    broker_configs: Mapping[str, Mapping[str, str]] = _NOTHING
    """By broker id as text; the empty text is the default for all brokers."""
    group_configs: Mapping[str, Mapping[str, str]] = _NOTHING
    client_metrics: Mapping[str, Mapping[str, str]] = _NOTHING
    """Subscriptions to metrics of clients, by their name."""
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = _NOTHING
    scram_credentials: Mapping[str, Mapping[str, ScramCredential]] = _NOTHING
    """By user and mechanism."""
    features: FinalizedFeatures = LATEST

    @property
    def partition_count(self) -> int:
        """Over all topics; counted at each use."""
        return sum(len(topic.partitions) for topic in self.topics.values())

    def topic_id(self, name: str) -> Uuid:
        """Zeros for a topic that is not known, or has no id."""
        topic = self.topics.get(name)
        return ZERO_UUID if topic is None else topic.id

    def topic_by_id(self, topic_id: Uuid) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics.get(name)

    def topic_config(self, name: str) -> Mapping[str, str]:
        return self.topic_configs.get(name, _EMPTY)

    def broker_config(self, broker: str) -> Mapping[str, str]:
        return self.broker_configs.get(broker, _EMPTY)

    def with_topics(self, changed: Iterable[TopicImage]) -> MetadataImage:
        topics = dict(self.topics)
        names = dict(self.topic_names)
        for topic in changed:
            topics[topic.name] = topic
            if topic.id != ZERO_UUID:
                names[topic.id] = topic.name
        return replace(self, topics=topics, topic_names=names)

    def without_topics(self, gone: Iterable[str]) -> MetadataImage:
        topics = dict(self.topics)
        names = dict(self.topic_names)
        configs = dict(self.topic_configs)
        for name in gone:
            topic = topics.pop(name, None)
            configs.pop(name, None)
            if topic is not None:
                names.pop(topic.id, None)
        return replace(self, topics=topics, topic_names=names, topic_configs=configs)

    def with_topic_configs(self, changed: Mapping[str, Mapping[str, str]]) -> MetadataImage:
        return replace(self, topic_configs=_merged(self.topic_configs, changed))

    def with_broker_configs(self, changed: Mapping[str, Mapping[str, str]]) -> MetadataImage:
        return replace(self, broker_configs=_merged(self.broker_configs, changed))

    def with_group_configs(self, changed: Mapping[str, Mapping[str, str]]) -> MetadataImage:
        return replace(self, group_configs=_merged(self.group_configs, changed))

    def with_client_metrics(self, changed: Mapping[str, Mapping[str, str]]) -> MetadataImage:
        return replace(self, client_metrics=_merged(self.client_metrics, changed))

    def with_scram_credentials(self, changed: Mapping[str, Mapping[str, ScramCredential]]) -> MetadataImage:
        return replace(self, scram_credentials=_merged(self.scram_credentials, changed))

    def with_client_quotas(self, changed: Mapping[QuotaEntity, Mapping[str, float]]) -> MetadataImage:
        return replace(self, client_quotas=_merged(self.client_quotas, changed))


def _merged(
    before: Mapping[K, Mapping[str, V]], changed: Mapping[K, Mapping[str, V]]
) -> Mapping[K, Mapping[str, V]]:
    """Settings that are all gone leave nothing behind."""
    after = dict(before)
    for key, settings in changed.items():
        if settings:
            after[key] = settings
        else:
            after.pop(key, None)
    return after
