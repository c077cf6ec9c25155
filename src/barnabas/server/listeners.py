"""The addresses of a broker: bound first, advertised to clients, opened last."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.broker.broker import Broker
from barnabas.broker.dispatch import Dispatcher, build_endpoints
from barnabas.broker.dispatch import Endpoint as RequestEndpoint
from barnabas.broker.waiting.tasks import Tasks
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.listeners import Endpoint, SecurityProtocol
from barnabas.net.addresses import advertised_host, why_unreachable
from barnabas.net.listener import ConnectionLimits, Connections
from barnabas.net.request_memory import UNLIMITED
from barnabas.net.transport import SYSTEM_DEFAULT, Transport
from barnabas.value import replace

if TYPE_CHECKING:
    from barnabas.broker.authentication.listener_security import ListenerParts, ListenerSecurity

log = logging.getLogger("barnabas.server")

# Brokers send these before their own requests, on a listener with SASL.
LOGIN_REQUESTS = frozenset({"ApiVersions", "SaslHandshake", "SaslAuthenticate"})


class Listeners:
    """Binds the addresses, so that a broker that cannot have them writes nothing.

    `open` accepts connections, and answers other brokers. `serve_clients` answers all.
    """

    def __init__(self, config: BrokerConfig, connections: Connections) -> None:
        self._loop = connections.loop
        # Certificates are read, and users checked, before anything is bound or written.
        self._parts = {each.listener_name: _parts(config, each, connections) for each in config.endpoints}
        self._secured: list[ListenerSecurity] = []
        self._bound = [
            (
                each,
                connections.bind(
                    each.host, each.port, each.listener_name, has_tls=each.security_protocol.has_tls
                ),
            )
            for each in config.endpoints
        ]
        # Those that are answered now; all dispatchers share it.
        self._endpoints: dict[int, RequestEndpoint] = {}
        self._all_endpoints: dict[int, RequestEndpoint] = {}
        self.ports = {each.listener_name: bound.port for each, bound in self._bound}
        self.advertised: Sequence[Endpoint] = [
            # The system may have chosen the port, and a listener on every address needs a name.
            replace(each, host=advertised_host(each.host), port=each.port or self.ports[each.listener_name])
            for each in config.advertised_endpoints
        ]

    def open(self, broker: Broker, tasks: Tasks, transport: Transport) -> None:
        self._all_endpoints = build_endpoints(broker)
        self._endpoints.update(
            (key, each)
            for key, each in self._all_endpoints.items()
            if each.served.is_of_brokers or each.served.api.name in LOGIN_REQUESTS
        )
        for each, bound in self._bound:
            dispatcher = Dispatcher(broker, each.listener_name, self._endpoints)
            bound.open(dispatcher, self._security(broker, each, dispatcher))
        if self._secured:
            from barnabas.broker.authentication.counts import register_authentication

            register_authentication(broker.metrics, (security.counts for security in self._secured))
        for advertised in self.advertised:
            log.info("Listening on %s", advertised)
            tasks.start(_warn_if_unreachable(transport, advertised))

    def change(self, config: BrokerConfig) -> None:
        """Uses changed settings for new connections."""
        for each in self._secured:
            each.change(config)

    def serve_clients(self) -> None:
        self._endpoints.update(self._all_endpoints)

    def _security(
        self, broker: Broker, endpoint: Endpoint, dispatcher: Dispatcher
    ) -> ListenerSecurity | None:
        parts = self._parts[endpoint.listener_name]
        if parts is None:
            return None
        from barnabas.broker.authentication.listener_security import ListenerSecurity

        security = ListenerSecurity(
            broker.config,
            endpoint,
            parts,
            lambda: broker.image,
            broker.clock,
            self._loop,
            dispatcher,
            broker.delegation_tokens,
        )
        self._secured.append(security)
        return security


def _parts(config: BrokerConfig, endpoint: Endpoint, connections: Connections) -> ListenerParts | None:
    """Those of a listener with TLS or SASL. Raises InvalidConfig if they could not be used."""
    if endpoint.security_protocol is SecurityProtocol.PLAINTEXT:
        return None
    from barnabas.broker.authentication.listener_security import prepare_listener

    return prepare_listener(config, endpoint, connections.loop.time)


def connection_limits(config: BrokerConfig) -> ConnectionLimits:
    return ConnectionLimits(
        max_connections=config.max_connections,
        max_connections_by_listener={
            each.listener_name: config.listener_integer(each.listener_name, "max.connections")
            for each in config.endpoints
        },
        max_connections_per_ip=config.max_connections_per_ip,
        max_connections_per_ip_overrides=config.max_connections_by_ip,
        connections_max_idle_ms=config.connections_max_idle_ms,
        socket_request_max_bytes=config.socket_request_max_bytes,
        socket_send_buffer_bytes=_buffer_bytes(config, "socket.send.buffer.bytes"),
        socket_receive_buffer_bytes=_buffer_bytes(config, "socket.receive.buffer.bytes") or SYSTEM_DEFAULT,
        socket_listen_backlog_size=config.socket_listen_backlog_size,
        queued_max_request_bytes=_queued_max_request_bytes(config),
        tls_handshake_timeout_ms=config.barnabas_tls_handshake_timeout_ms,
    )


def _queued_max_request_bytes(config: BrokerConfig) -> int:
    """The setting, raised to the size of the largest request: otherwise that one would never be read."""
    if config.queued_max_request_bytes <= 0:
        return UNLIMITED
    return max(config.queued_max_request_bytes, config.socket_request_max_bytes)


def _buffer_bytes(config: BrokerConfig, name: str) -> int | None:
    """The setting, if it is set."""
    if name not in config.static:
        return None
    value = config.values[name]
    assert isinstance(value, int)
    return value


async def _warn_if_unreachable(transport: Transport, endpoint: Endpoint) -> None:
    reason = await why_unreachable(transport, endpoint.host, endpoint.port)
    if reason is not None:
        log.warning(
            "Clients will connect to the advertised address %s, but it cannot be reached from this machine: %s. Set"
            " advertised.listeners",
            endpoint,
            reason,
        )
