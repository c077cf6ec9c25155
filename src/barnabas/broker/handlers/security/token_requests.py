"""What the requests about delegation tokens have in common.

A client may ask for tokens, renew and show them if it is authenticated, but not by a token. A user asks for tokens of
its own, and sees those that it owns or may renew.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.config.listeners import SecurityProtocol
from barnabas.coordination.writing.delegation_tokens import DelegationTokens
from barnabas.errors import DelegationTokenAuthDisabled, DelegationTokenRequestNotAllowed
from barnabas.security.principal import ANONYMOUS

# Of CreateDelegationToken and DescribeDelegationToken.
FIRST_VERSION_WITH_REQUESTER: Final = 3


def tokens_for(broker: Broker, exchange: AnyExchange) -> DelegationTokens:
    """Raises DelegationTokenRequestNotAllowed and DelegationTokenAuthDisabled."""
    check_allowed(broker, exchange)
    return enabled_tokens(broker)


def check_allowed(broker: Broker, exchange: AnyExchange) -> None:
    """Raises DelegationTokenRequestNotAllowed."""
    session = exchange.session
    protocol = next(
        (
            each.security_protocol
            for each in broker.config.endpoints
            if each.listener_name == session.listener
        ),
        SecurityProtocol.PLAINTEXT,
    )
    is_anonymous = protocol is SecurityProtocol.PLAINTEXT or session.principal == ANONYMOUS
    if is_anonymous or session.principal.has_token:
        raise DelegationTokenRequestNotAllowed("delegation tokens are for clients that log in without one")


def enabled_tokens(broker: Broker) -> DelegationTokens:
    """Raises DelegationTokenAuthDisabled."""
    if broker.delegation_tokens is None:
        raise DelegationTokenAuthDisabled("delegation.token.secret.key is not set")
    return broker.delegation_tokens
