"""DescribeCluster, versions 0 to 2: the brokers and the controller.

From version 1 on a client says whether it wants brokers or KRaft controllers. There are no KRaft controllers here.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.handlers.permissions import cluster_operations
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.broker.requests.operations import NOT_ASKED
from barnabas.errors import MismatchedEndpointType, UnsupportedEndpointType
from barnabas.protocol.messages.describe_cluster_request import DescribeClusterRequest
from barnabas.protocol.messages.describe_cluster_response import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)

_BROKERS: Final = 1
_CONTROLLERS: Final = 2
_WRONG_ENDPOINT: Final = (
    "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
)


def handle(broker: Broker, exchange: AnyExchange, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type != _BROKERS:
        error = MismatchedEndpointType if request.endpoint_type == _CONTROLLERS else UnsupportedEndpointType
        return DescribeClusterResponse(
            error_code=error.code,
            error_message=_WRONG_ENDPOINT
            if error is MismatchedEndpointType
            else f"Unsupported endpoint type {request.endpoint_type}",
        )
    image = broker.image
    listener = exchange.session.listener
    return DescribeClusterResponse(
        endpoint_type=_BROKERS,
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=node.id, host=endpoint.host, port=endpoint.port, rack=node.rack)
            for node in image.brokers.values()
            if (endpoint := node.endpoint(listener)) is not None
        ],
        cluster_authorized_operations=cluster_operations(broker, exchange)
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


HANDLER: Final = Handler(DescribeClusterRequest, DescribeClusterResponse, handle)
