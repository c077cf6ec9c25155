"""The writes to the store that any broker may do in Kafka 3.9: settings, quotas, credentials, automatic topics.

The store decides between writers: a write succeeds only if the node has the version that was read. Otherwise the node
is read and edited again. Each write of settings leaves a notice for the other brokers in the same transaction.

A topic that is created here consists of its settings and its own node. The controller sees the node, gives the
partitions their states, and tells all brokers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Final, TypeAlias, TypeVar

from barnabas.config.live_settings import LiveSettings
from barnabas.config.log_config import DELETION_HOLD
from barnabas.coordination.metadata.cache import MetadataCache, Stage
from barnabas.coordination.metadata.image import MetadataImage, QuotaEntity
from barnabas.coordination.metadata.nodes import topic_node
from barnabas.coordination.metadata.scram_credentials import ScramCredential
from barnabas.coordination.metadata.settings_following import SettingsFollower
from barnabas.coordination.metadata.store_errors import as_kafka_error
from barnabas.coordination.metadata.tree import (
    config_path,
    decode_config,
    encode_config,
    encode_config_change,
    topic_path,
)
from barnabas.coordination.planning.topic_creation import (
    Charge,
    Planned,
    TopicPlanner,
    automatic_topic,
    free_of_charge,
)
from barnabas.coordination.store.contract import (
    BadVersion,
    Create,
    CreateMode,
    MultiFailed,
    NodeExists,
    NoNode,
    Operation,
    SetData,
    Store,
    StoreError,
    parent_of,
)
from barnabas.coordination.writing import entities
from barnabas.coordination.writing.entities import EntityKind
from barnabas.coordination.writing.one_at_a_time import OneAtATime
from barnabas.errors import KafkaError, LeaderNotAvailable, UnknownTopicOrPartition

log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

# From the settings of an entity to its next settings, all of them. It may run more than once, and raise a KafkaError.
Edit: TypeAlias = Callable[[Mapping[str, V]], Mapping[str, V]]

# Each conflict means that another writer has succeeded.
CONFLICTS_MAX: Final = 100
# As long as Kafka's clients wait for an answer.
CREATION_WAIT_S: Final = 30.0


class _Awaited:
    """Topics that a request has created, until the metadata have all of them."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = set(names)
        self.have_come = asyncio.Event()

    def take_in(self, image: MetadataImage) -> None:
        self.names.difference_update([name for name in self.names if name in image.topics])
        if not self.names:
            self.have_come.set()


class ClusterWriter:
    """Results are by entity. A write that has succeeded is in this broker's metadata when the method returns."""

    def __init__(
        self,
        store: Store,
        cache: MetadataCache,
        follower: SettingsFollower,
        settings: LiveSettings,
        rng: Random,
    ) -> None:
        self._store = store
        self._cache = cache
        self._follower = follower
        self._settings = settings
        self._rng = rng
        # Requests that wait until this broker's metadata have the topics that they have created.
        self._waiting: set[_Awaited] = set()
        cache.subscribe(Stage.CLIENTS, self._on_image)
        self._turns = OneAtATime()

    async def close(self) -> None:
        """Waits for the change under way and refuses later ones."""
        await self._turns.close()

    async def create_topics(
        self, names: Iterable[str], charge: Charge = free_of_charge
    ) -> dict[str, KafkaError]:
        """Creates topics that a client or this broker uses; returns why some could not be.

        Those that were created are in this broker's metadata, unless the controller takes too long.
        """
        failed, created = await self._turns.run(self._create_topics(list(dict.fromkeys(names)), charge))
        for name in await self._wait_for(created):
            failed[name] = LeaderNotAvailable(f"the controller has not seen topic {name} yet")
        return failed

    async def alter_topic_configs(
        self, changes: Mapping[str, Edit[str]], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        def of_existing(name: str, edit: Edit[str]) -> Edit[str]:
            def edited(config: Mapping[str, str]) -> Mapping[str, str]:
                if name not in self._cache.image.topics:
                    raise UnknownTopicOrPartition(f"The topic '{name}' does not exist.")
                return edit(config)

            return edited

        edits = {name: of_existing(name, edit) for name, edit in changes.items()}
        return await self._alter(entities.TOPICS, edits, validate_only)

    async def hold_deletion(self, names: Iterable[str]) -> None:
        """Prevents retention and compaction of topics until the user has confirmed their settings."""

        def hold(config: Mapping[str, str]) -> Mapping[str, str]:
            return {**config, DELETION_HOLD: "true"}

        results = await self._alter(entities.TOPICS, dict.fromkeys(names, hold), False)
        for error in results.values():
            if error is not None:
                raise error

    async def alter_broker_configs(
        self, changes: Mapping[str, Edit[str]], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """By broker id as text; the empty text is the default for all brokers."""
        return await self._alter(entities.BROKERS, changes, validate_only)

    async def alter_group_configs(
        self, changes: Mapping[str, Edit[str]], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        return await self._alter(entities.GROUPS, changes, validate_only)

    async def alter_client_metrics(
        self, changes: Mapping[str, Edit[str]], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        return await self._alter(entities.CLIENT_METRICS, changes, validate_only)

    async def alter_quotas(
        self, changes: Mapping[QuotaEntity, Edit[float]], *, validate_only: bool = False
    ) -> dict[QuotaEntity, KafkaError | None]:
        return await self._alter(entities.QUOTAS, changes, validate_only)

    async def alter_scram_credentials(
        self, changes: Mapping[str, Edit[ScramCredential]]
    ) -> dict[str, KafkaError | None]:
        """By user."""
        return await self._alter(entities.SCRAM_CREDENTIALS, changes, False)

    async def _create_topics(
        self, names: Sequence[str], charge: Charge
    ) -> tuple[dict[str, KafkaError], list[str]]:
        """Why some could not be created, and those that were."""
        image = self._cache.image
        # Others may have created some of them in the meantime.
        missing = [name for name in names if name not in image.topics]
        planner = TopicPlanner(image, self._settings.current, self._rng, charge=charge)
        new = [automatic_topic(name, self._settings.current, len(image.brokers)) for name in missing]
        results = await asyncio.gather(*map(self._create_topic, planner.plan(new)))
        failed = {name: error for name, error in zip(missing, results, strict=True) if error is not None}
        return failed, [name for name in missing if name not in failed]

    async def _wait_for(self, names: Iterable[str]) -> set[str]:
        """Waits until this broker's metadata have these topics. Returns those that have not come in time."""
        awaited = _Awaited(names)
        awaited.take_in(self._cache.image)
        self._waiting.add(awaited)
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(awaited.have_come.wait(), CREATION_WAIT_S)
        finally:
            self._waiting.discard(awaited)
        return awaited.names

    async def _create_topic(self, planned: Planned) -> KafkaError | None:
        if isinstance(planned, KafkaError):
            return planned
        topic = planned.topic
        path = config_path("topics", topic.name)
        try:
            # A topic that was deleted halfway may have left its settings.
            _, version = await self._read(path)
            data = encode_config(planned.configs)
            config = Create(path, data) if version is None else SetData(path, data, version)
            await self._store.multi([Create(topic_path(topic.name), topic_node(topic)), config])
        except MultiFailed as failed:
            if isinstance(failed.error, NodeExists) and failed.index == 0:
                return LeaderNotAvailable(f"Topic '{topic.name}' already exists.")
            return as_kafka_error(failed)
        except StoreError as error:
            return as_kafka_error(error)
        return None

    def _on_image(self, before: MetadataImage, after: MetadataImage) -> None:
        if before.topics is not after.topics:
            for awaited in self._waiting:
                awaited.take_in(after)

    async def _alter(
        self, kind: EntityKind[K, V], changes: Mapping[K, Edit[V]], validate_only: bool
    ) -> dict[K, KafkaError | None]:
        return await self._turns.run(self._alter_all(kind, changes, validate_only))

    async def _alter_all(
        self, kind: EntityKind[K, V], changes: Mapping[K, Edit[V]], validate_only: bool
    ) -> dict[K, KafkaError | None]:
        # Many small transactions at once: the store commits those that wait together.
        errors = await asyncio.gather(
            *(self._alter_one(kind, key, edit, validate_only) for key, edit in changes.items())
        )
        results = dict(zip(changes, errors, strict=True))
        changed = [kind.path_of(key) for key, error in results.items() if error is None]
        if changed and not validate_only:
            try:
                # Another broker may have changed them since: what the store has now counts.
                await self._follower.refresh(changed)
            except StoreError as error:
                log.error("Settings were stored but cannot be read: %s", error)
        return results

    async def _alter_one(
        self, kind: EntityKind[K, V], key: K, edit: Edit[V], validate_only: bool
    ) -> KafkaError | None:
        path = kind.path_of(key)
        try:
            for _ in range(CONFLICTS_MAX):
                texts, version = await self._read(path)
                values = edit(kind.read(path, texts))
                if validate_only:
                    return None
                data = encode_config({**kind.others(texts), **kind.write(values)})
                if await self._write(path, data, version, kind.notice_prefix):
                    return None
        except KafkaError as error:
            return error
        except StoreError as error:
            log.error("Settings are not stored: %s", error)
            return as_kafka_error(error)
        return as_kafka_error(BadVersion(f"{path}: others change it all the time"))

    async def _read(self, path: str) -> tuple[dict[str, str], int | None]:
        """The settings at a path and the version of the node, None for no node."""
        try:
            data, stat = await self._store.get(path)
        except NoNode:
            return {}, None
        return decode_config(path, data), stat.version

    async def _write(self, path: str, data: bytes, version: int | None, notice_prefix: str) -> bool:
        """False if another writer came first."""
        operations: list[Operation] = []
        if version is None:
            # Below a user stand its clients: /config/users/U/clients/C.
            above = parent_of(path)
            while above.count("/") > 2 and await self._store.exists(above) is None:
                operations.insert(0, Create(above))
                above = parent_of(above)
            operations.append(Create(path, data))
        else:
            operations.append(SetData(path, data, version))
        notice = encode_config_change(*path.removeprefix("/config/").split("/", 1))
        operations.append(Create(notice_prefix, notice, CreateMode.PERSISTENT_SEQUENTIAL))
        try:
            await self._store.multi(operations)
        except MultiFailed as failed:
            if isinstance(failed.error, (BadVersion, NodeExists, NoNode)):
                return False
            raise failed.error from failed
        return True
