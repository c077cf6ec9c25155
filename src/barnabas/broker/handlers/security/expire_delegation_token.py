"""ExpireDelegationToken, versions 0 to 2: sets the expiry of a token, at once if the period is negative."""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import coroutine_handler
from barnabas.broker.handlers.security.token_requests import tokens_for
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.errors import KafkaError
from barnabas.protocol.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from barnabas.protocol.messages.expire_delegation_token_response import ExpireDelegationTokenResponse


async def handle(
    broker: Broker, exchange: AnyExchange, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    try:
        tokens = tokens_for(broker, exchange)
        expiry_ms = await tokens.expire(
            exchange.session.principal, bytes(request.hmac), request.expiry_time_period_ms
        )
    except KafkaError as error:
        return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry_ms)


HANDLER: Final = coroutine_handler(ExpireDelegationTokenRequest, ExpireDelegationTokenResponse, handle)
