"""ApiVersions, versions 0 to 4: the APIs and versions of this broker.

The name and version of the client's software (from version 3) are kept with the connection. Names that
Kafka does not allow are refused. From version 3 on the response lists the cluster's features, too. A request of a
version above ours is answered in version 0 with UNSUPPORTED_VERSION and our versions of this API only, so that the
client can ask again.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.cluster.features import finalized_features, supported_features
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.broker.requests.routes import routes
from barnabas.errors import InvalidRequest, UnsupportedVersion
from barnabas.protocol.messages.api_versions_request import ApiVersionsRequest
from barnabas.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse

_SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_FIRST_VERSION_WITH_SOFTWARE: Final = 3

_API_VERSIONS: Final = 18


def handle(broker: Broker, exchange: AnyExchange, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if exchange.version >= _FIRST_VERSION_WITH_SOFTWARE:
        name, version = request.client_software_name, request.client_software_version
        if not _SOFTWARE_NAME.fullmatch(name) or not _SOFTWARE_NAME.fullmatch(version):
            return ApiVersionsResponse(error_code=InvalidRequest.code)
        exchange.session.client_software_name = name
        exchange.session.client_software_version = version
    uses_zookeeper, features = broker.config.uses_zookeeper, broker.image.features
    return ApiVersionsResponse(
        api_keys=_api_keys(in_cluster=broker.config.is_in_cluster),
        supported_features=supported_features(exchange.version, uses_zookeeper=uses_zookeeper),
        finalized_features_epoch=features.epoch,
        finalized_features=finalized_features(features, uses_zookeeper=uses_zookeeper),
    )


HANDLER: Final = Handler(ApiVersionsRequest, ApiVersionsResponse, handle)


def unsupported_version() -> ApiVersionsResponse:
    [own] = [entry for entry in _api_keys(in_cluster=False) if entry.api_key == _API_VERSIONS]
    return ApiVersionsResponse(error_code=UnsupportedVersion.code, api_keys=[own])


@cache
def _answered(*, in_cluster: bool) -> list[tuple[int, int, int]]:
    return sorted(
        (route.api.key, route.first_version, route.last_version) for route in routes(in_cluster=in_cluster)
    )


def _api_keys(*, in_cluster: bool) -> list[ApiVersion]:
    return [
        ApiVersion(api_key=key, min_version=first, max_version=last)
        for key, first, last in _answered(in_cluster=in_cluster)
    ]
