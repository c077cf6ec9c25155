"""SaslAuthenticate, versions 0 to 2: a message of the SASL mechanism, and its answer.

From version 1 on, the last answer has the lifetime of the session, if it has an end. The answer to a client that is not
authenticated comes after `connection.failed.authentication.delay.ms`, and the connection ends.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from barnabas.broker.authentication.authenticator import Authenticator
from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.requests.exchange import Answer, Exchange, Parked
from barnabas.errors import IllegalSaslState, SaslAuthenticationFailed
from barnabas.net.connection import Connection
from barnabas.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse

_AFTER: Final = "SaslAuthenticate request received after successful authentication"


def handle(
    broker: Broker, exchange: Exchange[SaslAuthenticateResponse], request: SaslAuthenticateRequest
) -> Answer[SaslAuthenticateResponse]:
    authenticator = exchange.session.authentication
    if authenticator is None:
        return _illegal(_AFTER)
    assert isinstance(authenticator, Authenticator)
    message = bytes(request.auth_bytes)
    if authenticator.is_slow:
        return exchange.answer_from(_handle_slowly(authenticator, exchange, message))
    try:
        answer = authenticator.authenticate(message, exchange.version)
    except (IllegalSaslState, SaslAuthenticationFailed) as error:
        return _failed(authenticator, exchange, error)
    return _answered(authenticator, exchange, answer)


async def _handle_slowly(
    authenticator: Authenticator, exchange: Exchange[SaslAuthenticateResponse], message: bytes
) -> Answer[SaslAuthenticateResponse]:
    try:
        answer = await authenticator.authenticate_slowly(message, exchange.version)
    except (IllegalSaslState, SaslAuthenticationFailed) as error:
        return _failed(authenticator, exchange, error)
    return _answered(authenticator, exchange, answer)


HANDLER: Final = Handler(SaslAuthenticateRequest, SaslAuthenticateResponse, handle)


def _answered(
    authenticator: Authenticator, exchange: Exchange[SaslAuthenticateResponse], answer: bytes
) -> SaslAuthenticateResponse:
    lifetime_ms = authenticator.session_lifetime_ms if exchange.version >= 1 else 0
    return SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=lifetime_ms)


def _failed(
    authenticator: Authenticator,
    exchange: Exchange[SaslAuthenticateResponse],
    error: IllegalSaslState | SaslAuthenticationFailed,
) -> Answer[SaslAuthenticateResponse]:
    if isinstance(error, IllegalSaslState):
        return _illegal(str(error))
    parked = exchange.park()
    refusal = SaslAuthenticateResponse(
        error_code=SaslAuthenticationFailed.code, error_message=authenticator.message_of(error)
    )
    asyncio.get_running_loop().call_later(
        authenticator.failure_delay_s,
        partial(_refuse, parked, refusal, exchange.connection, authenticator.fail(error)),
    )
    return parked


def _illegal(message: str) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=IllegalSaslState.code, error_message=message)


def _refuse(
    parked: Parked[SaslAuthenticateResponse],
    refusal: SaslAuthenticateResponse,
    connection: Connection,
    reason: str,
) -> None:
    parked.answer(refusal)
    connection.fail(reason)
