"""The addresses of a broker: bound first, advertised to clients, opened last."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from barnabas.broker.broker import Broker
from barnabas.broker.dispatch import Dispatcher, build_endpoints
from barnabas.broker.waiting.tasks import Tasks
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.listeners import Endpoint, SecurityProtocol
from barnabas.errors import InvalidConfig
from barnabas.net.addresses import advertised_host, why_unreachable
from barnabas.net.listener import ConnectionLimits, Connections
from barnabas.net.request_memory import UNLIMITED
from barnabas.net.transport import SYSTEM_DEFAULT, Transport
from barnabas.value import replace

log = logging.getLogger("barnabas.server")


class Listeners:
    """Binds the addresses, so that a broker that cannot have them writes nothing. `open` accepts connections."""

    def __init__(self, config: BrokerConfig, connections: Connections) -> None:
        self._bound = [
            (each, connections.bind(each.host, each.port, each.listener_name)) for each in config.endpoints
        ]
        self.ports = {each.listener_name: bound.port for each, bound in self._bound}
        self.advertised: Sequence[Endpoint] = [
            # The system may have chosen the port, and a listener on every address needs a name.
            replace(each, host=advertised_host(each.host), port=each.port or self.ports[each.listener_name])
            for each in config.advertised_endpoints
        ]

    def open(self, broker: Broker, tasks: Tasks, transport: Transport) -> None:
        endpoints = build_endpoints(broker)
        for each, bound in self._bound:
            bound.open(Dispatcher(broker, each.listener_name, endpoints))
        for advertised in self.advertised:
            log.info("Listening on %s", advertised)
            tasks.start(_warn_if_unreachable(transport, advertised))


def check_security(config: BrokerConfig) -> None:
    for endpoint in config.endpoints:
        if endpoint.security_protocol is not SecurityProtocol.PLAINTEXT:
            raise InvalidConfig(
                f"listener {endpoint} uses {endpoint.security_protocol}, but only PLAINTEXT is supported so far"
            )


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
        socket_receive_buffer_bytes=_buffer_bytes(config, "socket.receive.buffer.bytes"),
        socket_listen_backlog_size=config.socket_listen_backlog_size,
        queued_max_request_bytes=_queued_max_request_bytes(config),
    )


def _queued_max_request_bytes(config: BrokerConfig) -> int:
    """The setting, raised to the size of the largest request: otherwise that one would never be read."""
    if config.queued_max_request_bytes <= 0:
        return UNLIMITED
    return max(config.queued_max_request_bytes, config.socket_request_max_bytes)


def _buffer_bytes(config: BrokerConfig, name: str) -> int:
    """The setting if it is set. Otherwise the system lets a buffer grow with the traffic of its connection."""
    if name not in config.static:
        return SYSTEM_DEFAULT
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
