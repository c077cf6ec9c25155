"""DescribeUserScramCredentials, version 0: which users have SCRAM credentials, and of which mechanism; no secrets.

No users, or null, ask for all users with credentials. A user that is named twice is DUPLICATE_RESOURCE, a user without
credentials RESOURCE_NOT_FOUND.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.errors import DuplicateResource, ResourceNotFound
from barnabas.protocol.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
)
from barnabas.protocol.messages.describe_user_scram_credentials_response import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

# Codes of the protocol.
MECHANISM_CODES: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


def handle(
    broker: Broker, exchange: AnyExchange, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    counts = Counter(user.name for user in request.users or ())
    return DescribeUserScramCredentialsResponse(
        results=[_result(broker, user, counts[user]) for user in (counts or broker.image.scram_credentials)]
    )


HANDLER: Final = Handler(DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse, handle)


def _result(broker: Broker, user: str, count: int) -> DescribeUserScramCredentialsResult:
    if count > 1:
        return DescribeUserScramCredentialsResult(
            user=user,
            error_code=DuplicateResource.code,
            error_message=f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}",
        )
    credentials = broker.image.scram_credentials.get(user)
    if credentials is None:
        return DescribeUserScramCredentialsResult(
            user=user,
            error_code=ResourceNotFound.code,
            error_message=f"Attempt to describe a user credential that does not exist: {user}",
        )
    return DescribeUserScramCredentialsResult(
        user=user,
        credential_infos=[
            CredentialInfo(mechanism=code, iterations=credentials[mechanism].iterations)
            for code, mechanism in MECHANISM_CODES.items()
            if mechanism in credentials
        ],
    )
