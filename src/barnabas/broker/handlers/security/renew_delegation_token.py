"""RenewDelegationToken, versions 0 to 2: postpones the expiry of a token, at most to the end of its life."""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import coroutine_handler
from barnabas.broker.handlers.security.token_requests import tokens_for
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.errors import KafkaError
from barnabas.protocol.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from barnabas.protocol.messages.renew_delegation_token_response import RenewDelegationTokenResponse


async def handle(
    broker: Broker, exchange: AnyExchange, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    try:
        tokens = tokens_for(broker, exchange)
        expiry_ms = await tokens.renew(
            exchange.session.principal, bytes(request.hmac), request.renew_period_ms
        )
    except KafkaError as error:
        return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expiry_ms)


HANDLER: Final = coroutine_handler(RenewDelegationTokenRequest, RenewDelegationTokenResponse, handle)
