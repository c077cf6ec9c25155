"""The coordinators of this broker of one kind: one for each partition that it leads of the topic of that kind.

The replica manager reports each change of roles. A partition that this broker leads is loaded, one after the other;
requests for its keys get COORDINATOR_LOAD_IN_PROGRESS until then. A partition that it leads no longer is unloaded at
once, also while it is being loaded: requests that wait get NOT_COORDINATOR.The
number of partitions is fixed when the topic is first seen, as in Apache Kafka: a key does not move while the broker
runs.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from typing import ClassVar, Final, Generic, NamedTuple, TypeVar

from barnabas.broker.coordinators.keys import partition_of_key
from barnabas.broker.coordinators.shell import CoordinatorShell
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.waiting.scheduling import Scheduling
from barnabas.config.live_settings import LiveSettings
from barnabas.coordination.metadata.cache import MetadataCache, Stage
from barnabas.coordination.metadata.image import MetadataImage, TopicImage
from barnabas.errors import CoordinatorNotAvailable, KafkaError, LeaderNotAvailable, NotCoordinator
from barnabas.model import TopicPartition

log = logging.getLogger(__name__)

# As long as Kafka's own metrics look back, and as many partitions as a topic of coordinators has.
_LOADS_SHOWN_NS: Final = 30_000_000_000
_LOADS_KEPT: Final = 50

# Creates topics that the broker needs; returns why some could not be.
CreateTopics = Callable[[Iterable[str]], Awaitable[Mapping[str, KafkaError]]]
ShellT = TypeVar("ShellT", bound=CoordinatorShell)


class Surroundings(NamedTuple):
    """The parts of the broker that coordinators of every kind need."""

    cache: MetadataCache
    settings: LiveSettings
    create_topics: CreateTopics
    replicas: ReplicaManager
    scheduling: Scheduling


class _Load(NamedTuple):
    ended_ns: int
    duration_ms: float


class CoordinatorRuntime(ABC, Generic[ShellT]):
    topic: ClassVar[str]
    # The purpose of the topic.
    purpose: ClassVar[str]

    def __init__(self, surroundings: Surroundings) -> None:
        self._cache = surroundings.cache
        self._live_settings = surroundings.settings
        self._create_topics = surroundings.create_topics
        self._replicas = surroundings.replicas
        self._tasks = surroundings.scheduling.tasks
        self._timer = surroundings.scheduling.timer
        self._clock = surroundings.scheduling.clock
        self._background = surroundings.scheduling.background
        # How long the last partitions took, and when that was.
        self._loads: deque[_Load] = deque(maxlen=_LOADS_KEPT)
        self._shells: dict[int, ShellT] = {}
        self._topic_id: bytes | None = None
        self._partition_count = 0
        self._creation_failure = ""
        self._is_creating = False
        self._is_ended = False

    @abstractmethod
    def _new_shell(self, partition: Partition) -> ShellT: ...

    @property
    @abstractmethod
    def _load_buffer_bytes(self) -> int: ...

    def _shell_loaded(self, shell: ShellT) -> None:
        """A partition has been read, if that was possible."""

    def begin(self) -> None:
        """Follows the metadata and the roles of partitions from now on."""
        self._follow(self._cache.image.topics.get(self.topic))
        self._cache.subscribe(Stage.COORDINATORS, self._on_image)
        self._replicas.on_roles(self._on_roles)

    def end(self) -> None:
        """The broker stops: clients that wait are sent away, and nothing is written any more."""
        self._is_ended = True
        for shell in self._shells.values():
            shell.unload()
        self._shells.clear()

    def __iter__(self) -> Iterator[ShellT]:
        return iter(self._shells.values())

    @property
    def has_topic(self) -> bool:
        return self.topic in self._cache.image.topics

    def create_topic(self) -> None:
        """Starts to create the topic, in the background."""
        if not self._is_creating:
            self._is_creating = True
            self._tasks.start(self._create_topic())

    async def _create_topic(self) -> None:
        try:
            await self.ensure_topic()
        except CoordinatorNotAvailable as error:
            log.debug("%s cannot be created: %s", self.topic, error)
        finally:
            self._is_creating = False

    async def ensure_topic(self) -> None:
        """Creates the topic if there is none. Raises CoordinatorNotAvailable if that is not possible."""
        if self.has_topic:
            return
        try:
            failed = await self._create_topics([self.topic])
            error = failed.get(self.topic)
        except KafkaError as failure:
            error = failure
        if isinstance(error, LeaderNotAvailable):
            # Another broker has created it a moment before, and its partitions are about to have leaders.
            raise CoordinatorNotAvailable(f"The coordinator is not available. {error}")
        if error is not None:
            if str(error) != self._creation_failure:
                # Clients only learn that there is no coordinator, and ask again and again.
                self._creation_failure = str(error)
                log.error("%s cannot be used, %s cannot be made: %s", self.purpose, self.topic, error)
            raise CoordinatorNotAvailable(f"The coordinator is not available. {error}")
        self._creation_failure = ""
        await self._replicas.opened([self.topic])

    def partition_of(self, key: str) -> int:
        """Raises CoordinatorNotAvailable while there is no topic."""
        if not self._partition_count:
            reason = f": {self._creation_failure}" if self._creation_failure else ""
            raise CoordinatorNotAvailable(
                f"The coordinator is not available. There is no topic {self.topic} yet{reason}"
            )
        return partition_of_key(key, self._partition_count)

    def shell_of(self, key: str) -> ShellT:
        """The coordinator of a key, ready for requests; raises why there is none."""
        return self.shell_at(self.partition_of(key) if self._partition_count else -1)

    def shell_at(self, index: int) -> ShellT:
        """The same by the partition of the topic."""
        shell = self._shells.get(index)
        if shell is None:
            raise NotCoordinator(f"this partition of {self.topic} is not coordinated here")
        shell.check_ready()
        return shell

    def _on_image(self, before: MetadataImage, after: MetadataImage) -> None:
        topic = after.topics.get(self.topic)
        if topic is not before.topics.get(self.topic):
            self._follow(topic)

    def _on_roles(self, topics: Collection[str]) -> None:
        if self.topic in topics:
            self._follow(self._cache.image.topics.get(self.topic))

    def _follow(self, topic: TopicImage | None) -> None:
        if self._is_ended:
            return
        topic_id = None if topic is None else topic.id
        if topic_id != self._topic_id:
            self._topic_id = topic_id
            self._partition_count = 0 if topic is None else len(topic.partitions)
        led = self._led_partitions(topic)
        for index, shell in list(self._shells.items()):
            if led.get(index) is not shell.partition or shell.is_outdated:
                del self._shells[index]
                shell.unload()
        new = {index: self._new_shell(led[index]) for index in led if index not in self._shells}
        if new:
            self._shells.update(new)
            self._tasks.start(self._load(new.values()))

    def _led_partitions(self, topic: TopicImage | None) -> dict[int, Partition]:
        if topic is None:
            return {}
        found = (
            self._replicas.find(TopicPartition(self.topic, index)) for index in range(self._partition_count)
        )
        return {
            index: partition
            for index, partition in enumerate(found)
            if partition is not None and partition.is_leader and not partition.is_offline
        }

    async def _load(self, shells: Iterable[ShellT]) -> None:
        for shell in shells:
            while self._replicas.is_opening([self.topic]):
                await self._replicas.opened([self.topic])
            if not shell.is_loading:
                # The role has changed while others were loaded.
                continue
            began_ns = self._clock.monotonic_ns()
            await shell.load(self._load_buffer_bytes, self._background)
            ended_ns = self._clock.monotonic_ns()
            self._loads.append(_Load(ended_ns, (ended_ns - began_ns) / 1e6))
            self._shell_loaded(shell)

    def load_times_ms(self) -> list[float]:
        """How long each partition took that was loaded in the last half minute."""
        since_ns = self._clock.monotonic_ns() - _LOADS_SHOWN_NS
        return [load.duration_ms for load in self._loads if load.ended_ns >= since_ns]
