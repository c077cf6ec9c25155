"""How a broker connects to the others: by the settings of its inter-broker listener."""

from __future__ import annotations

import logging

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.listener_settings import ListenerSettings
from barnabas.config.listeners import SecurityProtocol
from barnabas.errors import InvalidConfig
from barnabas.peers.security import ConnectionSecurity, connection_security

log = logging.getLogger(__name__)


def usable_inter_broker_security(config: BrokerConfig) -> ConnectionSecurity | None:
    """With the settings of the file only, if those made at run time cannot be used. Raises InvalidConfig."""
    try:
        return inter_broker_security(config)
    except InvalidConfig as error:
        if not (config.dynamic_default or config.dynamic_broker):
            raise
        log.error(
            "Connections to other brokers use the settings of the file; those made at run time cannot be used: %s",
            error,
        )
        return inter_broker_security(config.only_static())


def inter_broker_security(config: BrokerConfig) -> ConnectionSecurity | None:
    """The JAAS entry of the listener has the user and password of the brokers. Raises InvalidConfig."""
    endpoint = config.inter_broker_endpoint
    if endpoint.security_protocol is SecurityProtocol.PLAINTEXT:
        return None
    settings = ListenerSettings(config, endpoint.listener_name)
    mechanism = settings.text("sasl.mechanism.inter.broker.protocol") or ""
    return connection_security(
        endpoint.security_protocol.value,
        mechanism,
        settings.__getitem__,
        settings.jaas(mechanism),
        prefix=settings.own_prefix("ssl."),
        jaas_name=settings.jaas_name(mechanism),
    )
