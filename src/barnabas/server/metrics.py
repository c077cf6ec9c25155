"""The HTTP endpoint for Prometheus and health checks."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.config.broker_config import BrokerConfig
from barnabas.metrics.registry import Registry
from barnabas.net.transport import cannot_listen

if TYPE_CHECKING:
    from barnabas.net.http_endpoint import HttpEndpoint

log = logging.getLogger("barnabas.server")


async def bind_metrics(config: BrokerConfig, metrics: Registry) -> HttpEndpoint | None:
    """Takes the address; None if the configuration names no port."""
    port = config.barnabas_metrics_port
    if port < 0:
        return None
    # Most brokers have no such port, and start without this module.
    from barnabas.net.http_endpoint import HttpEndpoint

    host = config.endpoints[0].host
    endpoint = HttpEndpoint(
        {
            "/metrics": lambda: ("text/plain; version=0.0.4", metrics.lines()),
            "/health": lambda: ("text/plain", "ok\n"),
        }
    )
    try:
        await endpoint.bind(host, port)
    except OSError as error:
        raise cannot_listen(host, port, error, "barnabas.metrics.port") from error
    log.info("Metrics at http://%s:%d/metrics", host or "localhost", endpoint.port)
    return endpoint
