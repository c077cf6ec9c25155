"""DescribeAcls, versions 0 to 3. Without an authorizer there are no ACLs: SECURITY_DISABLED, as in Apache Kafka."""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.errors import SecurityDisabled
from barnabas.protocol.messages.describe_acls_request import DescribeAclsRequest
from barnabas.protocol.messages.describe_acls_response import DescribeAclsResponse


def handle(broker: Broker, exchange: AnyExchange, request: DescribeAclsRequest) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        error_code=SecurityDisabled.code, error_message="No Authorizer is configured on the broker"
    )


HANDLER: Final = Handler(DescribeAclsRequest, DescribeAclsResponse, handle)
