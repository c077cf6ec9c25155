"""The transaction coordinators of this broker: one for each partition of `__transaction_state` that it leads.

A transaction's markers go to the leaders of its partitions. Those that this broker leads are written by a direct call;
a partition that has been deleted needs none. In a cluster, `Remote` reaches the other brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from barnabas.broker.coordinators.producer_ids import ProducerIds
from barnabas.broker.coordinators.runtime import CoordinatorRuntime, Surroundings
from barnabas.broker.replication.partition import Partition
from barnabas.config.broker_config import BrokerConfig
from barnabas.coordination.metadata.features import TRANSACTION_VERSION
from barnabas.coordination.metadata.image import MetadataImage
from barnabas.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidRequest,
    KafkaError,
    LeaderNotAvailable,
)
from barnabas.model import BrokerId, ProducerEpoch, ProducerId, TopicPartition
from barnabas.transactions.producer import TRANSACTION_VERSION_2, ProducerIdAndEpoch
from barnabas.transactions.settings import TransactionSettings

if TYPE_CHECKING:
    from barnabas.broker.coordinators.remote_markers import RemoteMarkers
    from barnabas.broker.coordinators.remote_verification import RemoteVerification
    from barnabas.broker.coordinators.transaction_shell import MarkersWritten, TransactionShell
    from barnabas.transactions.markers import Markers

TRANSACTIONS_TOPIC: Final = "__transaction_state"

# In place of a leader: a partition without one that can be reached, and one that the metadata does not have.
_UNKNOWN: Final = BrokerId(-1)
_DELETED: Final = BrokerId(-2)

PartitionsVerified = Callable[[dict[TopicPartition, KafkaError | None]], None]


class MarkerWriter(Protocol):
    """Writes markers to partitions of this broker."""

    def write_markers(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        partitions: Iterable[TopicPartition],
        then: MarkersWritten,
        *,
        transaction_version: int,
    ) -> None: ...


class Remote:
    """The ways to other brokers. A broker that is alone has none."""

    def __init__(self, markers: RemoteMarkers, verification: RemoteVerification) -> None:
        self.markers = markers
        self.verification = verification


class TransactionRuntime(CoordinatorRuntime["TransactionShell"]):
    topic = TRANSACTIONS_TOPIC
    purpose = "transactions"

    def __init__(
        self,
        surroundings: Surroundings,
        markers: MarkerWriter,
        producer_ids: ProducerIds,
        remote: Remote | None = None,
    ) -> None:
        super().__init__(surroundings)
        self._remote = remote
        if remote is not None:
            remote.markers.begin(self._is_coordinator)
        self._markers = markers
        self._producer_ids = producer_ids
        self._settings = transaction_settings(surroundings.settings.current)
        self._knows_producer_ids = asyncio.Event()
        self._knows_producer_ids.set()

    @property
    def settings(self) -> TransactionSettings:
        return self._settings

    @property
    def _load_buffer_bytes(self) -> int:
        return self._live_settings.current.transaction_state_log_load_buffer_size

    def _new_shell(self, partition: Partition) -> TransactionShell:
        # A broker that has no transactions starts sooner, and is smaller, without all that belongs to them.
        from barnabas.broker.coordinators.transaction_shell import TransactionShell
        from barnabas.transactions.coordinator import TransactionCoordinator

        return TransactionShell(
            partition,
            TransactionCoordinator(self._settings, self._new_producer_id, self._level),
            self._send_markers,
            timer=self._timer,
            clock=self._clock,
        )

    def _level(self) -> int:
        return self._cache.image.features.level(TRANSACTION_VERSION)

    def _new_producer_id(self) -> ProducerId:
        if not self._knows_producer_ids.is_set():
            raise CoordinatorLoadInProgress("which producer ids are in use is still being read")
        return self._producer_ids.take()

    def learn_producer_ids(self) -> None:
        """The topic has come with its directory from elsewhere: no id is given before all of its ids are known."""
        self._knows_producer_ids.clear()

    def begin(self) -> None:
        super().begin()
        if not self._shells:
            # There is nothing to read them from.
            self._knows_producer_ids.set()

    async def wait_for_producer_ids(self) -> None:
        """Returns when no producer id of the topic can be given again."""
        await self._knows_producer_ids.wait()

    async def _load(self, shells: Iterable[TransactionShell]) -> None:
        try:
            await super()._load(shells)
        finally:
            self._knows_producer_ids.set()

    def _on_image(self, before: MetadataImage, after: MetadataImage) -> None:
        super()._on_image(before, after)
        if self._remote is not None and before.topics is not after.topics:
            # Partitions may have the leader that markers wait for.
            for shell in self._shells.values():
                shell.retry_soon()

    def _shell_loaded(self, shell: TransactionShell) -> None:
        if self._remote is not None:
            # The controller knows the ids of all brokers, and gives each only once.
            return
        next_id = ProducerId(1 + shell.coordinator.highest_producer_id())
        self._producer_ids.skip_to(next_id)

    def shell_of_named(self, transactional_id: str) -> TransactionShell:
        """The coordinator of a transactional id, which has to be one."""
        if not transactional_id:
            raise InvalidRequest("a transactional id is not empty")
        return self.shell_of(transactional_id)

    def verify_partitions(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        partitions: Iterable[TopicPartition],
        add: bool,
        then: PartitionsVerified,
    ) -> None:
        """Asks the coordinator whether the partitions are part of the producer's open transaction.

        With `add` (transaction version 2) they become so, and a transaction begins if there is none. `then` is called
        exactly once, perhaps before this returns: for each partition None, or the coordinator's error as it stands.
        """
        asked = frozenset(partitions)
        producer = ProducerIdAndEpoch(producer_id, producer_epoch)
        try:
            if self._is_elsewhere(transactional_id):
                self._ask_coordinator(transactional_id, producer, tuple(asked), add, then)
                return
            shell = self.shell_of_named(transactional_id)
        except KafkaError as error:
            then(dict.fromkeys(asked, error))
            return
        coordinator = shell.coordinator
        if not add:
            then(coordinator.verify_partitions(transactional_id, producer, asked))
            return

        def answer(error: KafkaError | None) -> None:
            then(dict.fromkeys(asked, error))

        shell.carry_out(
            coordinator.add_partitions(
                transactional_id, producer, asked, TRANSACTION_VERSION_2, answer, self._clock.now_ms()
            )
        )

    def _is_elsewhere(self, transactional_id: str) -> bool:
        return self._remote is not None and self._coordinator_of(transactional_id) != self._replicas.broker_id

    def _coordinator_of(self, transactional_id: str) -> BrokerId:
        """The broker that coordinates a transactional id, by the metadata. Raises CoordinatorNotAvailable."""
        image = self._cache.image
        topic = image.topics.get(self.topic)
        index = self.partition_of(transactional_id)
        leader = None if topic is None else topic.partitions[index].leader
        if leader is None or leader not in image.brokers:
            raise CoordinatorNotAvailable(f"Partition {index} of {self.topic} has no leader")
        return leader

    def _ask_coordinator(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Sequence[TopicPartition],
        add: bool,
        then: PartitionsVerified,
    ) -> None:
        from barnabas.broker.coordinators.remote_verification import Question

        assert self._remote is not None
        self._remote.verification.ask(
            self._coordinator_of(transactional_id),
            Question(transactional_id, producer.producer_id, producer.producer_epoch, partitions, add, then),
        )

    def _is_coordinator(self, transactional_id: str, coordinator_epoch: int) -> bool:
        try:
            return self.shell_of(transactional_id).coordinator_epoch == coordinator_epoch
        except KafkaError:
            return False

    def _send_markers(self, markers: Markers, coordinator_epoch: int, then: MarkersWritten) -> None:
        """Results come for all partitions at once, when each has its own."""
        by_leader = self._by_leader(markers.partitions)
        results: dict[TopicPartition, KafkaError | None] = {}
        ways = len(by_leader)

        def written(found: dict[TopicPartition, KafkaError | None]) -> None:
            nonlocal ways
            results.update(found)
            ways -= 1
            if ways == 0:
                then(results)

        for leader, partitions in by_leader.items():
            if leader == self._replicas.broker_id:
                self._markers.write_markers(
                    markers.producer_id,
                    markers.producer_epoch,
                    coordinator_epoch,
                    markers.is_commit,
                    partitions,
                    written,
                    transaction_version=markers.version,
                )
            elif leader == _UNKNOWN:
                written(
                    {
                        key: LeaderNotAvailable(f"{key} has no leader that can be reached")
                        for key in partitions
                    }
                )
            elif leader != _DELETED:
                assert self._remote is not None
                self._remote.markers.send(leader, markers, coordinator_epoch, partitions, written)
            elif self._remote is not None:
                self._remote.markers.settle_missing(partitions, written)
            else:
                # All records of the transaction in these partitions are gone.
                written(dict.fromkeys(partitions))

    def _by_leader(self, partitions: Iterable[TopicPartition]) -> dict[BrokerId, list[TopicPartition]]:
        """The partitions by the broker that leads them. Others are under `_UNKNOWN` or `_DELETED`."""
        image = self._cache.image
        found: dict[BrokerId, list[TopicPartition]] = {}
        for key in partitions:
            topic = image.topics.get(key.topic)
            if topic is None or key.partition >= len(topic.partitions):
                leader = _DELETED
            else:
                leader = topic.partitions[key.partition].leader
                is_reached = leader == self._replicas.broker_id or (
                    self._remote is not None and leader in image.brokers
                )
                leader = leader if is_reached else _UNKNOWN
            found.setdefault(leader, []).append(key)
        return found


def transaction_settings(config: BrokerConfig) -> TransactionSettings:
    return TransactionSettings(
        transaction_max_timeout_ms=config.transaction_max_timeout_ms,
        transactional_id_expiration_ms=config.transactional_id_expiration_ms,
        abort_timed_out_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        remove_expired_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
    )
