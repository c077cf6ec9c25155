"""Which broker coordinates a group or a transactional id: asked for once, and again when it has moved."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from barnabas.client.connections.brokers import Brokers
from barnabas.errors import (
    NONE,
    CoordinatorNotAvailable,
    KafkaError,
    NetworkException,
    NotCoordinator,
    RequestTimedOut,
    error_for_code,
)
from barnabas.peers.node import Node
from barnabas.protocol.apis import api_for_name
from barnabas.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from barnabas.protocol.messages.find_coordinator_response import FindCoordinatorResponse

FIND_COORDINATOR: Final = api_for_name("FindCoordinator")
FIRST_VERSION_WITH_BATCHES: Final = 4
MOVED: Final = frozenset(
    {NetworkException.code, RequestTimedOut.code, CoordinatorNotAvailable.code, NotCoordinator.code}
)


class CoordinatorType(IntEnum):
    GROUP = 0
    TRANSACTION = 1


class Coordinator:
    """The coordinator of one key. An error of an answer goes to `forget_if_moved`."""

    def __init__(self, brokers: Brokers, kind: CoordinatorType, key: str) -> None:
        self._brokers = brokers
        self._kind = kind
        self._key = key
        self._node: int | None = None

    @property
    def node(self) -> int | None:
        """The node id, if it is known."""
        return self._node

    async def find(self, timeout_ms: float | None = None) -> int:
        """The node id; raises CoordinatorNotAvailable and the like, which may be retried."""
        if self._node is not None:
            return self._node
        link = await self._brokers.link()
        batched = link.version_of(FIND_COORDINATOR) >= FIRST_VERSION_WITH_BATCHES
        request = (
            FindCoordinatorRequest(key_type=int(self._kind), coordinator_keys=[self._key])
            if batched
            else FindCoordinatorRequest(key_type=int(self._kind), key=self._key)
        )
        answer: FindCoordinatorResponse = await self._brokers.request(
            link.node.id, request, timeout_ms=timeout_ms
        )
        if batched:
            if len(answer.coordinators) != 1:
                raise NetworkException(f"{len(answer.coordinators)} coordinators were named for one key")
            found = answer.coordinators[0]
            code, message = found.error_code, found.error_message
            node = Node(found.node_id, found.host, found.port)
        else:
            code, message = answer.error_code, answer.error_message
            node = Node(answer.node_id, answer.host, answer.port)
        if code != NONE:
            raise error_for_code(code, message or "")
        self._brokers.learn(node)
        self._node = node.id
        return node.id

    def forget(self) -> None:
        """It has to be asked for again."""
        self._node = None

    def forget_if_moved(self, error: KafkaError) -> bool:
        """Forgets the coordinator if the error says that it is elsewhere or cannot be reached; whether it did."""
        moved = error.code in MOVED
        if moved:
            self._node = None
        return moved
