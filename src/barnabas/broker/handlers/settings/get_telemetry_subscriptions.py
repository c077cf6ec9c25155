"""GetTelemetrySubscriptions, version 0: which metrics a client should push, and how often (KIP-714).

A client without an id gets one. A client that asks again before its interval has passed is THROTTLING_QUOTA_EXCEEDED,
unless its last push was refused with an error that makes it ask.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.errors import KafkaError
from barnabas.protocol.messages.get_telemetry_subscriptions_request import GetTelemetrySubscriptionsRequest
from barnabas.protocol.messages.get_telemetry_subscriptions_response import GetTelemetrySubscriptionsResponse
from barnabas.records.layout import CompressionType

# In the order of Apache Kafka's preference.
_COMPRESSIONS: Final = (
    CompressionType.ZSTD,
    CompressionType.LZ4,
    CompressionType.GZIP,
    CompressionType.SNAPPY,
)


def handle(
    broker: Broker, exchange: AnyExchange, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    try:
        instance_id, instance = broker.client_metrics.subscription(
            bytes(request.client_instance_id), client_attributes(exchange)
        )
    except KafkaError as error:
        return GetTelemetrySubscriptionsResponse(error_code=error.code)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=[int(each) for each in _COMPRESSIONS],
        push_interval_ms=instance.interval_ms,
        telemetry_max_bytes=broker.client_metrics.telemetry_max_bytes,
        delta_temporality=True,
        requested_metrics=sorted(instance.metrics),
    )


HANDLER: Final = Handler(GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse, handle)


def client_attributes(exchange: AnyExchange) -> dict[str, str]:
    """The attributes of a client that a subscription may match."""
    session = exchange.session
    return {
        "client_id": exchange.client_id,
        "client_software_name": session.client_software_name,
        "client_software_version": session.client_software_version,
        "client_source_address": session.host,
        "client_source_port": exchange.connection.peer.rpartition(":")[2],
    }
