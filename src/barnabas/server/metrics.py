"""The HTTP endpoint for Prometheus and health checks."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.definition import InvalidSetting
from barnabas.metrics.registry import Registry
from barnabas.net.transport import cannot_listen

if TYPE_CHECKING:
    import ssl

    from barnabas.net.http_endpoint import HttpEndpoint

log = logging.getLogger("barnabas.server")

_LOOPBACK: Final = ("127.", "::1", "localhost")


async def bind_metrics(config: BrokerConfig, metrics: Registry) -> HttpEndpoint | None:
    """Takes the address; None if the configuration names no port."""
    port = config.barnabas_metrics_port
    if port < 0:
        return None
    # Most brokers have no such port, and start without this module.
    from barnabas.net.http_endpoint import HttpEndpoint

    host = config.barnabas_metrics_host
    credentials = config.barnabas_metrics_credentials
    if credentials is not None and not credentials.partition(":")[2]:
        raise InvalidSetting("barnabas.metrics.credentials", "[hidden]", "user:password")
    endpoint = HttpEndpoint(
        {
            "/metrics": lambda: ("text/plain; version=0.0.4", metrics.lines()),
            "/health": lambda: ("text/plain", "ok\n"),
        },
        credentials,
    )
    context = _tls_context(config.barnabas_metrics_keystore_location)
    if credentials is not None and context is None and not host.startswith(_LOOPBACK):
        log.warning(
            "The password of barnabas.metrics.credentials goes over the network without TLS. Set"
            " barnabas.metrics.keystore.location"
        )
    try:
        await endpoint.bind(host, port, context)
    except OSError as error:
        raise cannot_listen(host, port, error, "barnabas.metrics.port") from error
    scheme = "http" if context is None else "https"
    log.info("Metrics at %s://%s:%d/metrics", scheme, host or "localhost", endpoint.port)
    return endpoint


def _tls_context(location: str | None) -> ssl.SSLContext | None:
    """Each handshake takes the certificates that the file has then."""
    if not location:
        return None
    import asyncio

    from barnabas.broker.authentication.renewed_context import RenewedContext
    from barnabas.security.key_stores import StoreSettings
    from barnabas.security.tls import TlsSettings

    store = StoreSettings("barnabas.metrics.keystore.", location, "PEM", None)
    trusted = StoreSettings("", None, "PEM", None)
    settings = TlsSettings(store, trusted, "none", (), (), False)
    renewed = RenewedContext("The endpoint for metrics", settings, asyncio.get_running_loop().time)

    def choose(handshake: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        handshake.context = renewed.context()

    first = renewed.context()
    first.sni_callback = choose
    return first
