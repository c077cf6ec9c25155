"""The settings of each broker of a host, derived from those of the first.

Broker i has the next id, the next port of each listener, and directories of its own below those of the first broker:

    log.dirs                            the first broker, and the store of all
    log.dirs/barnabas-brokers/1         the second
    log.dirs/barnabas-brokers/2         the third

They are below and not beside, because a log directory is often the place where a disk or the volume of a container is
mounted. The first broker keeps its directories, so that those of a single broker open as before.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.broker_settings import processor_count
from barnabas.config.definition import InvalidSetting
from barnabas.config.listeners import Endpoint
from barnabas.errors import InvalidConfig
from barnabas.log.names import HOST_BROKERS
from barnabas.net.transport import CannotListen, ListenOptions, SocketTransport
from barnabas.value import replace

# One disk gains nothing from a second copy.
SINGLE_REPLICA: Final = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
PORT_MAX: Final = 65_535


class Ports(NamedTuple):
    """The ports that a broker has had: it gets them again when it is started again, if they are free."""

    listeners: Mapping[str, int]
    metrics: int


NO_PORTS: Final = Ports({}, 0)


def directories_of(config: BrokerConfig, index: int) -> list[str]:
    """The log directories of a broker, by its place in the row."""
    directories = [os.path.abspath(each) for each in config.log_dirs]
    if index == 0:
        return directories
    return [os.path.join(each, HOST_BROKERS, str(index)) for each in directories]


def check_ports(config: BrokerConfig) -> None:
    """Raises InvalidConfig if two listeners would have the same port, or one would have none."""
    taken: dict[int, str] = {}
    count = config.barnabas_brokers
    named = [(f"listener {each.listener_name}", each.port) for each in config.endpoints]
    if config.barnabas_metrics_port > 0:
        named.append(("barnabas.metrics.port", config.barnabas_metrics_port))
    for name, first in named:
        if first == 0:
            continue
        if first + count - 1 > PORT_MAX:
            raise InvalidSetting(
                name, first, f"at most {PORT_MAX - count + 1}: {count} brokers have the ports from it"
            )
        for index in range(count):
            port, owner = first + index, f"{name} of broker {index + 1} of {count}"
            if port in taken:
                raise InvalidConfig(
                    f"{owner} and {taken[port]} have the same port {port}: each broker has the port after that of the"
                    f" last one, so leave at least {count - 1} ports free after each"
                )
            taken[port] = owner


def probe_ports(config: BrokerConfig) -> None:
    """Raises CannotListen if a broker could not have its ports. Nothing has been written by then."""
    metrics_port = config.barnabas_metrics_port
    for index in range(config.barnabas_brokers):
        named = [(each.host, each.port, "listeners") for each in config.endpoints]
        if metrics_port > 0:
            named.append((config.barnabas_metrics_host, metrics_port, "barnabas.metrics.port"))
        for host, port, setting in named:
            if port:
                try:
                    _probe(host, port + index)
                except CannotListen as error:
                    raise CannotListen(str(error).replace("(listeners)", f"({setting})")) from error


def still_free(config: BrokerConfig, ports: Ports) -> Ports:
    """The ports of the last run that no other process has taken since. For the others the broker takes new ones."""
    hosts = {each.listener_name: each.host for each in config.endpoints if each.port == 0}
    listeners = {
        name: port for name, port in ports.listeners.items() if name in hosts and _is_free(hosts[name], port)
    }
    metrics = ports.metrics if ports.metrics and _is_free(config.barnabas_metrics_host, ports.metrics) else 0
    return Ports(listeners, metrics)


def _is_free(host: str, port: int) -> bool:
    try:
        _probe(host, port)
    except CannotListen:
        return False
    return True


def _probe(host: str, port: int) -> None:
    SocketTransport().listen(host, port, ListenOptions(backlog=1)).close()


def broker_config(config: BrokerConfig, broker_id: int, index: int, ports: Ports = NO_PORTS) -> BrokerConfig:
    """The configuration of one broker. `ports` are those of its last run, for listeners that take any free port."""
    static = {name: text for name, text in config.static.items() if name not in ("node.id", "log.dir")}
    static = {**SINGLE_REPLICA, **static}
    if config.barnabas_brokers >= processor_count():
        # A broker that polls takes the processor of another.
        static.setdefault("barnabas.busy.poll.us", "0")
    static |= {
        "barnabas.brokers": str(config.barnabas_brokers),
        "broker.id": str(broker_id),
        # The ids follow that of the first broker, which may have been generated.
        "broker.id.generation.enable": "false",
        "listeners": _shifted(config.endpoints, index, ports.listeners),
        "log.dirs": ",".join(directories_of(config, index)),
    }
    if config.advertised_listeners:
        static["advertised.listeners"] = _shifted(config.advertised_endpoints, index, {})
    if config.barnabas_metrics_port > 0:
        static["barnabas.metrics.port"] = str(config.barnabas_metrics_port + index)
    elif ports.metrics:
        static["barnabas.metrics.port"] = str(ports.metrics)
    return BrokerConfig(static)


def _shifted(endpoints: Sequence[Endpoint], index: int, ports: Mapping[str, int]) -> str:
    shifted = [
        replace(each, port=each.port + index if each.port else ports.get(each.listener_name, 0))
        for each in endpoints
    ]
    return ",".join(map(str, shifted))
