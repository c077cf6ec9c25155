"""SaslHandshake, versions 0 and 1: the client chooses a SASL mechanism.

The messages of the mechanism follow as bare bytes after version 0, and in SaslAuthenticate requests after version 1.
A client that has chosen a mechanism that the listener does not have gets the list, and the connection ends; without an
answer, as in Kafka, if the client authenticates again. Elsewhere than at the beginning of a connection of a SASL
listener, the answer is ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

import asyncio
from typing import Final

from barnabas.broker.authentication.authenticator import Authenticator
from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.errors import IllegalSaslState, UnsupportedSaslMechanism
from barnabas.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from barnabas.protocol.messages.sasl_handshake_response import SaslHandshakeResponse


def handle(broker: Broker, exchange: AnyExchange, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    authenticator = exchange.session.authentication
    if authenticator is None:
        return SaslHandshakeResponse(error_code=IllegalSaslState.code)
    assert isinstance(authenticator, Authenticator)
    mechanisms = authenticator.mechanisms
    try:
        authenticator.handshake(request.mechanism, exchange.version)
    except IllegalSaslState as error:
        if not authenticator.is_authenticated:
            authenticator.count_failure()
            asyncio.get_running_loop().call_soon(exchange.connection.fail, str(error))
        return SaslHandshakeResponse(error_code=IllegalSaslState.code)
    except UnsupportedSaslMechanism as error:
        if authenticator.is_authenticated:
            raise
        # After the answer the client can do nothing more on this connection.
        authenticator.count_failure()
        asyncio.get_running_loop().call_soon(exchange.connection.fail, str(error))
        return SaslHandshakeResponse(error_code=UnsupportedSaslMechanism.code, mechanisms=mechanisms)
    return SaslHandshakeResponse(mechanisms=mechanisms)


HANDLER: Final = Handler(SaslHandshakeRequest, SaslHandshakeResponse, handle)
