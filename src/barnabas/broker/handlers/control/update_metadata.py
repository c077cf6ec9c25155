"""UpdateMetadata, versions 0 to 8: the controller sends live brokers and partitions for this broker's metadata.

- Version 1 has several endpoints per broker, 2 racks, 3 names of listeners, 4 offline replicas; 5 groups partitions by
  topic and has the broker epoch; 7 has topic ids.
- Errors are those of LeaderAndIsr, for the whole request.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.control.checks import check_partitions
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.broker.upkeep.control_versions import update_metadata_as_received
from barnabas.coordination.metadata.updates import SECURITY_PROTOCOL_CODES
from barnabas.errors import InvalidRequest
from barnabas.protocol.messages.update_metadata_request import UpdateMetadataRequest
from barnabas.protocol.messages.update_metadata_response import UpdateMetadataResponse

_PROTOCOL_CODES: Final = frozenset(SECURITY_PROTOCOL_CODES.values())


def handle(broker: Broker, exchange: AnyExchange, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
    for each in request.live_brokers:
        if any(endpoint.security_protocol not in _PROTOCOL_CODES for endpoint in each.endpoints):
            raise InvalidRequest(f"broker {each.id} has an unknown security protocol")
    request = update_metadata_as_received(request, exchange.version, broker.image.topic_id)
    for topic in request.topic_states:
        check_partitions(topic.topic_name, (state.partition_index for state in topic.partition_states))
    return broker.control.update_metadata(request)


HANDLER: Final = Handler(UpdateMetadataRequest, UpdateMetadataResponse, handle)
