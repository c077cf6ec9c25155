"""Applies the controller's decisions to partitions, logs, settings and quotas."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from barnabas.broker.quotas.quotas import DEFAULT, QuotaEntity, Quotas, address_of
from barnabas.broker.replication.log_dir_mover import LogDirMover
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.upkeep.config_updates import ConfigUpdates
from barnabas.broker.upkeep.image_roles import ended_roles, new_roles, roles_at_start
from barnabas.broker.waiting.scheduling import Scheduling
from barnabas.config.log_config import DELETION_HOLD
from barnabas.coordination.controller.controller import Controller, FoundPartition
from barnabas.coordination.metadata.cache import MetadataCache, Stage
from barnabas.coordination.metadata.changes import changed_topics
from barnabas.coordination.metadata.image import MetadataImage, TopicImage
from barnabas.log.manager.manager import LogManager
from barnabas.model import NO_LEADER_EPOCH, ProducerId, TopicPartition

log = logging.getLogger(__name__)

# The maximum number of names in one line.
NAMES_MAX: Final = 20
ClientQuotas = Mapping[tuple[str | None, str | None, str | None], Mapping[str, float]]


class ImageFollower:
    def __init__(
        self,
        controller: Controller,
        cache: MetadataCache,
        replicas: ReplicaManager,
        manager: LogManager,
        quotas: Quotas,
        config_updates: ConfigUpdates,
        mover: LogDirMover,
        scheduling: Scheduling,
    ) -> None:
        self._controller = controller
        self._cache = cache
        self._replicas = replicas
        self._manager = manager
        self._quotas = quotas
        self._config_updates = config_updates
        self._mover = mover
        self._tasks = scheduling.tasks
        self._background = scheduling.background
        # Topics that the store did not know of when this began.
        self.adopted: frozenset[str] = frozenset()
        # Above those of all producers of these topics.
        self.next_producer_id = ProducerId(0)

    async def begin(self) -> None:
        """Brings together what the store says and what lies in the directories, and follows from then on."""
        await self._adopt_unknown_logs()
        image = self._cache.image
        self._hold_strays(image)
        self._report(image)
        self._replicas.become(roles_at_start(image, self._replicas.broker_id))
        await self._replicas.opened(image.topics)
        self._apply_quotas({}, image.client_quotas)
        self._cache.subscribe(Stage.REPLICAS, self._on_image)
        self._controller.delete_logs = self._delete_logs
        await self._controller.resume_deletions()
        await self._mover.resume()

    async def _adopt_unknown_logs(self) -> None:
        known = self._cache.image.topics
        unknown = [
            each
            for each in self._manager.logs()
            # A copy that was to replace a log gives no information if the log is gone.
            if each.topic_partition.topic not in known and each is self._manager.log(each.topic_partition)
        ]
        if not unknown:
            return
        adopted = await self._controller.adopt_topics(
            {
                each.topic_partition: FoundPartition(
                    topic_id=each.topic_id,
                    leader_epoch=NO_LEADER_EPOCH if each.latest_epoch is None else each.latest_epoch,
                )
                for each in unknown
            }
        )
        self.adopted = frozenset(topic.name for topic in adopted)
        for topic in adopted:
            log.error(
                "topic %s was found on the disk, but the store does not know it: it is taken over, and its settings are"
                " lost",
                topic.name,
            )
            # The logs were opened before it was a topic.
            self._manager.update_config(topic.name)
        if adopted:
            log.error(
                "Quotas and settings of brokers and groups that such a lost store held have to be set again, too"
            )
        # Producers of these logs keep their ids: new ones are given out above them.
        ids = (producer.producer_id for each in unknown for producer in each.active_producers())
        self.next_producer_id = ProducerId(max(ids, default=-1) + 1)

    def _hold_strays(self, image: MetadataImage) -> None:
        """Nothing is deleted from directories that belong to no partition of the image: their content is unknown."""
        for each in self._manager.logs():
            at = each.topic_partition
            topic = image.topics.get(at.topic)
            is_known = topic is not None and at.partition < len(topic.partitions)
            if is_known and topic is not None and each.topic_id in (None, topic.id):
                continue
            log.error("%s belongs to no partition that the store knows, and is left alone", each.directory)
            each.update_config(replace(each.config, barnabas_deletion_hold=True))

    def _report(self, image: MetadataImage) -> None:
        held = sorted(
            name for name, config in image.topic_configs.items() if config.get(DELETION_HOLD) == "true"
        )
        if held:
            log.warning(
                "Nothing is deleted or compacted in %d topics until their settings are confirmed: %s. Set what each"
                " needs and end the hold: barnabas configs alter topic TOPIC retention.ms=... --delete %s",
                *(len(held), _listed(held), DELETION_HOLD),
            )
        broker_id = self._replicas.broker_id
        foreign = [
            f"{name}-{index} (broker {partition.replicas[0]})"
            for name, topic in image.topics.items()
            for index, partition in enumerate(topic.partitions)
            if not image.brokers.keys() & set(partition.replicas)
        ]
        if foreign:
            log.error(
                "%d partitions have no leader: their replicas are on brokers that are not there, and this is broker %d."
                " Start it with the broker.id and the log.dirs that it had: %s",
                *(len(foreign), broker_id, _listed(foreign)),
            )

    def _on_image(self, before: MetadataImage, after: MetadataImage) -> None:
        changed, gone = changed_topics(before, after)
        broker_id = self._replicas.broker_id
        self._replicas.stop(ended_roles(before, after, changed, gone, broker_id))
        self._replicas.become(new_roles(before, after, changed, broker_id))
        self._config_updates.apply(before, after)
        if before.client_quotas is not after.client_quotas:
            self._apply_quotas(before.client_quotas, after.client_quotas)

    def _apply_quotas(self, before: ClientQuotas, after: ClientQuotas) -> None:
        for key in before:
            if key not in after:
                self._quotas.set_limits(QuotaEntity(*key), {})
        for key, limits in after.items():
            entity = QuotaEntity(*key)
            # An address may be written in several ways, and one of them have gone.
            if before.get(key) is limits and entity.ip is None:
                continue
            self._quotas.set_limits(entity, limits)
            if entity.ip not in (None, DEFAULT) and address_of(entity.ip) is None:
                self._tasks.start(self._resolve(entity.ip))

    async def _resolve(self, name: str) -> None:
        """Finds the addresses of a host that has a quota by its name, as they are now."""
        try:
            found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except OSError as error:
            log.warning("the quota of %s has no effect: no address of it can be found: %s", name, error)
            return
        self._quotas.note_addresses(name, {str(address[0]) for *_, address in found})

    async def _delete_logs(self, topics: Sequence[TopicImage]) -> None:
        await self._replicas.opened(topic.name for topic in topics)
        partitions = [
            TopicPartition(topic.name, index) for topic in topics for index in range(len(topic.partitions))
        ]
        await self._mover.cancel(partitions)
        await self._background.run(partial(self._manager.delete_all, partitions))


def _listed(names: Sequence[str]) -> str:
    more = len(names) - NAMES_MAX
    return ", ".join(names[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")
