"""Topics that are created automatically, in the background, because a client uses them.

A client that names a missing topic gets UNKNOWN_TOPIC_OR_PARTITION at once and retries, as in Apache Kafka. A topic
counts as missing until its partitions can be used, and is created once however many clients ask for it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from typing import Final

from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.requests.deadlines import OPENING_WAIT_S
from barnabas.broker.waiting.tasks import Tasks
from barnabas.coordination.planning.topic_creation import Charge
from barnabas.errors import KafkaError, LeaderNotAvailable, NotController, ThrottlingQuotaExceeded

log = logging.getLogger(__name__)

# Clients ask for a topic that cannot be created again and again: each reason is logged once.
_REASONS_KEPT: Final = 100
# A client may name thousands of missing topics. Other requests run in between.
CREATED_AT_ONCE: Final = 100


# Creates topics that clients use, and charges for them; returns why some could not be.
CreateTopics = Callable[[Iterable[str], Charge], Awaitable[Mapping[str, KafkaError]]]


class AutomaticTopics:
    def __init__(self, create_topics: CreateTopics, replicas: ReplicaManager, tasks: Tasks) -> None:
        self._create_topics = create_topics
        self._replicas = replicas
        self._tasks = tasks
        self._under_way: set[str] = set()
        self._reasons: deque[str] = deque(maxlen=_REASONS_KEPT)

    @property
    def under_way(self) -> Container[str]:
        """Topics that are being created."""
        return self._under_way

    def create(self, names: Iterable[str], charge: Charge) -> None:
        """Starts to create topics. Whether that is possible shows in the log, and in the next image."""
        new = [name for name in dict.fromkeys(names) if name not in self._under_way]
        if new:
            self._under_way.update(new)
            self._tasks.start(self._create(new, charge))

    async def _create(self, names: list[str], charge: Charge) -> None:
        try:
            for start in range(0, len(names), CREATED_AT_ONCE):
                failed = await self._create_topics(names[start : start + CREATED_AT_ONCE], charge)
                for name, error in failed.items():
                    self._log_failure(name, error)
            await self._replicas.opened(names, OPENING_WAIT_S)
        except NotController as error:
            log.debug("Topics %s are not created: %s", ", ".join(names), error)
        finally:
            self._under_way.difference_update(names)

    def _log_failure(self, name: str, error: KafkaError) -> None:
        reason = f"{name}: {error}"
        if isinstance(error, ThrottlingQuotaExceeded | LeaderNotAvailable):
            # Later, or by another broker of the cluster.
            log.debug("Topic %s is not created yet: %s", name, error)
        elif reason not in self._reasons:
            self._reasons.append(reason)
            log.warning("Topic %s cannot be created automatically: %s", name, error)
