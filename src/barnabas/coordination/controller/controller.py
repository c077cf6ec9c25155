"""The controller: the one who changes the cluster.

Changes are made one after the other: read the image, compute what is to change, write it to the store, publish the
next image. Nobody sees a change before it is stored. Every write also checks that the controller's epoch is still its
own, so that a controller that was replaced without noticing it cannot change anything.

A change goes on to its end when whoever asked for it is cancelled, since store and image must not part.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Container,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from random import Random
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar

from barnabas.clock import Clock
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.listeners import Endpoint
from barnabas.config.log_config import DELETION_HOLD
from barnabas.coordination.controller.loading import Claim, ClusterLoader, Loaded, claim_cluster
from barnabas.coordination.controller.nodes import (
    QUOTA_KEYS,
    broker_config_path,
    client_metrics_path,
    create_partitions,
    create_topic,
    group_config_path,
    put_config,
    quota_path,
    quota_texts,
    remove_topic,
    set_state,
    topic_node,
    user_path,
)
from barnabas.coordination.controller.partition_changes import ElectionType, elected, reassigned
from barnabas.coordination.controller.topic_adoption import FoundPartition as FoundPartition
from barnabas.coordination.controller.topic_adoption import plan_adoption
from barnabas.coordination.controller.topic_creation import (
    Charge,
    NewPartitions,
    NewTopic,
    Planned,
    PlannedTopic,
    TopicPlanner,
    automatic_topic,
    free_of_charge,
    plan_partitions,
    repeated_names,
)
from barnabas.coordination.metadata.identity import allocate_producer_ids
from barnabas.coordination.metadata.image import MetadataImage, PartitionImage, QuotaEntity, TopicImage, Uuid
from barnabas.coordination.metadata.scram_credentials import MECHANISMS, ScramCredential, credential_texts
from barnabas.coordination.metadata.tree import (
    CONTROLLER_EPOCH,
    config_path,
    decode_config,
    delete_topic_path,
    encode_uuid,
    topic_path,
)
from barnabas.coordination.store.contract import (
    Check,
    Create,
    MultiFailed,
    Operation,
    SessionExpired,
    SetData,
    Store,
    StoreError,
    StoreUnavailable,
)
from barnabas.errors import (
    InvalidRequest,
    KafkaError,
    KafkaStorageError,
    LeaderNotAvailable,
    NotController,
    TopicAlreadyExists,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.model import BrokerId, ProducerId, TopicPartition

log = logging.getLogger(__name__)

K = TypeVar("K")
T = TypeVar("T")
V = TypeVar("V")

ImageListener: TypeAlias = Callable[[MetadataImage, MetadataImage], None]
DeleteLogs: TypeAlias = Callable[[Sequence[TopicImage]], Awaitable[None]]
# From the settings there are to the settings there shall be, all of them; may raise a KafkaError.
Edit: TypeAlias = Callable[[Mapping[str, V]], Mapping[str, V]]

# A larger change is stored in parts: between them other requests have their turn, and ZooKeeper's bound of 1 MiB on
# what it takes at once is far.
OPERATIONS_AT_ONCE: Final = 250
NO_IDS: Final[Mapping[str, Uuid]] = MappingProxyType({})


async def _no_logs(topics: Sequence[TopicImage]) -> None:
    """There is nobody yet who keeps logs."""


class Controller:
    """`image` is the cluster as it is now. `config` may be replaced when settings change at run time."""

    def __init__(
        self,
        store: Store,
        claim: Claim,
        loaded: Loaded,
        broker_id: BrokerId,
        config: BrokerConfig,
        rng: Random,
    ) -> None:
        self.image: MetadataImage = loaded.image
        # How many images there were since the first.
        self.published = 0
        self.config = config
        self.delete_logs: DeleteLogs = _no_logs
        self._store = store
        self._claim = claim
        self._broker_id = broker_id
        self._rng = rng
        self._deleting = loaded.deleting
        self._config_paths = loaded.config_paths
        self._listeners: list[ImageListener] = []
        self._lock = asyncio.Lock()
        self._is_closed = False
        self._least_producer_id = ProducerId(0)

    @classmethod
    async def open(
        cls,
        store: Store,
        *,
        broker_id: BrokerId,
        config: BrokerConfig,
        endpoints: Sequence[Endpoint],
        clock: Clock,
        rng: Random,
        cluster_id: str | None = None,
        clean_stop: bool = True,
    ) -> Controller:
        """Takes over the cluster. `clean_stop` tells whether this broker's logs are known to be whole.

        Raises InconsistentClusterId, DuplicateBrokerRegistration, NotController or StoreError.
        """
        claim = await claim_cluster(
            store,
            broker_id=broker_id,
            endpoints=endpoints,
            rack=config.broker_rack,
            clock=clock,
            rng=rng,
            cluster_id=cluster_id,
        )
        loaded = await ClusterLoader(store, claim, broker_id, rng, clean_stop=clean_stop).load()
        controller = cls(store, claim, loaded, broker_id, config, rng)
        await controller._commit(loaded.repairs)
        return controller

    async def close(self) -> None:
        """Waits for the change under way; later ones are refused. The store's session is the caller's to end."""
        async with self._lock:
            self._is_closed = True

    def add_listener(self, listener: ImageListener) -> None:
        """The listener is called on the event loop with the image before a change and the one after."""
        self._listeners.append(listener)

    async def create_topics(
        self, new: Sequence[NewTopic], *, validate_only: bool = False, charge: Charge = free_of_charge
    ) -> list[Planned]:
        return await self._exclusively(self._create_topics(new, validate_only=validate_only, charge=charge))

    async def auto_create_topics(
        self, names: Iterable[str], *, charge: Charge = free_of_charge
    ) -> dict[str, KafkaError]:
        """Creates topics that somebody uses; returns why some could not be."""
        return await self._exclusively(self._auto_create_topics(list(dict.fromkeys(names)), charge))

    async def delete_topics(
        self, names: Collection[str], *, ids: Mapping[str, Uuid] = NO_IDS, charge: Charge = free_of_charge
    ) -> dict[str, KafkaError | None]:
        """A topic that has an id in `ids` is deleted only if that is its id when the turn has come."""
        return await self._exclusively(self._delete_topics(list(dict.fromkeys(names)), ids, charge))

    async def resume_deletions(self) -> None:
        """Finishes deletions that were begun before; to be called once logs can be deleted.

        What cannot be deleted now, as it may be in a log directory that is offline, is left to the next start.
        """

        async def finish_all() -> None:
            try:
                await self._finish_deletion(list(self._deleting.values()))
            except KafkaStorageError as error:
                log.error("topics %s cannot be deleted yet: %s", ", ".join(self._deleting), error)

        await self._exclusively(finish_all())

    async def create_partitions(
        self, new: Sequence[NewPartitions], *, validate_only: bool = False, charge: Charge = free_of_charge
    ) -> list[TopicImage | KafkaError]:
        return await self._exclusively(
            self._create_partitions(new, validate_only=validate_only, charge=charge)
        )

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition], election: ElectionType
    ) -> dict[TopicPartition, KafkaError | None]:
        wanted = dict.fromkeys(partitions)
        return await self._exclusively(
            self._change_partitions(wanted, lambda at: elected(self.image, at, election))
        )

    async def alter_reassignments(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> dict[TopicPartition, KafkaError | None]:
        def change(at: TopicPartition) -> PartitionImage:
            return reassigned(
                self.image, at, targets[at], allow_replication_factor_change=allow_replication_factor_change
            )

        return await self._exclusively(self._change_partitions(targets, change))

    async def alter_topic_configs(
        self, changes: Mapping[str, Edit[str]], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        def current(name: str) -> Mapping[str, str]:
            if name not in self.image.topics:
                raise UnknownTopicOrPartition(f"The topic '{name}' does not exist.")
            return self.image.topic_config(name)

        path_of = partial(config_path, "topics")
        return await self._alter_configs(
            changes, current, path_of, MetadataImage.with_topic_configs, validate_only
        )

    async def hold_deletion(self, names: Iterable[str]) -> None:
        """Keeps retention and compaction off topics until somebody has confirmed their settings."""

        def hold(config: Mapping[str, str]) -> Mapping[str, str]:
            return {**config, DELETION_HOLD: "true"}

        await self.alter_topic_configs(dict.fromkeys(names, hold))

    async def alter_broker_configs(
        self, changes: Mapping[str, Edit[str]], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """By broker id as text; the empty text is the default for all brokers."""

        def current(broker: str) -> Mapping[str, str]:
            return self.image.broker_config(broker)

        return await self._alter_configs(
            changes, current, broker_config_path, MetadataImage.with_broker_configs, validate_only
        )

    async def alter_group_configs(
        self, changes: Mapping[str, Edit[str]], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        def current(group_id: str) -> Mapping[str, str]:
            return self.image.group_configs.get(group_id, {})

        return await self._alter_configs(
            changes, current, group_config_path, MetadataImage.with_group_configs, validate_only
        )

    async def alter_client_metrics(
        self, changes: Mapping[str, Edit[str]], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        def current(name: str) -> Mapping[str, str]:
            return self.image.client_metrics.get(name, {})

        return await self._alter_configs(
            changes, current, client_metrics_path, MetadataImage.with_client_metrics, validate_only
        )

    async def _alter_configs(
        self,
        changes: Mapping[str, Edit[str]],
        current: Callable[[str], Mapping[str, str]],
        path_of: Callable[[str], str],
        with_changed: Callable[[MetadataImage, Mapping[str, Mapping[str, str]]], MetadataImage],
        validate_only: bool,
    ) -> dict[str, KafkaError | None]:
        async def put(name: str, config: Mapping[str, str]) -> Iterable[Operation]:
            return put_config(path_of(name), config, self._config_paths)

        return await self._exclusively(self._alter(changes, current, put, with_changed, validate_only))

    async def alter_scram_credentials(
        self, changes: Mapping[str, Edit[ScramCredential]]
    ) -> dict[str, KafkaError | None]:
        """By user."""

        def current(user: str) -> Mapping[str, ScramCredential]:
            return self.image.scram_credentials.get(user, {})

        async def put(user: str, credentials: Mapping[str, ScramCredential]) -> Iterable[Operation]:
            return await self._put_beside(user_path(user), MECHANISMS, credential_texts(credentials))

        alter = self._alter(changes, current, put, MetadataImage.with_scram_credentials, False)
        return await self._exclusively(alter)

    async def alter_quotas(
        self, changes: Mapping[QuotaEntity, Edit[float]], *, validate_only: bool = False
    ) -> dict[QuotaEntity, KafkaError | None]:
        def current(entity: QuotaEntity) -> Mapping[str, float]:
            return self.image.client_quotas.get(entity, {})

        alter = self._alter(
            changes, current, self._put_quotas, MetadataImage.with_client_quotas, validate_only
        )
        return await self._exclusively(alter)

    async def allocate_producer_ids(self) -> range:
        """Ids that nobody has had and nobody else gets."""
        return await self._exclusively(self._allocate_producer_ids())

    def raise_producer_ids_to(self, next_id: ProducerId) -> None:
        """Ids below this one are in logs already, whatever the store says."""
        self._least_producer_id = max(self._least_producer_id, next_id)

    async def adopt_topics(self, found: Mapping[TopicPartition, FoundPartition]) -> list[TopicImage]:
        """Makes topics of directories that the store knows nothing of, as when data was brought from elsewhere."""
        return await self._exclusively(self._adopt_topics(found))

    async def _exclusively(self, change: Coroutine[Any, Any, T]) -> T:
        async def run() -> T:
            try:
                async with self._lock:
                    if self._is_closed:
                        raise NotController("the broker is stopping")
                    return await change
            finally:
                # Without effect after its end; without it, one that never had its turn would be complained about.
                change.close()

        return await asyncio.shield(asyncio.ensure_future(run()))

    async def _commit(self, operations: Iterable[Operation]) -> None:
        remaining = iter(operations)
        while batch := list(islice(remaining, OPERATIONS_AT_ONCE)):
            try:
                await self._store.multi([Check(CONTROLLER_EPOCH, self._claim.epoch_version), *batch])
            except StoreError as error:
                log.error("a change of the cluster could not be stored: %s", error)
                # Nodes that have not come about are made by whoever needs them next.
                unmade = [each.path for each in chain(batch, remaining) if isinstance(each, Create)]
                self._config_paths.difference_update(unmade)
                raise _as_kafka_error(error) from error

    def _publish(self, image: MetadataImage) -> None:
        before, self.image = self.image, image
        self.published += 1
        for listener in self._listeners:
            try:
                listener(before, image)
            except Exception:
                log.exception("a listener for changes of the cluster failed")

    async def _create_topics(
        self, new: Sequence[NewTopic], *, validate_only: bool, charge: Charge = free_of_charge
    ) -> list[Planned]:
        planner = TopicPlanner(self.image, self.config, self._rng, deleting=self._deleting, charge=charge)
        planned = planner.plan(new)
        if not validate_only:
            await self._store_topics([each for each in planned if isinstance(each, PlannedTopic)])
        return planned

    async def _store_topics(self, planned: Sequence[PlannedTopic]) -> None:
        if not planned:
            return
        await self._commit(chain.from_iterable(map(self._creation, planned)))
        image = self.image.with_topics(each.topic for each in planned)
        self._publish(image.with_topic_configs({each.topic.name: each.configs for each in planned}))
        for each in planned:
            topic = each.topic
            log.info(
                "Created topic %s with %d partitions, topic id %s, settings %s",
                topic.name,
                len(topic.partitions),
                encode_uuid(topic.id),
                dict(each.configs),
                extra={
                    "topic": topic.name,
                    "topic_id": encode_uuid(topic.id),
                    "partitions": len(topic.partitions),
                },
            )

    def _creation(self, planned: PlannedTopic) -> Iterator[Operation]:
        topic = planned.topic
        yield from put_config(config_path("topics", topic.name), planned.configs, self._config_paths)
        yield from create_topic(topic, self._claim.controller_epoch)

    async def _auto_create_topics(self, names: Sequence[str], charge: Charge) -> dict[str, KafkaError]:
        # Others may have had the same wish and waited less.
        missing = [name for name in names if name not in self.image.topics]
        count = len(self.image.brokers)
        new = [automatic_topic(name, self.config, count) for name in missing]
        results: Sequence[Planned]
        try:
            results = await self._create_topics(new, validate_only=False, charge=charge)
        except KafkaError as error:
            results = [error] * len(new)
        failed: dict[str, KafkaError] = {}
        for name, result in zip(missing, results, strict=True):
            if isinstance(result, TopicAlreadyExists):
                failed[name] = LeaderNotAvailable(str(result))
            elif isinstance(result, KafkaError):
                failed[name] = result
        return failed

    async def _delete_topics(
        self, names: Sequence[str], ids: Mapping[str, Uuid], charge: Charge
    ) -> dict[str, KafkaError | None]:
        unknown = UnknownTopicOrPartition("This server does not host this topic-partition.")
        unknown_id = UnknownTopicId("This server does not host this topic ID.")
        results: dict[str, KafkaError | None] = {
            name: unknown_id if name in ids else unknown for name in names
        }
        topics = []
        for topic in (self.image.topics[name] for name in names if name in self.image.topics):
            try:
                if ids.get(topic.name, topic.id) != topic.id:
                    raise unknown_id
                charge(len(topic.partitions))
                topics.append(topic)
            except KafkaError as refusal:
                results[topic.name] = refusal
        if not topics:
            return results
        await self._commit([Create(delete_topic_path(topic.name)) for topic in topics])
        self._deleting.update((topic.name, topic) for topic in topics)
        self._publish(self.image.without_topics(topic.name for topic in topics))
        for topic in topics:
            log.info(
                "Deleted topic %s with %d partitions, topic id %s",
                topic.name,
                len(topic.partitions),
                encode_uuid(topic.id),
                extra={
                    "topic": topic.name,
                    "topic_id": encode_uuid(topic.id),
                    "partitions": len(topic.partitions),
                },
            )
        error: KafkaError | None = None
        try:
            await self._finish_deletion(topics)
        except KafkaError as failure:
            # The topics are gone for everybody; the rest is done at the next start.
            error = failure
        results.update(dict.fromkeys((topic.name for topic in topics), error))
        return results

    async def _finish_deletion(self, topics: Sequence[TopicImage]) -> None:
        if not topics:
            return
        await self.delete_logs(topics)
        operations: list[Operation] = []
        for topic in topics:
            operations += await remove_topic(self._store, topic.name)
            if len(operations) >= OPERATIONS_AT_ONCE:
                await self._commit(operations)
                operations.clear()
        await self._commit(operations)
        for topic in topics:
            self._config_paths.discard(config_path("topics", topic.name))
            del self._deleting[topic.name]

    async def _create_partitions(
        self, new: Sequence[NewPartitions], *, validate_only: bool, charge: Charge
    ) -> list[TopicImage | KafkaError]:
        repeated = repeated_names(each.name for each in new)
        results: list[TopicImage | KafkaError] = []
        operations: list[Operation] = []
        for each in new:
            try:
                if each.name in repeated:
                    raise InvalidRequest("Duplicate topic name.")
                topic = plan_partitions(self.image, each, self._rng)
                first = len(self.image.topics[topic.name].partitions)
                charge(len(topic.partitions) - first)
            except KafkaError as error:
                results.append(error)
                continue
            results.append(topic)
            operations.append(SetData(topic_path(topic.name), topic_node(topic)))
            operations += create_partitions(topic, first, self._claim.controller_epoch)
        if operations and not validate_only:
            await self._commit(operations)
            grown = [each for each in results if isinstance(each, TopicImage)]
            self._publish(self.image.with_topics(grown))
            for topic in grown:
                log.info("Topic %s has %d partitions now", topic.name, len(topic.partitions))
        return results

    async def _change_partitions(
        self, partitions: Iterable[TopicPartition], change: Callable[[TopicPartition], PartitionImage]
    ) -> dict[TopicPartition, KafkaError | None]:
        results: dict[TopicPartition, KafkaError | None] = {}
        changed: dict[str, dict[int, PartitionImage]] = {}
        operations: list[Operation] = []
        for at in partitions:
            try:
                after = change(at)
            except KafkaError as error:
                results[at] = error
                continue
            results[at] = None
            before = self.image.topics[at.topic].partitions[at.partition]
            if (after.leader, after.leader_epoch, after.isr) != (
                before.leader,
                before.leader_epoch,
                before.isr,
            ):
                operations.append(set_state(at, after, self._claim.controller_epoch))
            if after != before:
                changed.setdefault(at.topic, {})[at.partition] = after
        if not changed:
            return results
        topics = []
        for name, by_index in changed.items():
            topic = self.image.topics[name]
            partitions_now = tuple(by_index.get(index, each) for index, each in enumerate(topic.partitions))
            topics.append(replace(topic, partitions=partitions_now))
            if any(by_index[index].replicas != topic.partitions[index].replicas for index in by_index):
                operations.append(SetData(topic_path(name), topic_node(topics[-1])))
        await self._commit(operations)
        self._publish(self.image.with_topics(topics))
        return results

    async def _alter(
        self,
        changes: Mapping[K, Edit[V]],
        current: Callable[[K], Mapping[str, V]],
        put: Callable[[K, Mapping[str, V]], Awaitable[Iterable[Operation]]],
        with_changed: Callable[[MetadataImage, Mapping[K, Mapping[str, V]]], MetadataImage],
        validate_only: bool,
    ) -> dict[K, KafkaError | None]:
        results: dict[K, KafkaError | None] = {}
        accepted: dict[K, Mapping[str, V]] = {}
        for key, edit in changes.items():
            try:
                accepted[key] = dict(edit(current(key)))
                results[key] = None
            except KafkaError as error:
                results[key] = error
        if accepted and not validate_only:
            operations: list[Operation] = []
            for key, settings in accepted.items():
                operations += await put(key, settings)
            await self._commit(operations)
            self._publish(with_changed(self.image, accepted))
        return results

    async def _put_quotas(self, entity: QuotaEntity, limits: Mapping[str, float]) -> Iterable[Operation]:
        return await self._put_beside(quota_path(entity), QUOTA_KEYS, quota_texts(limits))

    async def _put_beside(
        self, path: str, replaced: Container[str], settings: Mapping[str, str]
    ) -> Iterable[Operation]:
        """Quotas and credentials of a user are settings of one node: those that are not replaced stay."""
        others: dict[str, str] = {}
        if path in self._config_paths:
            data, _ = await self._store.get(path)
            stored = decode_config(path, data)
            others = {name: text for name, text in stored.items() if name not in replaced}
        return put_config(path, {**others, **settings}, self._config_paths)

    async def _allocate_producer_ids(self) -> range:
        try:
            block = await allocate_producer_ids(
                self._store, self._broker_id, at_least=self._least_producer_id
            )
        except StoreError as error:
            raise _as_kafka_error(error) from error
        return range(block.first, block.last + 1)

    async def _adopt_topics(self, found: Mapping[TopicPartition, FoundPartition]) -> list[TopicImage]:
        unknown = {at: each for at, each in found.items() if at.topic not in self._deleting}
        adopted = plan_adoption(self.image, self._broker_id, self.config, unknown, self._rng)
        await self._store_topics(adopted)
        return [each.topic for each in adopted]


def _as_kafka_error(error: StoreError) -> KafkaError:
    match error:
        case StoreUnavailable():
            return KafkaStorageError(f"the cluster's store is not available: {error}")
        case SessionExpired():
            return NotController(f"this broker has lost the cluster's store: {error}")
        case MultiFailed(index=0):
            return NotController("another controller has taken over")
    return UnknownServerError(f"the cluster's store refused a change: {error}")
