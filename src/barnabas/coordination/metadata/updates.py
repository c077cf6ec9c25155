"""The effect of the controller's requests on the metadata of a broker.

UpdateMetadata gives the next image: live brokers replace the earlier ones, partitions are merged, and a topic whose
partitions have the leader -2 is being deleted. Settings are in the store: a broker reads all of them when it starts,
those of a topic before it opens the first log of the topic, and those of a topic of other brokers when a client asks.

A request may arrive late, after others that the controller has sent later: if it gets no answer because the network
loses packets, the controller closes the connection and opens another one, and the system of the controller still
delivers the request when the network works again. Such a request has partitions with older epochs than are known.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping
from typing import Final

from barnabas.config.listeners import Endpoint, SecurityProtocol
from barnabas.coordination.metadata.cache import MetadataCache
from barnabas.coordination.metadata.image import (
    NO_LEADER,
    BrokerImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
    Uuid,
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

log = logging.getLogger(__name__)

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
_NO_TOPIC: Final = b""
_UNKNOWN_PARTITION: Final = PartitionImage(
    leader=NO_LEADER, leader_epoch=LeaderEpoch(-1), replicas=(), isr=()
)


class MetadataUpdates:
    """Keeps the metadata cache of one broker up to date.

    `known` are the topics whose settings were read at the start. In a store that is shared with other brokers, such a
    topic may have been deleted since, and created again with other settings, until the controller names its id.
    """

    def __init__(
        self,
        store: Store,
        cache: MetadataCache,
        broker_id: BrokerId,
        known: Iterable[str] = (),
        *,
        is_shared: bool = True,
    ) -> None:
        self._is_shared = is_shared
        self._store = store
        self._cache = cache
        self._broker_id = broker_id
        # The topics whose settings are in the cache, each with its id if that is known.
        self._known: dict[str, Uuid | None] = dict.fromkeys(known)

    def knows(self, topic: str) -> bool:
        """Whether this is a topic of the cluster, with its settings in the cache. May be called in any thread."""
        return topic in self._known

    async def learn_topics(self, request: LeaderAndIsrRequest) -> None:
        """Reads the settings of topics that this broker gets its first roles in. Raises StoreError."""
        unknown = {
            each.topic_name: each.topic_id
            for each in request.topic_states
            if not self._knows(each.topic_name, each.topic_id)
        }
        if unknown:
            self._publish(await topic_configs(self._store, [*unknown]))
            self._known.update(unknown)

    def _knows(self, topic: str, topic_id: Uuid) -> bool:
        known = self._known.get(topic, _NO_TOPIC)
        return known == topic_id or (known is None and not self._is_shared)

    async def learn_settings(self, topics: Iterable[str]) -> None:
        """Reads the settings of topics that only other brokers have. Raises StoreError."""
        before = self._cache.image.topics
        unknown = [name for name in topics if name in before and not self._knows(name, before[name].id)]
        if not unknown:
            return
        configs = await topic_configs(self._store, unknown)
        after = self._cache.image.topics
        # A topic that was deleted meanwhile is not known, also if there is another one of its name.
        same = [name for name in unknown if name in after and after[name].id == before[name].id]
        self._publish({name: configs[name] for name in same})
        self._known.update((name, before[name].id) for name in same)

    def _publish(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        image = self._cache.image
        changed = {name: config for name, config in configs.items() if config != image.topic_config(name)}
        if changed:
            self._cache.publish(image.with_topic_configs(changed))

    def update(self, request: UpdateMetadataRequest) -> None:
        before = self._cache.image
        after = updated(before, request, self._broker_id)
        for name in before.topics.keys() - after.topics.keys():
            self._known.pop(name, None)
        # Roles in a topic that was created again may have come before its metadata: its settings stay.
        created_again = {
            name: before.topic_config(name)
            for name in {each.topic_name for each in request.topic_states}
            if name in after.topics
            and self._known.get(name) == after.topics[name].id
            and before.topic_config(name) != after.topic_config(name)
        }
        self._cache.publish(after.with_topic_configs(created_again) if created_again else after)


def updated(image: MetadataImage, request: UpdateMetadataRequest, broker_id: BrokerId) -> MetadataImage:
    """The image of the broker that received the request."""
    changed, gone = [], []
    is_late = False
    live = {each.id for each in request.live_brokers}
    for state in request.topic_states:
        before = image.topics.get(state.topic_name)
        # A topic without an id gets one when the protocol level of a cluster is raised.
        if before is not None and before.id != state.topic_id and any(before.id):
            gone.append(state.topic_name)
            before = None
        current = [each for each in state.partition_states if not _is_late(before, each)]
        if len(current) < len(state.partition_states):
            is_late = True
            if not current:
                continue
        topic = _topic(before, state, current, live)
        if topic is not None:
            changed.append(topic)
        elif before is not None:
            gone.append(state.topic_name)
    if gone:
        image = image.without_topics(gone)
    if changed:
        image = image.with_topics(changed)
    if is_late and request.controller_epoch <= image.controller_epoch:
        log.info(
            "Ignoring what a late UpdateMetadata request has of brokers and of partitions with newer epochs"
        )
        return image
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


def _is_late(topic: TopicImage | None, state: UpdateMetadataPartitionState) -> bool:
    """Whether a newer state of the partition is known.

    A topic without an id may have been deleted and created again since, with lower epochs.
    """
    index = state.partition_index
    if topic is None or not any(topic.id) or index >= len(topic.partitions):
        return False
    if state.leader == LEADER_DURING_DELETE:
        return False
    known = topic.partitions[index]
    return (state.leader_epoch, state.zk_version) < (known.leader_epoch, known.partition_epoch)


def _topic(
    before: TopicImage | None,
    state: UpdateMetadataTopicState,
    partition_states: Iterable[UpdateMetadataPartitionState],
    live: Container[int],
) -> TopicImage | None:
    """None for a topic of which nothing is left."""
    partitions = [] if before is None else list(before.partitions)
    deleted = 0
    for each in partition_states:
        if each.leader == LEADER_DURING_DELETE:
            deleted += 1
            continue
        index = each.partition_index
        if index >= len(partitions):
            partitions += [_UNKNOWN_PARTITION] * (index + 1 - len(partitions))
        partitions[index] = _partition(each, live)
    if deleted or not partitions:
        # A topic is deleted as a whole.
        return None
    return TopicImage(name=state.topic_name, id=state.topic_id, partitions=tuple(partitions))


def _partition(state: UpdateMetadataPartitionState, live: Container[int]) -> PartitionImage:
    return PartitionImage(
        leader=BrokerId(state.leader),
        leader_epoch=LeaderEpoch(state.leader_epoch),
        replicas=tuple(map(BrokerId, state.replicas)),
        isr=tuple(map(BrokerId, state.isr)),
        partition_epoch=state.zk_version,
        controller_epoch=state.controller_epoch,
        # The others are offline with their brokers, and come back with them.
        failed_replicas=tuple(BrokerId(each) for each in state.offline_replicas if each in live),
    )
