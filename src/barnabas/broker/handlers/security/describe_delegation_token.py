"""DescribeDelegationToken, versions 0 to 3: the tokens that the client may describe, with their secrets.

Its own tokens, those that it may renew, and those that ACLs let it describe. A request may name owners: then those of
their tokens. A list without owners asks for no tokens, null for all.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.handlers.permissions import denies
from barnabas.broker.handlers.security.token_requests import FIRST_VERSION_WITH_REQUESTER, tokens_for
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.coordination.metadata.token_nodes import DelegationToken
from barnabas.errors import KafkaError
from barnabas.protocol.messages.describe_delegation_token_request import DescribeDelegationTokenRequest
from barnabas.protocol.messages.describe_delegation_token_response import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenResponse,
)
from barnabas.security.acls import DELEGATION_TOKEN, DESCRIBE, DESCRIBE_TOKENS, USER
from barnabas.security.principal import Principal


def handle(
    broker: Broker, exchange: AnyExchange, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    try:
        tokens = tokens_for(broker, exchange)
    except KafkaError as error:
        return DescribeDelegationTokenResponse(error_code=error.code)
    owners = request.owners
    wanted = (
        None if owners is None else [Principal(each.principal_type, each.principal_name) for each in owners]
    )
    has_requester = exchange.version >= FIRST_VERSION_WITH_REQUESTER
    return DescribeDelegationTokenResponse(
        tokens=[
            DescribedDelegationToken(
                principal_type=token.owner.type,
                principal_name=token.owner.name,
                token_requester_principal_type=token.requester.type if has_requester else "",
                token_requester_principal_name=token.requester.name if has_requester else "",
                issue_timestamp=token.issue_ms,
                expiry_timestamp=token.expiry_ms,
                max_timestamp=token.max_ms,
                token_id=token.token_id,
                hmac=tokens.secret_of(token.token_id),
                renewers=[
                    DescribedDelegationTokenRenewer(principal_type=each.type, principal_name=each.name)
                    for each in token.renewers
                ],
            )
            for token in tokens.all()
            if (wanted is None or any(token.is_shown_to(each) for each in wanted))
            and _may_describe(broker, exchange, token)
        ]
    )


def _may_describe(broker: Broker, exchange: AnyExchange, token: DelegationToken) -> bool:
    """Without an authorizer only the client's own: the secret of another user's token is that user's identity."""
    if token.is_shown_to(exchange.session.principal):
        return True
    return broker.authorization is not None and not (
        denies(broker, exchange, DESCRIBE, DELEGATION_TOKEN, token.token_id, is_logged=False)
        and denies(broker, exchange, DESCRIBE_TOKENS, USER, str(token.owner), is_logged=False)
    )


HANDLER: Final = Handler(DescribeDelegationTokenRequest, DescribeDelegationTokenResponse, handle)
