"""CreateAcls, versions 0 to 3. Without an authorizer each ACL is SECURITY_DISABLED, as in Apache Kafka."""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.errors import SecurityDisabled
from barnabas.protocol.messages.create_acls_request import CreateAclsRequest
from barnabas.protocol.messages.create_acls_response import AclCreationResult, CreateAclsResponse


def handle(broker: Broker, exchange: AnyExchange, request: CreateAclsRequest) -> CreateAclsResponse:
    refusal = AclCreationResult(
        error_code=SecurityDisabled.code, error_message="No Authorizer is configured."
    )
    return CreateAclsResponse(results=[refusal] * len(request.creations))


HANDLER: Final = Handler(CreateAclsRequest, CreateAclsResponse, handle)
