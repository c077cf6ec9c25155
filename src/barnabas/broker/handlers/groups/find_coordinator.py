"""FindCoordinator, versions 0 to 6: the coordinator of a group, a transactional id or a share partition.

- Version 0 asks about a group; from version 1 on the key has a type, and an error a message.
- From version 4 on a request has many keys, each with its own error.
- There are no coordinators of share partitions.

The topic of the coordinators is created in the background when the first client asks. Until it exists the error is
COORDINATOR_NOT_AVAILABLE, and clients ask again.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from barnabas.broker.broker import Broker
from barnabas.broker.coordinators.runtime import CoordinatorRuntime
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.handlers.permissions import authorize
from barnabas.broker.requests.exchange import Answer, AnyExchange, Exchange
from barnabas.errors import NONE, CoordinatorNotAvailable, InvalidRequest, KafkaError
from barnabas.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from barnabas.protocol.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse
from barnabas.security.acls import DESCRIBE, GROUP, TRANSACTIONAL_ID

_FIRST_BATCHED: Final = 4
_GROUP: Final = 0
_TRANSACTION: Final = 1
_MALFORMED: Final = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an"
    " incompatible broker. See the broker logs for more details."
)


def handle(
    broker: Broker, exchange: Exchange[FindCoordinatorResponse], request: FindCoordinatorRequest
) -> Answer[FindCoordinatorResponse]:
    is_batched = exchange.version >= _FIRST_BATCHED

    def find(key: str) -> Coordinator:
        try:
            return _find(broker, exchange, request.key_type, key)
        except KafkaError as error:
            return Coordinator(key=key, node_id=-1, port=-1, error_code=error.code, error_message=str(error))

    keys = request.coordinator_keys if is_batched else [request.key]
    return exchange.answer_in_turns(broker.turns, keys, find, partial(_response, is_batched))


HANDLER: Final = Handler(FindCoordinatorRequest, FindCoordinatorResponse, handle)


def _runtime(broker: Broker, key_type: int) -> CoordinatorRuntime[Any] | None:
    if key_type == _GROUP:
        return broker.groups
    return broker.transactions if key_type == _TRANSACTION else None


def _response(is_batched: bool, found: list[Coordinator]) -> FindCoordinatorResponse:
    if is_batched:
        return FindCoordinatorResponse(coordinators=found)
    [one] = found
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _find(broker: Broker, exchange: AnyExchange, key_type: int, key: str) -> Coordinator:
    if key_type == _GROUP:
        authorize(broker, exchange, DESCRIBE, GROUP, key)
    elif key_type == _TRANSACTION:
        authorize(broker, exchange, DESCRIBE, TRANSACTIONAL_ID, key)
    runtime = _runtime(broker, key_type)
    if runtime is None:
        raise InvalidRequest(f"{_MALFORMED} There are no coordinators of type {key_type}.")
    if not runtime.has_topic:
        runtime.create_topic()
    image = broker.image
    topic = image.topics.get(runtime.topic)
    index = runtime.partition_of(key)
    leader = None if topic is None else image.brokers.get(topic.partitions[index].leader)
    endpoint = None if leader is None else leader.endpoint(exchange.session.listener)
    if leader is None or endpoint is None:
        raise CoordinatorNotAvailable(
            f"The coordinator is not available. Partition {index} of {runtime.topic} has no leader that can be reached"
        )
    return Coordinator(
        key=key,
        node_id=leader.id,
        host=endpoint.host,
        port=endpoint.port,
        error_code=NONE,
    )
