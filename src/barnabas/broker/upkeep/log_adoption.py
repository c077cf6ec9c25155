"""Reconciles the store with the log directories, when a broker with an embedded store starts.

Directories that the store does not know become topics again; nothing is deleted from others that belong to no
partition.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas.config.log_config import DELETION_HOLD
from barnabas.coordination.controller.controller import Controller
from barnabas.coordination.metadata.image import MetadataImage
from barnabas.coordination.planning.topic_adoption import FoundPartition
from barnabas.log.manager.manager import LogManager
from barnabas.model import NO_LEADER_EPOCH, BrokerId, ProducerId
from barnabas.value import replace

log = logging.getLogger(__name__)

# A line of the log lists at most this many names.
NAMES_MAX: Final = 20


class Adopted(NamedTuple):
    """Topics that the store did not know, and an id above those of all their producers."""

    topics: frozenset[str]
    next_producer_id: ProducerId


NOTHING_ADOPTED: Final = Adopted(frozenset(), ProducerId(0))


async def adopt_unknown_logs(controller: Controller, image: MetadataImage, manager: LogManager) -> Adopted:
    """Creates topics for logs whose topics the store does not know."""
    unknown = [
        each
        for each in manager.logs()
        # A future log gives no information if the log that it was to replace is gone.
        if each.topic_partition.topic not in image.topics and each is manager.log(each.topic_partition)
    ]
    if not unknown:
        return NOTHING_ADOPTED
    adopted = await controller.adopt_topics(
        {
            each.topic_partition: FoundPartition(
                topic_id=each.topic_id,
                leader_epoch=NO_LEADER_EPOCH if each.latest_epoch is None else each.latest_epoch,
            )
            for each in unknown
        }
    )
    for topic in adopted:
        log.error(
            "Topic %s was found on the disk, but the store does not know it. The broker takes it over; its settings are"
            " lost",
            topic.name,
        )
        # The logs were opened before it was a topic.
        manager.update_config(topic.name)
    if adopted:
        log.error("If the store was lost, set quotas and settings of brokers and groups again, too")
    # Producers of these logs keep their ids, so new ids are above them.
    ids = (producer.producer_id for each in unknown for producer in each.active_producers())
    return Adopted(frozenset(topic.name for topic in adopted), ProducerId(max(ids, default=-1) + 1))


def hold_strays(image: MetadataImage, manager: LogManager) -> None:
    """Prevents deletion in directories that belong to no partition of the image: their content is unknown."""
    for each in manager.logs():
        at = each.topic_partition
        topic = image.topics.get(at.topic)
        is_known = topic is not None and at.partition < len(topic.partitions)
        if is_known and topic is not None and each.topic_id in (None, topic.id):
            continue
        log.error("%s belongs to no partition that the store knows, and is left alone", each.directory)
        each.update_config(replace(each.config, barnabas_deletion_hold=True))


def report_problems(image: MetadataImage, broker_id: BrokerId) -> None:
    """Logs what an administrator has to settle."""
    held = sorted(name for name, config in image.topic_configs.items() if config.get(DELETION_HOLD) == "true")
    if held:
        log.warning(
            "Nothing is deleted or compacted in %d topics until their settings are confirmed: %s. Set what each"
            " needs and end the hold: barnabas configs alter topic TOPIC retention.ms=... --delete %s",
            *(len(held), _listed(held), DELETION_HOLD),
        )
    foreign = [
        f"{name}-{index} (broker {partition.replicas[0]})"
        for name, topic in image.topics.items()
        for index, partition in enumerate(topic.partitions)
        if not image.brokers.keys() & set(partition.replicas)
    ]
    if foreign:
        log.error(
            "%d partitions have no leader: their replicas are on unknown brokers, and this is broker %d."
            " Start it with the broker.id and the log.dirs that it had: %s",
            *(len(foreign), broker_id, _listed(foreign)),
        )


def _listed(names: Sequence[str]) -> str:
    more = len(names) - NAMES_MAX
    return ", ".join(names[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")
