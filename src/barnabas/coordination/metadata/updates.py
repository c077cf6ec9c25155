"""The effect of the controller's requests on the metadata of a broker.

UpdateMetadata gives the next image: live brokers replace the earlier ones, partitions are merged, and a topic whose
partitions have the leader -2 is being deleted. Settings are in the store: a broker reads all of them when it starts,
and those of a topic before it opens the first log of the topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.config.listeners import Endpoint, SecurityProtocol
from barnabas.coordination.metadata.cache import MetadataCache
from barnabas.coordination.metadata.image import (
    NO_LEADER,
    BrokerImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from barnabas.coordination.metadata.settings_reading import topic_configs
from barnabas.coordination.store.contract import Store
from barnabas.model import BrokerId, LeaderEpoch
from barnabas.protocol.messages.leader_and_isr_request import LeaderAndIsrRequest
from barnabas.protocol.messages.update_metadata_request import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from barnabas.value import replace

LEADER_DURING_DELETE: Final = -2
SECURITY_PROTOCOL_CODES: Final = {
    SecurityProtocol.PLAINTEXT: 0,
    SecurityProtocol.SSL: 1,
    SecurityProtocol.SASL_PLAINTEXT: 2,
    SecurityProtocol.SASL_SSL: 3,
}
_SECURITY_PROTOCOLS: Final = {code: protocol for protocol, code in SECURITY_PROTOCOL_CODES.items()}
# The request has the epoch of the broker that it is for, and no other.
_UNKNOWN_BROKER_EPOCH: Final = -1
_UNKNOWN_PARTITION: Final = PartitionImage(
    leader=NO_LEADER, leader_epoch=LeaderEpoch(-1), replicas=(), isr=()
)


class MetadataUpdates:
    """Keeps the metadata cache of one broker up to date. `known` are the topics whose settings have been read."""

    def __init__(
        self, store: Store, cache: MetadataCache, broker_id: BrokerId, known: Iterable[str] = ()
    ) -> None:
        self._store = store
        self._cache = cache
        self._broker_id = broker_id
        self._known = set(known)

    def knows(self, topic: str) -> bool:
        """Whether this is a topic of the cluster, with its settings in the cache. May be called in any thread."""
        return topic in self._known

    async def learn_topics(self, request: LeaderAndIsrRequest) -> None:
        """Reads the settings of topics that this broker gets its first roles in. Raises StoreError."""
        unknown = [each.topic_name for each in request.topic_states if each.topic_name not in self._known]
        if not unknown:
            return
        configs = await topic_configs(self._store, unknown)
        image = self._cache.image
        changed = {name: config for name, config in configs.items() if config != image.topic_config(name)}
        if changed:
            self._cache.publish(image.with_topic_configs(changed))
        self._known.update(unknown)

    def update(self, request: UpdateMetadataRequest) -> None:
        before = self._cache.image
        after = updated(before, request, self._broker_id)
        self._known.difference_update(before.topics.keys() - after.topics.keys())
        self._cache.publish(after)


def updated(image: MetadataImage, request: UpdateMetadataRequest, broker_id: BrokerId) -> MetadataImage:
    """The image of the broker that received the request."""
    changed, gone = [], []
    for state in request.topic_states:
        before = image.topics.get(state.topic_name)
        if before is not None and before.id != state.topic_id:
            gone.append(state.topic_name)
            before = None
        topic = _topic(before, state)
        if topic is not None:
            changed.append(topic)
        elif before is not None:
            gone.append(state.topic_name)
    if gone:
        image = image.without_topics(gone)
    if changed:
        image = image.with_topics(changed)
    return replace(
        image,
        controller_id=BrokerId(request.controller_id),
        controller_epoch=request.controller_epoch,
        brokers=_brokers(image, request, broker_id),
    )


def _brokers(
    image: MetadataImage, request: UpdateMetadataRequest, broker_id: BrokerId
) -> Mapping[BrokerId, BrokerImage]:
    brokers: dict[BrokerId, BrokerImage] = {}
    for each in request.live_brokers:
        epoch = request.broker_epoch if each.id == broker_id else _UNKNOWN_BROKER_EPOCH
        brokers[BrokerId(each.id)] = _broker(each, epoch)
    # Most requests are about topics, and code that compares images should see that.
    return image.brokers if brokers == image.brokers else brokers


def _broker(broker: UpdateMetadataBroker, epoch: int) -> BrokerImage:
    return BrokerImage(
        id=BrokerId(broker.id),
        epoch=epoch,
        rack=broker.rack,
        endpoints=tuple(
            Endpoint(
                listener_name=each.listener,
                host=each.host,
                port=each.port,
                security_protocol=_SECURITY_PROTOCOLS[each.security_protocol],
            )
            for each in broker.endpoints
        ),
    )


def _topic(before: TopicImage | None, state: UpdateMetadataTopicState) -> TopicImage | None:
    """None for a topic of which nothing is left."""
    partitions = [] if before is None else list(before.partitions)
    deleted = 0
    for each in state.partition_states:
        if each.leader == LEADER_DURING_DELETE:
            deleted += 1
            continue
        index = each.partition_index
        if index >= len(partitions):
            partitions += [_UNKNOWN_PARTITION] * (index + 1 - len(partitions))
        partitions[index] = _partition(each)
    if deleted or not partitions:
        # A topic is deleted as a whole.
        return None
    return TopicImage(name=state.topic_name, id=state.topic_id, partitions=tuple(partitions))


def _partition(state: UpdateMetadataPartitionState) -> PartitionImage:
    return PartitionImage(
        leader=BrokerId(state.leader),
        leader_epoch=LeaderEpoch(state.leader_epoch),
        replicas=tuple(map(BrokerId, state.replicas)),
        isr=tuple(map(BrokerId, state.isr)),
        partition_epoch=state.zk_version,
        controller_epoch=state.controller_epoch,
    )
