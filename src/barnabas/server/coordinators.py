"""The coordinators of groups and transactions."""

from __future__ import annotations

from random import Random

from barnabas.broker.coordinators.group_runtime import GroupRuntime
from barnabas.broker.coordinators.producer_ids import ProducerIds
from barnabas.broker.coordinators.runtime import Surroundings
from barnabas.broker.coordinators.transaction_markers import TransactionMarkers
from barnabas.broker.coordinators.transaction_runtime import TransactionRuntime
from barnabas.broker.parts import CoordinatorParts
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.upkeep.log_adoption import Adopted
from barnabas.broker.waiting.scheduling import Scheduling
from barnabas.coordination.writing.producer_ids import ProducerIdBlocks
from barnabas.server.cluster import Cluster


def start_coordinators(
    cluster: Cluster,
    replicas: ReplicaManager,
    adopted: Adopted,
    scheduling: Scheduling,
    rng: Random,
    blocks: ProducerIdBlocks,
) -> CoordinatorParts:
    surroundings = Surroundings(
        cluster.metadata,
        cluster.settings,
        cluster.writer.create_topics,
        replicas,
        scheduling,
    )
    groups = GroupRuntime(surroundings, rng)
    groups.begin()
    timeout_ms = cluster.settings.current.request_timeout_ms
    markers = TransactionMarkers(replicas, groups, scheduling.clock, timeout_ms=timeout_ms)
    blocks.raise_to(adopted.next_producer_id)
    producer_ids = ProducerIds(blocks, scheduling.tasks)
    transactions = TransactionRuntime(surroundings, markers, producer_ids)
    if transactions.topic in adopted.topics:
        transactions.learn_producer_ids()
    transactions.begin()
    return CoordinatorParts(
        groups=groups, transactions=transactions, markers=markers, producer_ids=producer_ids
    )
