"""The store of a broker in ZooKeeper: from its settings to the engine. Only brokers in a cluster load this module."""

from __future__ import annotations

import logging
import os
from typing import Final

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.definition import InvalidSetting
from barnabas.coordination.store.zookeeper import ZooKeeperStore
from barnabas.coordination.store.zookeeper_client import READS_AT_ONCE, TlsFiles, ZooKeeperSettings
from barnabas.errors import InvalidConfig
from barnabas.peers.versions import ProtocolLevel

log = logging.getLogger("barnabas.server")

# Types of stores by the end of the file name, as Kafka finds them out.
_TYPES: Final = {".pem": "PEM", ".jks": "JKS", ".p12": "PKCS12", ".pfx": "PKCS12"}


def zookeeper_store(config: BrokerConfig) -> ZooKeeperStore:
    """Raises InvalidConfig if the settings do not fit together."""
    assert config.zookeeper_connect is not None
    ProtocolLevel.parse(config.inter_broker_protocol_version)
    tls = _tls_files(config) if config.zookeeper_ssl_client_enable else None
    digest = config.barnabas_zookeeper_digest
    if digest is not None and not digest.partition(":")[2]:
        raise InvalidSetting("barnabas.zookeeper.digest", "[hidden]", "user:password")
    if config.zookeeper_set_acl and digest is None and (tls is None or tls.certificate is None):
        raise InvalidConfig(
            "zookeeper.set.acl is true, but nothing identifies this broker to ZooKeeper: set barnabas.zookeeper.digest,"
            " or zookeeper.ssl.client.enable with a zookeeper.ssl.keystore.location"
        )
    settings = ZooKeeperSettings(
        connect=config.zookeeper_connect,
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        connection_timeout_ms=config.zookeeper_connection_timeout_ms or config.zookeeper_session_timeout_ms,
        set_acl=config.zookeeper_set_acl,
        max_in_flight_requests=_reads_at_once(config),
        digest=digest,
        tls=tls,
    )
    if not all(settings.hosts.split(",")) or "//" in settings.chroot:
        raise InvalidSetting(
            "zookeeper.connect",
            config.zookeeper_connect,
            "host:port,host:port/chroot, such as localhost:2181/kafka",
        )
    log.info("Connecting to ZooKeeper at %s", config.zookeeper_connect)
    return ZooKeeperStore(settings)


def _reads_at_once(config: BrokerConfig) -> int:
    """Kafka's default of 10 would double the time of a start with many partitions: the setting counts if it is set."""
    name = "zookeeper.max.in.flight.requests"
    return config.zookeeper_max_in_flight_requests if name in config.static else READS_AT_ONCE


def _tls_files(config: BrokerConfig) -> TlsFiles:
    trusted = _pem_file(
        "zookeeper.ssl.truststore",
        config.zookeeper_ssl_truststore_location,
        config.zookeeper_ssl_truststore_type,
    )
    own = _pem_file(
        "zookeeper.ssl.keystore", config.zookeeper_ssl_keystore_location, config.zookeeper_ssl_keystore_type
    )
    return TlsFiles(
        ca=trusted,
        certificate=own,
        key_password=config.zookeeper_ssl_keystore_password,
        check_hostname=bool(config.zookeeper_ssl_endpoint_identification_algorithm.strip()),
    )


def _conversion(setting: str, location: str, store_type: str) -> str:
    """The commands that make a PEM file of a store."""
    base, _ = os.path.splitext(location)
    what = "-nokeys" if setting.endswith("truststore") else "-nodes"
    if store_type == "PKCS12":
        return f"openssl pkcs12 -in {location} {what} -out {base}.pem"
    return (
        f"keytool -importkeystore -srckeystore {location} -destkeystore {base}.p12 -deststoretype PKCS12 &&"
        f" openssl pkcs12 -in {base}.p12 {what} -out {base}.pem"
    )


def _pem_file(setting: str, location: str | None, store_type: str | None) -> str | None:
    if location is None:
        return None
    found = (store_type or _TYPES.get(os.path.splitext(location)[1].lower(), "")).upper()
    if found != "PEM":
        raise InvalidSetting(
            f"{setting}.type",
            found or "unknown",
            f"PEM. Convert the file with `{_conversion(setting, location, found)}`, and set {setting}.location to the"
            " new file",
        )
    if not os.path.isfile(location):
        raise InvalidSetting(f"{setting}.location", location, "a file that exists")
    return location
