"""CreateDelegationToken, versions 0 to 3: a secret with which a client can log in as the owner, by SCRAM.

The owner is the client that asks. From version 3 on a request may name another owner, if an ACL allows it.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import coroutine_handler
from barnabas.broker.handlers.permissions import authorize
from barnabas.broker.handlers.security.token_requests import (
    FIRST_VERSION_WITH_REQUESTER,
    check_allowed,
    enabled_tokens,
)
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.errors import DelegationTokenAuthorizationFailed, InvalidPrincipalType, KafkaError
from barnabas.protocol.messages.create_delegation_token_request import CreateDelegationTokenRequest
from barnabas.protocol.messages.create_delegation_token_response import CreateDelegationTokenResponse
from barnabas.security.acls import CREATE_TOKENS
from barnabas.security.acls import USER as USER_RESOURCE
from barnabas.security.principal import USER, Principal


async def handle(
    broker: Broker, exchange: AnyExchange, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    requester = exchange.session.principal
    owner = requester
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or USER, request.owner_principal_name)
    renewers = tuple(Principal(each.principal_type, each.principal_name) for each in request.renewers)
    response = CreateDelegationTokenResponse(
        principal_type=owner.type,
        principal_name=owner.name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )
    if exchange.version >= FIRST_VERSION_WITH_REQUESTER:
        response.token_requester_principal_type = requester.type
        response.token_requester_principal_name = requester.name
    try:
        check_allowed(broker, exchange)
        if (owner.type, owner.name) != (requester.type, requester.name):
            if broker.authorization is None:
                raise DelegationTokenAuthorizationFailed("a user can create tokens of its own only")
            authorize(broker, exchange, CREATE_TOKENS, USER_RESOURCE, str(owner))
        if any(each.type != USER for each in renewers):
            raise InvalidPrincipalType("renewers must be users")
        # As in Kafka, the client learns last that there are no tokens.
        tokens = enabled_tokens(broker)
        token = await tokens.create(owner, requester, renewers, request.max_lifetime_ms)
    except KafkaError as error:
        response.error_code = error.code
        return response
    response.issue_timestamp_ms = token.issue_ms
    response.expiry_timestamp_ms = token.expiry_ms
    response.max_timestamp_ms = token.max_ms
    response.token_id = token.token_id
    response.hmac = tokens.secret_of(token.token_id)
    return response


HANDLER: Final = coroutine_handler(CreateDelegationTokenRequest, CreateDelegationTokenResponse, handle)
