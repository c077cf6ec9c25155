"""DeleteAcls, versions 0 to 3. Without an authorizer each filter is SECURITY_DISABLED, as in Apache Kafka."""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.errors import SecurityDisabled
from barnabas.protocol.messages.delete_acls_request import DeleteAclsRequest
from barnabas.protocol.messages.delete_acls_response import DeleteAclsFilterResult, DeleteAclsResponse


def handle(broker: Broker, exchange: AnyExchange, request: DeleteAclsRequest) -> DeleteAclsResponse:
    refusal = DeleteAclsFilterResult(
        error_code=SecurityDisabled.code, error_message="No Authorizer is configured."
    )
    return DeleteAclsResponse(filter_results=[refusal] * len(request.filters))


HANDLER: Final = Handler(DeleteAclsRequest, DeleteAclsResponse, handle)
