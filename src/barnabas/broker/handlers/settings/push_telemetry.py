"""PushTelemetry, version 0: metrics of a client, which the broker shows among its own (KIP-714).

A push that comes too early is THROTTLING_QUOTA_EXCEEDED, a push for outdated subscriptions is UNKNOWN_SUBSCRIPTION_ID,
and metrics that cannot be read are INVALID_RECORD.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.handlers.settings.get_telemetry_subscriptions import client_attributes
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.errors import KafkaError
from barnabas.protocol.messages.push_telemetry_request import PushTelemetryRequest
from barnabas.protocol.messages.push_telemetry_response import PushTelemetryResponse


def handle(broker: Broker, exchange: AnyExchange, request: PushTelemetryRequest) -> PushTelemetryResponse:
    try:
        broker.client_metrics.push(
            bytes(request.client_instance_id),
            client_attributes(exchange),
            subscription_id=request.subscription_id,
            is_terminating=request.terminating,
            compression=request.compression_type,
            data=bytes(request.metrics),
        )
    except KafkaError as error:
        return PushTelemetryResponse(error_code=error.code)
    return PushTelemetryResponse()


HANDLER: Final = Handler(PushTelemetryRequest, PushTelemetryResponse, handle)
