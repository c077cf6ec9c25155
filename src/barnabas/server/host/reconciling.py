"""Reconciles the store of a host with the log directories of its brokers, before any of them runs.

A single broker does the same when it starts (`broker/upkeep/log_adoption.py`); here the directories of all brokers have
to be seen together.

- After a crash, the leaders of a broker lead on in a new epoch: its logs may have lost their end.
- Topics that the store does not know, but whose directories exist, become topics again. Nothing is deleted from them
  until the user has confirmed their settings.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from random import SystemRandom
from typing import Final

from barnabas.clock import Clock
from barnabas.config.broker_config import BrokerConfig
from barnabas.coordination.metadata import tree
from barnabas.coordination.metadata.image import NO_LEADER, MetadataImage, TopicImage
from barnabas.coordination.metadata.nodes import create_topic
from barnabas.coordination.planning.topic_adoption import FoundPartition, plan_adoption
from barnabas.coordination.store.contract import Create, Operation, SetData, Store, children_of, ensure_path
from barnabas.log import names
from barnabas.log.checkpoints import BadCheckpoint, read_epochs, read_topic_id
from barnabas.log.file_system import FileSystem, StorageFailure
from barnabas.log.manager.directory_check import find_directories
from barnabas.model import NO_LEADER_EPOCH, BrokerId, LeaderEpoch, ProducerId, TopicPartition
from barnabas.value import replace

log = logging.getLogger("barnabas.server")

OPERATIONS_AT_ONCE: Final = 5_000
_FIRST_CONTROLLER_EPOCH: Final = 0


async def reconcile(
    store: Store,
    fs: FileSystem,
    clock: Clock,
    config: BrokerConfig,
    directories: Mapping[BrokerId, Sequence[str]],
) -> None:
    """`directories` are the log directories of each broker, the first broker first."""
    await ensure_path(store, tree.TOPICS)
    topics = await _stored_topics(store)
    unclean = {broker for broker, paths in directories.items() if not find_directories(fs, paths).is_clean}
    if unclean and topics:
        await _raise_epochs(store, topics, unclean)
    found = {broker: _unknown_partitions(fs, paths, topics) for broker, paths in directories.items()}
    if any(found.values()):
        await _adopt(store, clock, config, topics, found)


async def _stored_topics(store: Store) -> dict[str, tree.TopicAssignment]:
    listed = await children_of(store, tree.TOPICS)
    nodes = await store.get_all([tree.topic_path(name) for name in listed])
    return {
        name: tree.decode_topic(name, node[0])
        for name, node in zip(listed, nodes, strict=True)
        if node is not None
    }


async def _raise_epochs(
    store: Store, topics: Mapping[str, tree.TopicAssignment], unclean: set[BrokerId]
) -> None:
    partitions = [
        TopicPartition(name, index)
        for name, topic in topics.items()
        for index, assignment in topic.partitions.items()
        if not unclean.isdisjoint(assignment.replicas)
    ]
    nodes = await store.get_all([tree.partition_state_path(at) for at in partitions])
    changes: list[Operation] = []
    for at, node in zip(partitions, nodes, strict=True):
        if node is None:
            # The controller makes it.
            continue
        state = tree.decode_partition_state(at, node[0])
        if state.leader in unclean:
            raised = replace(state, leader_epoch=LeaderEpoch(state.leader_epoch + 1))
            data = tree.encode_partition_state(raised)
            changes.append(SetData(tree.partition_state_path(at), data, node[1].version))
    for start in range(0, len(changes), OPERATIONS_AT_ONCE):
        await store.multi(changes[start : start + OPERATIONS_AT_ONCE])


def _unknown_partitions(
    fs: FileSystem, directories: Sequence[str], topics: Mapping[str, object]
) -> dict[TopicPartition, FoundPartition]:
    """Partitions with a log there whose topic the store does not know."""
    found = {}
    for directory in directories:
        try:
            listed = fs.list_dir(directory) if fs.is_dir(directory) else []
        except StorageFailure:
            # Its broker reports it.
            continue
        for name in listed:
            try:
                parsed = names.parse_partition_dir(name)
            except names.BadDirectoryName:
                continue
            at, path = parsed.partition, os.path.join(directory, name)
            is_log = not parsed.mark and at.topic != names.METADATA_TOPIC and fs.is_dir(path)
            if is_log and at.topic not in topics:
                found[at] = _found(fs, path)
    return found


def _found(fs: FileSystem, path: str) -> FoundPartition:
    topic_id, epochs = None, []
    try:
        topic_id = read_topic_id(fs, os.path.join(path, names.PARTITION_METADATA))
        epochs = read_epochs(fs, os.path.join(path, names.LEADER_EPOCH_CHECKPOINT))
    except (BadCheckpoint, StorageFailure) as error:
        log.error("%s: %s", path, error)
    return FoundPartition(topic_id, epochs[-1][0] if epochs else NO_LEADER_EPOCH)


async def _adopt(
    store: Store,
    clock: Clock,
    config: BrokerConfig,
    topics: Mapping[str, tree.TopicAssignment],
    found: Mapping[BrokerId, Mapping[TopicPartition, FoundPartition]],
) -> None:
    known = [
        TopicImage(name=name, id=topic.topic_id or bytes(16), partitions=()) for name, topic in topics.items()
    ]
    image = MetadataImage(cluster_id="", controller_id=NO_LEADER).with_topics(known)
    # Of several replicas, the one with the latest leader epoch leads, and the others follow it.
    replicas: dict[TopicPartition, list[BrokerId]] = {}
    best: dict[TopicPartition, FoundPartition] = {}
    for broker, partitions in found.items():
        for at, partition in partitions.items():
            is_best = at not in best or partition.leader_epoch > best[at].leader_epoch
            replicas.setdefault(at, []).insert(0 if is_best else len(replicas[at]), broker)
            if is_best:
                best[at] = partition
    planned = plan_adoption(image, next(iter(found)), config, best, SystemRandom(), replicas)
    await ensure_path(store, "/config/topics")
    for each in planned:
        name = each.topic.name
        path, settings = tree.config_path("topics", name), tree.encode_config(each.configs)
        # The store may have lost the topic, and not its settings; they were not confirmed for these logs.
        has_settings = await store.exists(path) is not None
        operations: list[Operation] = [
            SetData(path, settings) if has_settings else Create(path, settings),
            *create_topic(each.topic, _FIRST_CONTROLLER_EPOCH),
        ]
        for start in range(0, len(operations), OPERATIONS_AT_ONCE):
            await store.multi(operations[start : start + OPERATIONS_AT_ONCE])
        log.error(
            "Topic %s was found on the disk, but the store does not know it. The brokers take it over; its settings are"
            " lost",
            name,
        )
    if planned:
        log.error("If the store was lost, set quotas and settings of brokers and groups again, too")
        await _skip_producer_ids(store, clock)


async def _skip_producer_ids(store: Store, clock: Clock) -> None:
    """Producers of the adopted logs keep their ids. Ids are given out from 0 up, and never reach the time in ms."""
    await ensure_path(store, tree.PRODUCER_ID_BLOCK)
    data, stat = await store.get(tree.PRODUCER_ID_BLOCK)
    now = clock.now_ms()
    if data and tree.decode_producer_id_block(data).last >= now:
        return
    block = tree.ProducerIdBlock(broker_id=BrokerId(0), first=ProducerId(now), last=ProducerId(now))
    await store.set(tree.PRODUCER_ID_BLOCK, tree.encode_producer_id_block(block), version=stat.version)
