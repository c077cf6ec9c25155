"""The coordinators of groups and transactions."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.coordinators.group_runtime import GroupRuntime
from barnabas.broker.coordinators.producer_ids import ProducerIds
from barnabas.broker.coordinators.runtime import Surroundings
from barnabas.broker.coordinators.transaction_markers import TransactionMarkers
from barnabas.broker.coordinators.transaction_runtime import Remote, TransactionRuntime
from barnabas.broker.parts import CoordinatorParts
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.upkeep.log_adoption import Adopted
from barnabas.broker.waiting.scheduling import Scheduling
from barnabas.coordination.metadata.features import TRANSACTION_VERSION
from barnabas.coordination.metadata.store_errors import as_kafka_error
from barnabas.coordination.metadata.tree import decode_topic, topic_path
from barnabas.coordination.store.contract import NoNode, StoreError
from barnabas.coordination.writing.producer_ids import ProducerIdBlocks
from barnabas.server.cluster import Cluster

if TYPE_CHECKING:
    from barnabas.broker.coordinators.destinations import Peers
    from barnabas.coordination.writing.controller_producer_ids import AskController, ControllerProducerIds


MARKERS_WITH_VERSION: Final = 2
FIRST_LEVEL_WITH_EPOCHS: Final = 2


class CoordinatorLinks(NamedTuple):
    """The ways of coordinators to the other brokers of a cluster. A single node has none."""

    peers: Peers
    # `ControllerChannel.ask`; None if the protocol level is too low for AllocateProducerIds.
    ask_controller: AskController | None


def producer_id_blocks(
    cluster: Cluster, links: CoordinatorLinks | None
) -> ProducerIdBlocks | ControllerProducerIds:
    """Blocks of producer ids: from the controller of a cluster, else from the store."""
    if links is None or links.ask_controller is None:
        return ProducerIdBlocks(cluster.session, cluster.broker_id)
    from barnabas.coordination.writing.controller_producer_ids import ControllerProducerIds

    return ControllerProducerIds(links.ask_controller, cluster.broker_id, lambda: cluster.registration.epoch)


def start_coordinators(
    cluster: Cluster,
    replicas: ReplicaManager,
    adopted: Adopted,
    scheduling: Scheduling,
    rng: Random,
    blocks: ProducerIdBlocks | ControllerProducerIds,
    links: CoordinatorLinks | None = None,
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
    markers = TransactionMarkers(replicas, groups, scheduling.clock, scheduling.turns, timeout_ms=timeout_ms)
    blocks.raise_to(adopted.next_producer_id)
    producer_ids = ProducerIds(blocks, scheduling.tasks)
    remote = None if links is None else _remote(cluster, scheduling, links, timeout_ms)
    transactions = TransactionRuntime(surroundings, markers, producer_ids, remote)
    if transactions.topic in adopted.topics:
        transactions.learn_producer_ids()
    transactions.begin()
    return CoordinatorParts(
        groups=groups, transactions=transactions, markers=markers, producer_ids=producer_ids
    )


def _remote(cluster: Cluster, scheduling: Scheduling, links: CoordinatorLinks, timeout_ms: int) -> Remote:
    from barnabas.broker.coordinators.remote_markers import RemoteMarkers
    from barnabas.broker.coordinators.remote_verification import RemoteVerification

    async def partition_count(name: str) -> int:
        try:
            data, _ = await cluster.session.get(topic_path(name))
            return len(decode_topic(name, data).partitions)
        except NoNode:
            return 0
        except StoreError as error:
            raise as_kafka_error(error) from error

    def markers_version() -> int | None:
        # Later than the protocol level has it. It tells the version of the transaction; all brokers know it then.
        level = cluster.metadata.image.features.level(TRANSACTION_VERSION)
        return MARKERS_WITH_VERSION if level >= FIRST_LEVEL_WITH_EPOCHS else None

    tasks = scheduling.tasks
    return Remote(
        RemoteMarkers(links.peers, tasks, partition_count, timeout_ms=timeout_ms, version=markers_version),
        RemoteVerification(links.peers, tasks, timeout_ms=timeout_ms),
    )
