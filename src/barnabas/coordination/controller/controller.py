"""The controller: the only writer of topics and partitions.

Changes run one after the other: read the image, compute the change, write it to the store, publish the next image. No
reader sees a change before it is stored. Every write also checks that the controller's epoch is still its own, so that
a controller that was replaced without noticing cannot change anything.

A change runs to its end even if its requester is cancelled, because store and image must agree.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import replace
from itertools import chain, islice
from random import Random
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar

from barnabas.clock import Clock
from barnabas.config.listeners import Endpoint
from barnabas.config.live_settings import LiveSettings
from barnabas.coordination.controller.loading import Claim, ClusterLoader, Loaded, claim_cluster
from barnabas.coordination.metadata.cache import MetadataCache
from barnabas.coordination.metadata.image import PartitionImage, TopicImage, Uuid
from barnabas.coordination.metadata.nodes import (
    create_partitions,
    create_topic,
    put_config,
    remove_topic,
    set_state,
    topic_node,
)
from barnabas.coordination.metadata.store_errors import as_kafka_error
from barnabas.coordination.metadata.tree import (
    CONTROLLER_EPOCH,
    config_path,
    delete_topic_path,
    encode_uuid,
    topic_path,
)
from barnabas.coordination.planning.partition_changes import ElectionType, elected, reassigned
from barnabas.coordination.planning.topic_adoption import FoundPartition as FoundPartition
from barnabas.coordination.planning.topic_adoption import plan_adoption
from barnabas.coordination.planning.topic_creation import (
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
from barnabas.coordination.store.contract import (
    Check,
    Create,
    MultiFailed,
    Operation,
    SetData,
    Store,
    StoreError,
)
from barnabas.errors import (
    InvalidRequest,
    KafkaError,
    KafkaStorageError,
    LeaderNotAvailable,
    NotController,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.model import BrokerId, TopicPartition

log = logging.getLogger(__name__)

T = TypeVar("T")

DeleteLogs: TypeAlias = Callable[[Sequence[TopicImage]], Awaitable[None]]

# A larger change is stored in parts: between them other requests have their turn, and ZooKeeper's bound of 1 MiB on
# what it takes at once is far.
OPERATIONS_AT_ONCE: Final = 250
NO_IDS: Final[Mapping[str, Uuid]] = MappingProxyType({})


async def _no_logs(topics: Sequence[TopicImage]) -> None:
    """No log manager is connected yet."""


class Controller:
    """Changes topics and partitions, and publishes each change to `cache`."""

    def __init__(
        self,
        store: Store,
        claim: Claim,
        loaded: Loaded,
        broker_id: BrokerId,
        settings: LiveSettings,
        rng: Random,
    ) -> None:
        self.cache = MetadataCache(loaded.image)
        self._settings = settings
        self.delete_logs: DeleteLogs = _no_logs
        self._store = store
        self._claim = claim
        self._broker_id = broker_id
        self._rng = rng
        self._deleting = loaded.deleting
        self._config_paths = loaded.config_paths
        self._lock = asyncio.Lock()
        self._is_closed = False

    @classmethod
    async def open(
        cls,
        store: Store,
        *,
        broker_id: BrokerId,
        settings: LiveSettings,
        endpoints: Sequence[Endpoint],
        clock: Clock,
        rng: Random,
        cluster_id: str | None = None,
        clean_stop: bool = True,
    ) -> Controller:
        """Takes over the cluster. `clean_stop` says whether this broker's logs are known to be complete.

        Raises InconsistentClusterId, DuplicateBrokerRegistration, NotController or StoreError.
        """
        claim = await claim_cluster(
            store,
            broker_id=broker_id,
            endpoints=endpoints,
            rack=settings.current.broker_rack,
            clock=clock,
            rng=rng,
            cluster_id=cluster_id,
        )
        loaded = await ClusterLoader(store, claim, broker_id, rng, clean_stop=clean_stop).load()
        controller = cls(store, claim, loaded, broker_id, settings, rng)
        await controller._commit(loaded.repairs)
        return controller

    async def close(self) -> None:
        """Waits for the change under way; later ones are refused. The store's session is the caller's to end."""
        async with self._lock:
            self._is_closed = True

    async def create_topics(
        self, new: Sequence[NewTopic], *, validate_only: bool = False, charge: Charge = free_of_charge
    ) -> list[Planned]:
        return await self._exclusively(self._create_topics(new, validate_only=validate_only, charge=charge))

    async def auto_create_topics(
        self, names: Iterable[str], charge: Charge = free_of_charge
    ) -> dict[str, KafkaError]:
        """Creates topics that a client uses; returns the errors of those that could not be created."""
        return await self._exclusively(self._auto_create_topics(list(dict.fromkeys(names)), charge))

    async def delete_topics(
        self, names: Collection[str], *, ids: Mapping[str, Uuid] = NO_IDS, charge: Charge = free_of_charge
    ) -> dict[str, KafkaError | None]:
        """A topic that has an id in `ids` is deleted only if that is its id when the turn has come."""
        return await self._exclusively(self._delete_topics(list(dict.fromkeys(names)), ids, charge))

    async def resume_deletions(self) -> None:
        """Finishes deletions that were started before; must be called once logs can be deleted.

        A deletion that is not possible now, perhaps because a log directory is offline, is left to the next start.
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
            self._change_partitions(wanted, lambda at: elected(self.cache.image, at, election))
        )

    async def alter_reassignments(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> dict[TopicPartition, KafkaError | None]:
        def change(at: TopicPartition) -> PartitionImage:
            return reassigned(
                self.cache.image,
                at,
                targets[at],
                allow_replication_factor_change=allow_replication_factor_change,
            )

        return await self._exclusively(self._change_partitions(targets, change))

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
                # The next user of missing nodes creates them.
                unmade = [each.path for each in chain(batch, remaining) if isinstance(each, Create)]
                self._config_paths.difference_update(unmade)
                if isinstance(error, MultiFailed) and error.index == 0:
                    raise NotController("another controller has taken over") from error
                raise as_kafka_error(error) from error

    async def _create_topics(
        self, new: Sequence[NewTopic], *, validate_only: bool, charge: Charge = free_of_charge
    ) -> list[Planned]:
        planner = TopicPlanner(
            self.cache.image, self._settings.current, self._rng, deleting=self._deleting, charge=charge
        )
        planned = planner.plan(new)
        if not validate_only:
            await self._store_topics([each for each in planned if isinstance(each, PlannedTopic)])
        return planned

    async def _store_topics(self, planned: Sequence[PlannedTopic]) -> None:
        if not planned:
            return
        await self._commit(chain.from_iterable(map(self._creation, planned)))
        image = self.cache.image.with_topics(each.topic for each in planned)
        self.cache.publish(image.with_topic_configs({each.topic.name: each.configs for each in planned}))
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
        missing = [name for name in names if name not in self.cache.image.topics]
        count = len(self.cache.image.brokers)
        new = [automatic_topic(name, self._settings.current, count) for name in missing]
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
        for topic in (self.cache.image.topics[name] for name in names if name in self.cache.image.topics):
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
        self.cache.publish(self.cache.image.without_topics(topic.name for topic in topics))
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
                topic = plan_partitions(self.cache.image, each, self._rng)
                first = len(self.cache.image.topics[topic.name].partitions)
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
            self.cache.publish(self.cache.image.with_topics(grown))
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
            before = self.cache.image.topics[at.topic].partitions[at.partition]
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
            topic = self.cache.image.topics[name]
            partitions_now = tuple(by_index.get(index, each) for index, each in enumerate(topic.partitions))
            topics.append(replace(topic, partitions=partitions_now))
            if any(by_index[index].replicas != topic.partitions[index].replicas for index in by_index):
                operations.append(SetData(topic_path(name), topic_node(topics[-1])))
        await self._commit(operations)
        self.cache.publish(self.cache.image.with_topics(topics))
        return results

    async def _adopt_topics(self, found: Mapping[TopicPartition, FoundPartition]) -> list[TopicImage]:
        unknown = {at: each for at, each in found.items() if at.topic not in self._deleting}
        adopted = plan_adoption(self.cache.image, self._broker_id, self._settings.current, unknown, self._rng)
        await self._store_topics(adopted)
        return [each.topic for each in adopted]
