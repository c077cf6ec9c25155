"""The state of the controller, and the common steps of its changes.

A change is a generator: it yields effects and gets the result of each that has one. It may raise a KafkaError, which is
then the reply to its requester.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from random import Random
from typing import Final, NamedTuple, TypeAlias, TypeVar

from barnabas.config.live_settings import LiveSettings
from barnabas.coordination.controller.events import (
    Effect,
    MakeChange,
    NodesRead,
    ReadNodes,
    Result,
    Send,
    StoredAll,
    StoreRefused,
    Write,
    WriteAll,
)
from barnabas.coordination.controller.messages import Changed, IsOffline, MetadataUpdate, leader_and_isr
from barnabas.coordination.metadata.features import NO_FEATURES, FinalizedFeatures
from barnabas.coordination.metadata.image import MetadataImage, PartitionImage, TopicImage
from barnabas.coordination.metadata.node_reader import MalformedNode
from barnabas.coordination.metadata.nodes import set_state, state_node
from barnabas.coordination.metadata.store_errors import as_kafka_error
from barnabas.coordination.metadata.tree import (
    CONTROLLER_EPOCH,
    PartitionState,
    config_path,
    decode_partition_state,
    partition_state_path,
)
from barnabas.coordination.store.contract import (
    BadVersion,
    Check,
    Create,
    MultiFailed,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SessionExpired,
    StoreError,
    StoreUnavailable,
)
from barnabas.errors import KafkaError, NotController, UnknownServerError, UnknownTopicOrPartition
from barnabas.model import BrokerId, TopicPartition
from barnabas.value import replace

log = logging.getLogger(__name__)

T = TypeVar("T")
Change: TypeAlias = Generator[Effect, Result, T]
Results: TypeAlias = dict[TopicPartition, KafkaError | None]
# The next state of a partition, or the same one. It may raise a KafkaError.
Decide: TypeAlias = Callable[[TopicPartition, PartitionImage], PartitionImage]

# A larger change is stored in parts, far below ZooKeeper's bound of 1 MiB for one transaction.
OPERATIONS_AT_ONCE: Final = 250
# A state that others change each time between reading and writing is given up.
ATTEMPTS_MAX: Final = 10
_TOPIC_CONFIGS: Final = config_path("topics", "")


class Claim(NamedTuple):
    """This broker controls the cluster as long as the node of the epoch has this version."""

    controller_epoch: int
    epoch_version: int


class Deletion:
    """A topic that is in no broker's metadata any more, until the last of its logs is gone."""

    def __init__(self, topic: TopicImage) -> None:
        self.topic = topic
        # Replicas whose deletion is not confirmed, and those of them whose brokers have been asked.
        self.remaining: set[tuple[int, BrokerId]] = {
            (index, replica)
            for index, partition in enumerate(topic.partitions)
            for replica in partition.replicas
        }
        self.asked: set[tuple[int, BrokerId]] = set()
        # Why it cannot go on, as the requester gets it.
        self.error: KafkaError | None = None


class ControllerStats:
    """What controllers of this broker have done since it has started."""

    __slots__ = ("unclean_elections",)

    def __init__(self) -> None:
        self.unclean_elections = 0


class ControllerState:
    """`image` has brokers and topics only: settings are not the controller's."""

    def __init__(
        self,
        claim: Claim,
        settings: LiveSettings,
        rng: Random,
        image: MetadataImage,
        stats: ControllerStats | None = None,
    ) -> None:
        self.stats = stats or ControllerStats()
        self.claim = claim
        self.settings = settings
        self.rng = rng
        self.image = image
        # Topics that are being deleted. They are in no image any more.
        self.deleting: dict[str, Deletion] = {}
        # Topics that have a node for their settings.
        self.configured: set[str] = set()
        # Topics that cannot be used: their nodes cannot be read.
        self.unreadable: set[str] = set()
        # Brokers that have asked to shut down. They are still in the image.
        self.shutting_down: set[BrokerId] = set()
        # Replicas in log directories that have failed.
        self.offline_replicas: dict[BrokerId, set[TopicPartition]] = {}
        # As this controller has found or written them; a single node has no node of them.
        self.features: FinalizedFeatures = NO_FEATURES
        # Whether the cluster is so new that it has no node of them yet.
        self.are_features_open = False
        # Changes that follow the one under way, before all others.
        self.follow_ups: list[MakeChange] = []
        # Why this broker is no longer the controller.
        self.lost: KafkaError | None = None

    @property
    def recovers_leaders(self) -> bool:
        """Whether the level of the protocol has leaders that recover after an unclean election."""
        from barnabas.peers.versions import LEADER_RECOVERY, ProtocolLevel

        return ProtocolLevel.parse(self.settings.current.inter_broker_protocol_version) >= LEADER_RECOVERY

    def is_offline(self, topic: str, partition: int, replica: BrokerId) -> bool:
        if replica not in self.image.brokers or replica in self.shutting_down:
            return True
        failed = self.offline_replicas.get(replica)
        return bool(failed) and TopicPartition(topic, partition) in (failed or ())

    def online(self, at: TopicPartition, partition: PartitionImage) -> list[BrokerId]:
        """The replicas that can lead."""
        return [each for each in partition.replicas if not self.is_offline(at.topic, at.partition, each)]

    def partition(self, at: TopicPartition) -> PartitionImage | None:
        topic = self.image.topics.get(at.topic)
        if topic is None or not 0 <= at.partition < len(topic.partitions):
            return None
        return topic.partitions[at.partition]

    def partitions(self) -> Iterator[tuple[TopicPartition, PartitionImage]]:
        for topic in self.image.topics.values():
            for index, partition in enumerate(topic.partitions):
                yield TopicPartition(topic.name, index), partition

    def put(self, changed: Mapping[TopicPartition, PartitionImage]) -> None:
        by_topic: dict[str, list[PartitionImage]] = {}
        for at, partition in changed.items():
            if at.topic not in by_topic:
                by_topic[at.topic] = list(self.image.topics[at.topic].partitions)
            by_topic[at.topic][at.partition] = partition
        if by_topic:
            topics = self.image.topics
            self.image = self.image.with_topics(
                replace(topics[name], partitions=tuple(partitions)) for name, partitions in by_topic.items()
            )


def changed_topics(state: ControllerState, partitions: Iterable[TopicPartition]) -> list[Changed]:
    """These partitions by topic, as they are now. Partitions of topics that are gone are left out."""
    by_topic: dict[str, list[int]] = {}
    for at in partitions:
        by_topic.setdefault(at.topic, []).append(at.partition)
    topics = state.image.topics
    return [Changed(topics[name], indexes) for name, indexes in by_topic.items() if name in topics]


def commit(
    state: ControllerState, operations: Iterable[Operation], *, leaves_full: bool = False
) -> Change[None]:
    """Stores a change in parts. Raises a KafkaError when the store refuses one; those before it are stored.

    `leaves_full` says that a node to be removed stays if somebody has made nodes below it, where none belong.
    """
    remaining = iter(operations)
    while batch := list(islice(remaining, OPERATIONS_AT_ONCE)):
        result = yield from _write_batch(state, batch)
        while leaves_full and isinstance(result, StoreRefused):
            index = _not_empty(result.error)
            if index is None:
                break
            path = batch.pop(index).path
            log.error("%s is not removed: it has nodes below it. Remove it with all below it", path)
            result = yield from _write_batch(state, batch)
        if isinstance(result, StoreRefused):
            log.error("A change of the cluster could not be stored: %s", result.error)
            raise refusal(state, result.error)
        for each in batch:
            if isinstance(each, Create) and each.path.startswith(_TOPIC_CONFIGS):
                state.configured.add(each.path.removeprefix(_TOPIC_CONFIGS))


def _write_batch(state: ControllerState, batch: Sequence[Operation]) -> Change[Result]:
    return (yield Write([Check(CONTROLLER_EPOCH, state.claim.epoch_version), *batch]))


def _not_empty(error: StoreError) -> int | None:
    """The place in its batch of a removal that failed for the nodes below."""
    if isinstance(error, MultiFailed) and isinstance(error.error, NotEmpty):
        return error.index - 1
    return None


def refusal(state: ControllerState, error: StoreError) -> KafkaError:
    if isinstance(error, MultiFailed) and error.index == 0:
        state.lost = NotController("another controller has taken over")
        return state.lost
    failure = as_kafka_error(error)
    # Without knowing what the store has, the only way on is to read everything again.
    is_unsure = isinstance(error, StoreUnavailable) and state.settings.current.is_in_cluster
    if isinstance(error, SessionExpired) or is_unsure:
        state.lost = failure
    return failure


def read_nodes(state: ControllerState, paths: Sequence[str]) -> Change[NodesRead]:
    result = yield ReadNodes(paths)
    if isinstance(result, StoreRefused):
        raise refusal(state, result.error)
    assert isinstance(result, NodesRead)
    return result


def change_states(
    state: ControllerState, partitions: Iterable[TopicPartition], decide: Decide
) -> Change[Results]:
    """Stores the states that `decide` gives these partitions, and puts them into the image.

    A state that has changed in the store is read again and decided again, as the only one.
    """
    results: Results = {}
    remaining: Collection[TopicPartition] = list(partitions)
    epoch = state.claim.controller_epoch
    for _ in range(ATTEMPTS_MAX):
        wanted: dict[TopicPartition, PartitionImage] = {}
        for at in remaining:
            partition = state.partition(at)
            if partition is None:
                results[at] = UnknownTopicOrPartition("The partition does not exist.")
                continue
            try:
                after = decide(at, partition)
            except KafkaError as error:
                results[at] = error
                continue
            results[at] = None
            if after != partition:
                wanted[at] = replace(
                    after, partition_epoch=partition.partition_epoch + 1, controller_epoch=epoch
                )
        remaining = yield from _store_states(state, wanted)
        state.put({at: partition for at, partition in wanted.items() if at not in remaining})
        if not remaining:
            return results
        log.info("States of %d partitions have changed in the store and are read again", len(remaining))
        unreadable = yield from refresh_states(state, remaining)
        results.update(unreadable)
        remaining = [at for at in remaining if at not in unreadable]
    failure = UnknownServerError("The state of the partition changes again and again.")
    results.update(dict.fromkeys(remaining, failure))
    return results


def _store_states(
    state: ControllerState, wanted: Mapping[TopicPartition, PartitionImage]
) -> Change[set[TopicPartition]]:
    """Returns the partitions whose nodes are not what they were."""
    if not wanted:
        return set()
    waiting = iter(wanted.items())
    parts = []
    while part := list(islice(waiting, OPERATIONS_AT_ONCE)):
        parts.append(part)
    refused = yield from _try_to_store(state, parts)
    if refused and OPERATIONS_AT_ONCE > 1:
        # Each on its own: then only those are refused that have changed.
        refused = yield from _try_to_store(state, [[each] for part in refused for each in part])
    return {at for part in refused for at, _ in part}


_Part: TypeAlias = list[tuple[TopicPartition, PartitionImage]]


def _try_to_store(state: ControllerState, parts: Sequence[_Part]) -> Change[list[_Part]]:
    """Stores each part in a transaction of its own, and returns those that are refused."""
    check = Check(CONTROLLER_EPOCH, state.claim.epoch_version)
    epoch = state.claim.controller_epoch
    result = yield WriteAll([[check, *(_write(*each, epoch) for each in part)] for part in parts])
    assert isinstance(result, StoredAll)
    refused = []
    for part, error in zip(parts, result.errors, strict=True):
        if error is None:
            continue
        cause = error.error if isinstance(error, MultiFailed) and error.index > 0 else None
        if not isinstance(cause, (BadVersion, NoNode, NodeExists)):
            raise refusal(state, error)
        refused.append(part)
    return refused


def _write(at: TopicPartition, partition: PartitionImage, epoch: int) -> Operation:
    if partition.partition_epoch == 0:
        return Create(partition_state_path(at), state_node(partition, epoch))
    return set_state(at, partition, epoch)


def refresh_states(state: ControllerState, partitions: Collection[TopicPartition]) -> Change[Results]:
    """Takes the states of these partitions from the store. Returns those whose nodes cannot be read."""
    unreadable: Results = {}
    ats = [at for at in partitions if state.partition(at) is not None]
    found = yield from read_nodes(state, [partition_state_path(at) for at in ats])
    changed = {}
    for at, node in zip(ats, found.nodes, strict=True):
        partition = state.partition(at)
        if node is None or partition is None:
            continue
        try:
            stored = decode_partition_state(at, node[0])
        except MalformedNode as error:
            log.error("The state of %s stays as it is: %s. Mend the node", at, error)
            unreadable[at] = as_kafka_error(error)
            continue
        if stored.controller_epoch > state.claim.controller_epoch:
            state.lost = NotController("a later controller has written the state of a partition")
            raise state.lost
        changed[at] = with_stored(partition, stored, node[1].version)
    state.put(changed)
    return unreadable


def with_stored(partition: PartitionImage, stored: PartitionState, version: int) -> PartitionImage:
    return replace(
        partition,
        leader=stored.leader,
        leader_epoch=stored.leader_epoch,
        isr=stored.isr,
        partition_epoch=version,
        leader_recovery_state=stored.leader_recovery_state,
        controller_epoch=stored.controller_epoch,
    )


def tell_brokers(
    state: ControllerState,
    changed: Sequence[Changed] = (),
    *,
    metadata: Sequence[Changed] | None = None,
    deleted: Sequence[TopicImage] = (),
    is_new: bool = False,
    skips: IsOffline | None = None,
) -> Change[None]:
    """Roles to the replicas of these partitions, and metadata, of these or of others, to all brokers.

    Replicas that `skips` names get no roles; if the partitions are new, those that are offline.
    """
    if is_new and skips is None:
        skips = state.is_offline
    image = state.image
    news = changed if metadata is None else metadata
    update = MetadataUpdate(image, news, deleted, state.is_offline)
    listener = state.settings.current.inter_broker_endpoint.listener_name
    for broker in image.brokers.values():
        request = leader_and_isr(image, broker, changed, is_new=is_new, listener=listener, skips=skips)
        if request is not None:
            yield Send(broker.id, request)
        yield Send(broker.id, update.to(broker))
