"""A broker's configuration: a `server.properties` of Apache Kafka, overrides, and changes at run time.

The order of precedence is: set at run time for this broker, set at run time for the cluster, the file with its
overrides, the default. A configuration never changes; `with_dynamic` returns a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from barnabas.config.broker_settings import (
    TOPIC_SYNONYMS,
    UpdateMode,
    broker_count,
    broker_settings,
    nearest_name,
)
from barnabas.config.definition import InvalidSetting, SettingValue
from barnabas.config.listeners import Endpoint, SecurityProtocol, parse_endpoints, parse_security_protocols
from barnabas.config.log_config import LogConfig
from barnabas.errors import InvalidConfig
from barnabas.value import replace

BROKER: Final = "broker"
CONTROLLER: Final = "controller"
# Ids of compressions, as batches have them.
OFFSETS_CODECS: Final = range(5)
LISTENER_PREFIX: Final = "listener.name."
# Names below these belong to plug-ins, which read them by themselves.
_FOREIGN_PREFIXES: Final = (LISTENER_PREFIX, "rsm.config.", "rlmm.config.", "config.providers.")
# A security setting has an effect, or the broker does not start: see `security_check`.
_SECURITY_PREFIXES: Final = (
    "ssl.",
    "sasl.",
    "connections.max.reauth.ms",
    "connection.failed.authentication.",
    "password.encoder.",
)
# Settings of the authorizer, which Kafka does not list among its own.
SUPER_USERS: Final = "super.users"
ALLOW_WITHOUT_ACL: Final = "allow.everyone.if.no.acl.found"
AUTHORIZER_SETTINGS: Final = frozenset({SUPER_USERS, ALLOW_WITHOUT_ACL})
# What a listener may have for one mechanism, and what it may have for all brokers at run time: as in Kafka.
_OF_MECHANISMS: Final = (
    "connections.max.reauth.ms",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
)
_OF_LISTENERS_OF_CLUSTERS: Final = frozenset(
    {"max.connection.creation.rate", "max.connections", "num.network.threads"}
)
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class BrokerConfig:
    """One attribute per setting that has an effect, with Kafka's name and underscores.

    The annotations are the list of effective settings. A setting that is neither here nor a default of a topic setting
    is known but has no effect, and the broker warns about it.
    """

    add_partitions_to_txn_retry_backoff_max_ms: int
    add_partitions_to_txn_retry_backoff_ms: int
    advertised_listeners: tuple[str, ...] | None
    authorizer_class_name: str
    auto_create_topics_enable: bool
    auto_leader_rebalance_enable: bool
    background_threads: int
    barnabas_accept_loss: tuple[str, ...]
    barnabas_brokers: int
    barnabas_busy_poll_us: int
    barnabas_log_lines_per_second: int
    barnabas_metrics_credentials: str | None
    barnabas_metrics_host: str
    barnabas_metrics_keystore_location: str | None
    barnabas_metrics_port: int
    barnabas_record_validation: str
    barnabas_slow_request_ms: int
    barnabas_tls_handshake_timeout_ms: int
    barnabas_zookeeper_digest: str | None
    broker_id: int
    broker_id_generation_enable: bool
    broker_rack: str | None
    connections_max_idle_ms: int
    control_plane_listener_name: str | None
    controlled_shutdown_enable: bool
    controlled_shutdown_max_retries: int
    controlled_shutdown_retry_backoff_ms: int
    controller_listener_names: tuple[str, ...] | None
    controller_socket_timeout_ms: int
    default_replication_factor: int
    delete_records_purgatory_purge_interval_requests: int
    delete_topic_enable: bool
    fetch_max_bytes: int
    fetch_purgatory_purge_interval_requests: int
    follower_replication_throttled_rate: int
    group_consumer_assignment_interval_ms: int
    group_consumer_assignors: tuple[str, ...]
    group_consumer_heartbeat_interval_ms: int
    group_consumer_max_heartbeat_interval_ms: int
    group_consumer_max_session_timeout_ms: int
    group_consumer_max_size: int
    group_consumer_migration_policy: str
    group_consumer_min_heartbeat_interval_ms: int
    group_consumer_min_session_timeout_ms: int
    group_consumer_regex_refresh_interval_ms: int
    group_consumer_session_timeout_ms: int
    group_coordinator_rebalance_protocols: tuple[str, ...]
    group_initial_rebalance_delay_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_min_session_timeout_ms: int
    inter_broker_listener_name: str | None
    inter_broker_protocol_version: str
    leader_imbalance_check_interval_seconds: int
    leader_imbalance_per_broker_percentage: int
    leader_replication_throttled_rate: int
    listener_security_protocol_map: str
    listeners: tuple[str, ...]
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_enable: bool
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_io_buffer_size: int
    log_cleaner_io_max_bytes_per_second: float
    log_cleaner_threads: int
    log_dir: tuple[str, ...]
    log_dirs: tuple[str, ...]
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_scheduler_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    log_initial_task_delay_ms: int
    log_retention_check_interval_ms: int
    max_connection_creation_rate: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: str
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int
    min_insync_replicas: int
    node_id: int
    num_partitions: int
    num_recovery_threads_per_data_dir: int
    num_replica_fetchers: int
    offset_metadata_max_bytes: int
    offsets_commit_timeout_ms: int
    offsets_load_buffer_size: int
    offsets_retention_check_interval_ms: int
    offsets_retention_minutes: int
    offsets_topic_compression_codec: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    process_roles: tuple[str, ...] | None
    producer_id_expiration_check_interval_ms: int
    producer_id_expiration_ms: int
    producer_purgatory_purge_interval_requests: int
    queued_max_request_bytes: int
    quota_window_num: int
    quota_window_size_seconds: int
    replica_alter_log_dirs_io_max_bytes_per_second: int
    replica_fetch_backoff_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_min_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    replica_lag_time_max_ms: int
    replica_selector_class: str | None
    replica_socket_timeout_ms: int
    request_timeout_ms: int
    reserved_broker_max_id: int
    security_inter_broker_protocol: str
    socket_listen_backlog_size: int
    socket_receive_buffer_bytes: int
    socket_request_max_bytes: int
    socket_send_buffer_bytes: int
    telemetry_max_bytes: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_max_timeout_ms: int
    transaction_partition_verification_enable: bool
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_state_log_load_buffer_size: int
    transaction_state_log_min_isr: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_segment_bytes: int
    transactional_id_expiration_ms: int
    unclean_leader_election_enable: bool
    zookeeper_connect: str | None
    zookeeper_connection_timeout_ms: int | None
    zookeeper_max_in_flight_requests: int
    zookeeper_metadata_migration_enable: bool
    zookeeper_session_timeout_ms: int
    zookeeper_set_acl: bool
    zookeeper_ssl_client_enable: bool
    zookeeper_ssl_endpoint_identification_algorithm: str
    zookeeper_ssl_keystore_location: str | None
    zookeeper_ssl_keystore_password: str | None
    zookeeper_ssl_keystore_type: str | None
    zookeeper_ssl_truststore_location: str | None
    zookeeper_ssl_truststore_password: str | None
    zookeeper_ssl_truststore_type: str | None

    def __init__(
        self,
        static: Mapping[str, str] = _NOTHING,
        *,
        dynamic_default: Mapping[str, str] = _NOTHING,
        dynamic_broker: Mapping[str, str] = _NOTHING,
    ) -> None:
        """Raises InvalidSetting or InvalidConfig when a value, or several together, cannot be."""
        self.static: Final = MappingProxyType(_normalized(static))
        self.dynamic_default: Final = MappingProxyType(dict(dynamic_default))
        self.dynamic_broker: Final = MappingProxyType(dict(dynamic_broker))
        self.values: Final[Mapping[str, SettingValue]] = MappingProxyType(self._parse_values())
        for attribute in HONOURED_ATTRIBUTES:
            setattr(self, attribute, self.values[attribute.replace("_", ".")])
        self._check_roles()
        # Whether the cluster is coordinated by ZooKeeper. A broker without one has a store of its own.
        self.uses_zookeeper: Final = bool(self.zookeeper_connect) and not self.process_roles
        # Whether there may be other brokers, which elect a controller and replicate from each other.
        self.is_in_cluster: Final = self.uses_zookeeper or self.barnabas_brokers > 1
        self._choose_directories()
        self.log_defaults: Final[LogConfig] = self._log_defaults()
        self.max_connections_by_ip: Final[Mapping[str, int]] = self._max_connections_by_ip()
        endpoints, advertised = self._endpoints()
        self.endpoints: Final[tuple[Endpoint, ...]] = endpoints
        self.advertised_endpoints: Final[tuple[Endpoint, ...]] = advertised
        self.inter_broker_endpoint: Final[Endpoint] = self._inter_broker_endpoint()
        self._check()

    def with_dynamic(self, *, default: Mapping[str, str], broker: Mapping[str, str]) -> BrokerConfig:
        """The same file, with other settings made at run time."""
        return BrokerConfig(self.static, dynamic_default=default, dynamic_broker=broker)

    def only_static(self) -> BrokerConfig:
        """The file alone."""
        return BrokerConfig(self.static)

    def topic_config(self, properties: Mapping[str, str]) -> LogConfig:
        """The configuration of a topic with these topic settings.

        Kafka 3 and later write the newest record format regardless of message.format.version.
        """
        return LogConfig.from_properties(
            {name: text for name, text in properties.items() if name != "message.format.version"},
            defaults=self.log_defaults,
        )

    def _parse_values(self) -> dict[str, SettingValue]:
        table = broker_settings()
        values: dict[str, SettingValue] = {name: row.setting.default for name, row in table.items()}
        for source in (self.static, self.dynamic_default, self.dynamic_broker):
            for name, text in source.items():
                if (row := table.get(name)) is not None:
                    values[name] = row.parse(text)
        return values

    def listener_integer(self, listener: str, name: str) -> int:
        """A setting that each listener may override."""
        own = f"{LISTENER_PREFIX}{listener.lower()}.{name}"
        for source in (self.dynamic_broker, self.dynamic_default, self.static):
            if own in source:
                value = broker_settings()[name].parse(source[own])
                break
        else:
            value = self.values[name]
        assert isinstance(value, int)
        return value

    def is_protected_listener(self, listener: str) -> bool:
        """Whether it is the brokers' own, so that clients on others must not keep them out."""
        return len(self.endpoints) > 1 and listener == self.inter_broker_endpoint.listener_name

    def _check_roles(self) -> None:
        roles = self.process_roles or ()
        if roles and BROKER not in roles:
            raise InvalidConfig(
                "process.roles=controller: this is the file of a controller alone, and there is none here apart from "
                "the broker; use a file whose process.roles has broker in it, or leave process.roles out"
            )
        if self.node_id != self.broker_id:
            allowed = f"the value of broker.id, which is {self.broker_id}"
            raise InvalidSetting("node.id", self.node_id, allowed)

    def _choose_directories(self) -> None:
        named = self.values["log.dirs"]
        assert isinstance(named, tuple | None)
        directories = tuple(name for name in (self.log_dir if named is None else named) if name)
        if not directories:
            raise InvalidSetting("log.dirs", "", "at least one directory")
        if len(set(directories)) < len(directories):
            raise InvalidSetting("log.dirs", ",".join(directories), "each directory once")
        self.log_dirs = directories

    def _log_defaults(self) -> LogConfig:
        fields: dict[str, Any] = {}
        for topic_name, synonyms in TOPIC_SYNONYMS.items():
            for synonym in synonyms:
                value = self.values[synonym.name]
                if value is not None:
                    fields[topic_name.replace(".", "_")] = (
                        value * synonym.factor if synonym.factor > 1 else value
                    )
                    break
        del fields["message_format_version"]
        if fields["retention_ms"] == 0:
            raise InvalidSetting("log.retention.ms", 0, "-1 for no bound, or at least 1")
        fields["retention_ms"] = max(fields["retention_ms"], -1)
        for name, at_least in (("segment_ms", 1), ("segment_jitter_ms", 0)):
            if fields[name] < at_least:
                raise InvalidSetting(
                    TOPIC_SYNONYMS[name.replace("_", ".")][0].name, fields[name], f">={at_least}"
                )
        return replace(LogConfig(), **fields).validated()

    def _max_connections_by_ip(self) -> Mapping[str, int]:
        name = "max.connections.per.ip.overrides"
        limits = {}
        for pair in filter(None, (pair.strip() for pair in self.max_connections_per_ip_overrides.split(","))):
            host, colon, limit = pair.rpartition(":")
            if not (
                host.strip() and colon and limit.isascii() and limit.strip().isdigit() and len(limit) <= 10
            ):
                raise InvalidSetting(name, pair, "pairs of host:number, such as 127.0.0.1:200")
            limits[host.strip()] = int(limit)
        if self.max_connections_per_ip == 0 and not limits:
            raise InvalidSetting("max.connections.per.ip", 0, f"at least 1, or 0 together with {name}")
        return MappingProxyType(limits)

    def _endpoints(self) -> tuple[tuple[Endpoint, ...], tuple[Endpoint, ...]]:
        protocols = parse_security_protocols(
            "listener.security.protocol.map", self.listener_security_protocol_map
        )
        controller_names = {name.upper() for name in self.controller_listener_names or ()}
        # A KRaft file lists the controller's listener among the others; there is nothing here to listen with.
        for name in controller_names:
            protocols.setdefault(name, SecurityProtocol.PLAINTEXT)
        endpoints = parse_endpoints("listeners", self.listeners, protocols)
        advertised = parse_endpoints(
            "advertised.listeners", self.advertised_listeners or self.listeners, protocols
        )
        endpoints = tuple(each for each in endpoints if each.listener_name not in controller_names)
        advertised = tuple(each for each in advertised if each.listener_name not in controller_names)
        if not endpoints:
            raise InvalidSetting(
                "listeners", ",".join(self.listeners), "at least one listener that clients can use"
            )
        names = {each.listener_name for each in endpoints}
        for each in advertised:
            if each.listener_name not in names:
                known = ", ".join(sorted(names))
                raise InvalidSetting(
                    "advertised.listeners", each, f"names that listeners has, which are {known}"
                )
            if self.advertised_listeners and each.host == "0.0.0.0":
                raise InvalidSetting("advertised.listeners", each, "a host that clients can connect to")
        return endpoints, advertised

    def _inter_broker_endpoint(self) -> Endpoint:
        if self.inter_broker_listener_name is not None:
            if "security.inter.broker.protocol" in self.static:
                raise InvalidConfig(
                    "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set."
                )
            setting, wanted = "inter.broker.listener.name", self.inter_broker_listener_name.upper()
        else:
            setting, wanted = "security.inter.broker.protocol", self.security_inter_broker_protocol
        for endpoint in self.advertised_endpoints:
            if endpoint.listener_name == wanted:
                return endpoint
        if not self.uses_zookeeper and setting not in self.static:
            # There are no other brokers to connect to.
            return self.advertised_endpoints[0]
        names = ", ".join(each.listener_name for each in self.advertised_endpoints)
        raise InvalidSetting(setting, wanted, f"the name of an advertised listener, here {names}")

    def _check_cluster(self) -> None:
        for name, bound in (
            ("replica.socket.timeout.ms", self.replica_socket_timeout_ms),
            ("replica.lag.time.max.ms", self.replica_lag_time_max_ms),
        ):
            if self.replica_fetch_wait_max_ms > bound:
                raise InvalidSetting(
                    name,
                    bound,
                    f"at least replica.fetch.wait.max.ms, which is {self.replica_fetch_wait_max_ms}",
                )
        if not self.is_in_cluster:
            return
        if self.uses_zookeeper and self.barnabas_brokers > 1:
            raise InvalidSetting(
                "barnabas.brokers",
                self.barnabas_brokers,
                "1 together with zookeeper.connect: start each broker of such a cluster by itself",
            )
        if self.zookeeper_metadata_migration_enable:
            raise InvalidSetting(
                "zookeeper.metadata.migration.enable",
                "true",
                "false only: this broker does not move a cluster from ZooKeeper to KRaft",
            )
        if self.control_plane_listener_name is not None:
            raise InvalidSetting(
                "control.plane.listener.name",
                self.control_plane_listener_name,
                "no value: requests of the controller use the listener of inter.broker.listener.name",
            )
        if self.zookeeper_session_timeout_ms < 1:
            raise InvalidSetting("zookeeper.session.timeout.ms", self.zookeeper_session_timeout_ms, ">=1")

    def _check_authorizer(self) -> None:
        for name in sorted(AUTHORIZER_SETTINGS):
            if name in self.static and not self.authorizer_class_name:
                raise InvalidConfig(
                    f"{name} has no effect without an authorizer: every client may do everything. Set"
                    " authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer, or remove"
                    f" {name}"
                )

    def _check(self) -> None:
        self._check_cluster()
        self._check_authorizer()
        if self.broker_id_generation_enable and not self.process_roles:
            if not -1 <= self.broker_id <= self.reserved_broker_max_id:
                allowed = (
                    f"-1..{self.reserved_broker_max_id} (reserved.broker.max.id; ids above it are generated)"
                )
                raise InvalidSetting("broker.id", self.broker_id, allowed)
        elif self.broker_id < 0:
            raise InvalidSetting("node.id" if self.process_roles else "broker.id", self.broker_id, ">=0")
        if self.offsets_topic_compression_codec not in OFFSETS_CODECS:
            raise InvalidSetting(
                "offsets.topic.compression.codec",
                self.offsets_topic_compression_codec,
                "0 (none), 1 (gzip), 2 (snappy), 3 (lz4) or 4 (zstd)",
            )
        if self.group_max_session_timeout_ms < self.group_min_session_timeout_ms:
            raise InvalidSetting(
                "group.max.session.timeout.ms",
                self.group_max_session_timeout_ms,
                f"at least group.min.session.timeout.ms, which is {self.group_min_session_timeout_ms}",
            )
        for what in ("session.timeout.ms", "heartbeat.interval.ms"):
            name = f"group.consumer.{what}"
            lowest, value, highest = (
                self.values[each]
                for each in (f"group.consumer.min.{what}", name, f"group.consumer.max.{what}")
            )
            assert isinstance(lowest, int)
            assert isinstance(value, int)
            assert isinstance(highest, int)
            if not lowest <= value <= highest:
                raise InvalidSetting(name, value, f"{lowest}..{highest}, as group.consumer.min and max say")
        if self.group_consumer_heartbeat_interval_ms >= self.group_consumer_session_timeout_ms:
            raise InvalidSetting(
                "group.consumer.heartbeat.interval.ms",
                self.group_consumer_heartbeat_interval_ms,
                f"less than group.consumer.session.timeout.ms, which is {self.group_consumer_session_timeout_ms}",
            )
        queued = "queued.max.request.bytes"
        if queued in self.static and 0 < self.queued_max_request_bytes < self.socket_request_max_bytes:
            raise InvalidSetting(
                queued,
                self.queued_max_request_bytes,
                f"-1 (no bound) or at least socket.request.max.bytes, which is {self.socket_request_max_bytes}",
            )
        if "classic" not in self.group_coordinator_rebalance_protocols:
            raise InvalidSetting(
                "group.coordinator.rebalance.protocols",
                ",".join(self.group_coordinator_rebalance_protocols),
                "a list with classic in it",
            )
        if self.log_cleaner_enable and self.log_cleaner_threads > 0:
            bytes_per_thread = self.log_cleaner_dedupe_buffer_size // self.log_cleaner_threads
            if bytes_per_thread <= 1 << 20:
                raise InvalidSetting(
                    "log.cleaner.dedupe.buffer.size",
                    self.log_cleaner_dedupe_buffer_size,
                    f"more than {1 << 20} for each of log.cleaner.threads={self.log_cleaner_threads}",
                )


def _normalized(static: Mapping[str, str]) -> dict[str, str]:
    """node.id and broker.id are one setting under two names, and the number of brokers may be `auto`."""
    settings = dict(static)
    for name, other in (("broker.id", "node.id"), ("node.id", "broker.id")):
        if name in settings:
            settings.setdefault(other, settings[name])
    if "barnabas.brokers" in settings:
        settings["barnabas.brokers"] = str(broker_count(settings["barnabas.brokers"]))
    return settings


HONOURED_ATTRIBUTES: Final = tuple(BrokerConfig.__annotations__)


def is_honoured(name: str) -> bool:
    """Whether a broker setting has an effect here, by itself or as a default of a topic's."""
    return (
        name.replace(".", "_") in BrokerConfig.__annotations__
        or name.startswith(_SECURITY_PREFIXES)
        or any(name == synonym.name for synonyms in TOPIC_SYNONYMS.values() for synonym in synonyms)
    )


def parse_overrides(items: Iterable[str]) -> dict[str, str]:
    """`name=value` texts from the command line. `unknown_settings` returns the unknown names."""
    overrides = {}
    for item in items:
        name, equals, text = item.partition("=")
        name = name.strip()
        if not name or not equals:
            raise InvalidConfig(f"--override {item}: write it as name=value")
        overrides[name] = text
    return overrides


def unknown_settings(properties: Mapping[str, str]) -> list[str]:
    """A sentence about each name that nothing has."""
    return [_unknown_setting(name) for name in properties if not _is_known(name)]


def warnings_about(properties: Mapping[str, str]) -> list[str]:
    """Warnings about an accepted file: unknown names, and names without effect."""
    warnings = unknown_settings(properties)
    idle = sorted(name for name in properties if name in broker_settings() and not is_honoured(name))
    if idle:
        warnings.append(f"these settings of Apache Kafka have no effect here: {', '.join(idle)}")
    if "log.message.format.version" in properties:
        warnings.append("log.message.format.version is ignored: records are written in the newest format")
    warnings.extend(
        f"{name}: the value looks like a reference to a config provider, and is taken as it stands"
        for name, text in properties.items()
        if text.strip().startswith("${")
    )
    return warnings


def _unknown_setting(name: str) -> str:
    nearest = nearest_name(name)
    hint = f"; did you mean {nearest!r}?" if nearest is not None else ""
    return f"there is no setting {name!r}{hint}"


def validate_dynamic(properties: Mapping[str, str], *, per_broker: bool) -> None:
    """Refuses what may not be set at run time for one broker, or for the cluster as a whole."""
    table = broker_settings()
    known = {name: row for name in properties if (row := table.get(base_name(name))) is not None}
    # As in Kafka, those of a mechanism may all change.
    fixed = [
        name
        for name, row in known.items()
        if row.update_mode is UpdateMode.READ_ONLY and _without_listener(name) == row.name
    ]
    if fixed:
        raise InvalidConfig(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    of_brokers = [name for name in properties if _is_per_broker(name)]
    if of_brokers and not per_broker:
        raise InvalidConfig(
            "Cannot update these configs at default cluster level, broker id must be specified:"
            f" [{', '.join(of_brokers)}]"
        )
    for name, row in known.items():
        row.parse(properties[name])


def _is_per_broker(name: str) -> bool:
    if name.startswith(LISTENER_PREFIX):
        return _without_listener(name) not in _OF_LISTENERS_OF_CLUSTERS
    row = broker_settings().get(name)
    return row is not None and row.update_mode is UpdateMode.PER_BROKER


def base_name(name: str) -> str:
    """The setting itself, or the one that a value of a listener, or of a mechanism of it, overrides."""
    rest = _without_listener(name)
    if rest == name:
        return name
    return next((each for each in _OF_MECHANISMS if rest.endswith(f".{each}")), rest)


def _without_listener(name: str) -> str:
    return name[len(LISTENER_PREFIX) :].partition(".")[2] if name.startswith(LISTENER_PREFIX) else name


def _is_known(name: str) -> bool:
    return name in broker_settings() or name in AUTHORIZER_SETTINGS or name.startswith(_FOREIGN_PREFIXES)
