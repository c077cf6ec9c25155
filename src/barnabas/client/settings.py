"""The settings of clients, with Kafka's names: keywords with underscores, or a mapping with dots, or both.

    Producer(bootstrap_servers="localhost:9092", linger_ms=20)
    Producer({"bootstrap.servers": "localhost:9092", "linger.ms": 20})

Names, types, defaults and bounds are those of Apache Kafka 4.3.1. Values may be Python values or text, as in a file. An
unknown name raises an error that suggests the closest known one. Functions (serializers, partitioners, interceptors)
are passed as objects.

A table is data: one row per setting. The annotations of a class are its attributes, one per row.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from barnabas.client.reset_policy import ResetPolicy
from barnabas.config.definition import InvalidSetting, Setting, SettingType, SettingValue, UnknownSetting
from barnabas.errors import InvalidConfig, KafkaError

if TYPE_CHECKING:
    from barnabas.peers.security import ConnectionSecurity

log = logging.getLogger(__name__)

BOOLEAN: Final = SettingType.BOOLEAN
INT: Final = SettingType.INT
LONG: Final = SettingType.LONG
DOUBLE: Final = SettingType.DOUBLE
STRING: Final = SettingType.STRING
LIST: Final = SettingType.LIST
CLASS: Final = SettingType.CLASS
PASSWORD: Final = SettingType.PASSWORD

INT_MAX: Final = 2**31 - 1
MINUTE_MS: Final = 60_000

COMMON: Final = (
    Setting("bootstrap.servers", LIST, None),
    Setting("client.id", STRING, None),
    Setting("client.rack", STRING, ""),
    Setting("connections.max.idle.ms", LONG, 9 * MINUTE_MS),
    Setting("metadata.max.age.ms", LONG, 5 * MINUTE_MS, ">=0"),
    # A function that gets errors which no call raises: of connections, metadata, and topics that do not exist.
    Setting("on.error", CLASS, None),
    Setting("receive.buffer.bytes", INT, -1, ">=-1"),
    Setting("reconnect.backoff.max.ms", LONG, 1_000, ">=0"),
    Setting("reconnect.backoff.ms", LONG, 50, ">=0"),
    Setting("request.timeout.ms", INT, 30_000, ">=0"),
    Setting("retry.backoff.max.ms", LONG, 1_000, ">=0"),
    Setting("retry.backoff.ms", LONG, 100, ">=0"),
    Setting("sasl.jaas.config", PASSWORD, None),
    Setting("sasl.mechanism", STRING, "GSSAPI"),
    # Of these five, GSSAPI uses the service name. The others say how Java renews tickets.
    Setting("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit"),
    Setting("sasl.kerberos.min.time.before.relogin", LONG, MINUTE_MS),
    Setting("sasl.kerberos.service.name", STRING, None),
    Setting("sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05),
    Setting("sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8),
    # For OAUTHBEARER: a function that returns a token.
    Setting("sasl.login.callback.handler.class", CLASS, None),
    Setting("sasl.oauthbearer.client.credentials.client.id", STRING, None),
    Setting("sasl.oauthbearer.client.credentials.client.secret", PASSWORD, None),
    Setting("sasl.oauthbearer.scope", STRING, None),
    Setting("sasl.oauthbearer.token.endpoint.url", STRING, None),
    # As in librdkafka, in place of sasl.jaas.config.
    Setting("sasl.password", PASSWORD, None),
    Setting("sasl.username", STRING, None),
    Setting("security.protocol", STRING, "PLAINTEXT", "PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL (any case)"),
    Setting("send.buffer.bytes", INT, -1, ">=-1"),
    Setting("socket.connection.setup.timeout.ms", LONG, 10_000, ">=1"),
    Setting("ssl.cipher.suites", LIST, None),
    Setting("ssl.enabled.protocols", LIST, ("TLSv1.2", "TLSv1.3")),
    Setting("ssl.endpoint.identification.algorithm", STRING, "https"),
    Setting("ssl.key.password", PASSWORD, None),
    Setting("ssl.keystore.certificate.chain", PASSWORD, None),
    Setting("ssl.keystore.key", PASSWORD, None),
    Setting("ssl.keystore.location", STRING, None),
    Setting("ssl.keystore.password", PASSWORD, None),
    Setting("ssl.keystore.type", STRING, "JKS"),
    Setting("ssl.truststore.certificates", PASSWORD, None),
    Setting("ssl.truststore.location", STRING, None),
    Setting("ssl.truststore.password", PASSWORD, None),
    Setting("ssl.truststore.type", STRING, "JKS"),
)

PRODUCER: Final = (
    *COMMON,
    Setting("acks", STRING, "all", "all|-1|0|1"),
    Setting("batch.size", INT, 16_384, ">=0"),
    Setting("buffer.memory", LONG, 32 * 1024 * 1024, ">=0"),
    Setting("compression.gzip.level", INT, -1, "1..9 or -1"),
    Setting("compression.lz4.level", INT, 9, "1..17"),
    Setting("compression.type", STRING, "none", "none|gzip|snappy|lz4|zstd"),
    Setting("compression.zstd.level", INT, 3, "-131072..22"),
    Setting("delivery.timeout.ms", INT, 2 * MINUTE_MS, ">=0"),
    Setting("enable.idempotence", BOOLEAN, True),
    Setting("interceptor.classes", CLASS, None),
    Setting("key.serializer", CLASS, None),
    Setting("linger.ms", LONG, 5, ">=0"),
    Setting("max.block.ms", LONG, MINUTE_MS, ">=0"),
    Setting("max.in.flight.requests.per.connection", INT, 5, ">=1"),
    Setting("max.request.size", INT, 1024 * 1024, ">=0"),
    Setting("metadata.max.idle.ms", LONG, 5 * MINUTE_MS, ">=5000"),
    Setting("partitioner.adaptive.partitioning.enable", BOOLEAN, True),
    Setting("partitioner.availability.timeout.ms", LONG, 0, ">=0"),
    Setting("partitioner.class", CLASS, None),
    Setting("partitioner.ignore.keys", BOOLEAN, False),
    Setting("retries", INT, INT_MAX, ">=0"),
    Setting("transaction.timeout.ms", INT, MINUTE_MS),
    Setting("transactional.id", STRING, None, "nonempty"),
    Setting("value.serializer", CLASS, None),
)

CONSUMER: Final = (
    *COMMON,
    Setting("allow.auto.create.topics", BOOLEAN, True),
    Setting("auto.commit.interval.ms", INT, 5_000, ">=0"),
    Setting("auto.offset.reset", STRING, "latest"),
    Setting("check.crcs", BOOLEAN, True),
    # As in kafka-python: an iteration ends after this time without a record.
    Setting("consumer.timeout.ms", LONG, None, ">=0"),
    Setting("default.api.timeout.ms", INT, MINUTE_MS, ">=0"),
    Setting("enable.auto.commit", BOOLEAN, True),
    Setting("exclude.internal.topics", BOOLEAN, True),
    Setting("fetch.max.bytes", INT, 50 * 1024 * 1024, ">=0"),
    Setting("fetch.max.wait.ms", INT, 500, ">=0"),
    Setting("fetch.min.bytes", INT, 1, ">=0"),
    Setting("group.id", STRING, None, "nonempty"),
    Setting("group.instance.id", STRING, None, "nonempty"),
    Setting("group.protocol", STRING, "classic", "classic|consumer"),
    Setting("group.remote.assignor", STRING, None, "nonempty"),
    Setting("heartbeat.interval.ms", INT, 3_000, ">=1"),
    Setting("interceptor.classes", CLASS, None),
    Setting("isolation.level", STRING, "read_uncommitted", "read_uncommitted|read_committed"),
    Setting("key.deserializer", CLASS, None),
    Setting("max.partition.fetch.bytes", INT, 1024 * 1024, ">=0"),
    Setting("max.poll.interval.ms", INT, 5 * MINUTE_MS, ">=1"),
    Setting("max.poll.records", INT, 500, ">=1"),
    Setting("partition.assignment.strategy", LIST, ("range", "cooperative-sticky"), "nonempty"),
    Setting("session.timeout.ms", INT, 45_000, ">=1"),
    Setting("value.deserializer", CLASS, None),
)

ADMIN: Final = (
    *COMMON,
    Setting("default.api.timeout.ms", INT, MINUTE_MS, ">=0"),
    Setting("retries", INT, INT_MAX, ">=0"),
)


class ClientSettings:
    """The settings of every client. `given` has the names that were set and not left at their defaults."""

    TABLE: ClassVar[tuple[Setting, ...]] = COMMON
    KIND: ClassVar[str] = "client"
    _numbers: ClassVar[Iterable[int]] = itertools.count(1)

    bootstrap_servers: tuple[str, ...]
    client_id: str
    client_rack: str
    connections_max_idle_ms: int
    metadata_max_age_ms: int
    on_error: Callable[[KafkaError], object] | None
    receive_buffer_bytes: int
    reconnect_backoff_max_ms: int
    reconnect_backoff_ms: int
    request_timeout_ms: int
    retry_backoff_max_ms: int
    retry_backoff_ms: int
    sasl_jaas_config: str | None
    sasl_kerberos_kinit_cmd: str
    sasl_kerberos_min_time_before_relogin: int
    sasl_kerberos_service_name: str | None
    sasl_kerberos_ticket_renew_jitter: float
    sasl_kerberos_ticket_renew_window_factor: float
    sasl_login_callback_handler_class: Any
    sasl_mechanism: str
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_password: str | None
    sasl_username: str | None
    security_protocol: str
    send_buffer_bytes: int
    socket_connection_setup_timeout_ms: int
    ssl_cipher_suites: tuple[str, ...] | None
    ssl_enabled_protocols: tuple[str, ...]
    ssl_endpoint_identification_algorithm: str
    ssl_key_password: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_keystore_key: str | None
    ssl_keystore_location: str | None
    ssl_keystore_password: str | None
    ssl_keystore_type: str
    ssl_truststore_certificates: str | None
    ssl_truststore_location: str | None
    ssl_truststore_password: str | None
    ssl_truststore_type: str

    def __init__(self, settings: Mapping[str, object] | None = None, /, **keywords: object) -> None:
        if settings is not None and not isinstance(settings, Mapping):
            from barnabas.client.setting_hints import wrong_argument

            raise InvalidConfig(wrong_argument(self.KIND, settings))
        table = {row.name: row for row in self.TABLE}
        values: dict[str, object] = {name: row.default for name, row in table.items()}
        self.given: Final = self._set(table, values, settings or {}, keywords)
        for name, value in values.items():
            setattr(self, name.replace(".", "_"), value)
        self.bootstrap: Final[tuple[tuple[str, int], ...]] = self._bootstrap()
        if self.client_id is None:
            self.client_id = self._default_client_id()
        # None for PLAINTEXT.
        self.security: Final[ConnectionSecurity | None] = self._security(values)
        if self.on_error is not None and not callable(self.on_error):
            raise InvalidSetting("on.error", self.on_error, "a function (KafkaError) -> None")
        self.check()

    def report(self, error: KafkaError) -> None:
        """Calls on.error, on the client's loop, with an error that no call raises."""
        if self.on_error is not None:
            try:
                self.on_error(error)
            except Exception:
                log.exception("on.error failed")

    def check(self) -> None:
        """Raises InvalidConfig where several settings together cannot be; a class adds to it."""

    def _set(
        self,
        table: Mapping[str, Setting],
        values: dict[str, object],
        settings: Mapping[str, object],
        keywords: Mapping[str, object],
    ) -> frozenset[str]:
        given: set[str] = set()
        for source in (settings, keywords):
            for spelled, value in source.items():
                # A mapping may come with underscores too: no two names of Kafka's differ in that alone.
                name = spelled.replace("_", ".")
                row = table.get(name)
                if row is None:
                    raise _unknown(spelled, self.KIND, table)
                if name in given and source is keywords and spelled not in settings:
                    raise InvalidConfig(f"{name} is given twice: as a keyword and in the mapping")
                if value is not None:
                    values[name] = value_of(row, value)
                    given.add(name)
        return frozenset(given)

    def _bootstrap(self) -> tuple[tuple[str, int], ...]:
        if not self.bootstrap_servers:
            raise InvalidConfig(
                "bootstrap.servers is missing: name at least one broker, such as"
                f' {self.KIND.capitalize()}(bootstrap_servers="localhost:9092")'
            )
        return tuple(parse_address(text) for text in self.bootstrap_servers)

    def _security(self, values: Mapping[str, object]) -> ConnectionSecurity | None:
        protocol = self.security_protocol.upper()
        for prefix, what in (("ssl.", "SSL"), ("sasl.", "SASL")):
            idle = sorted(name for name in self.given if name.startswith(prefix))
            if idle and what not in protocol:
                raise InvalidConfig(
                    f"{idle[0]} has no effect with security.protocol={protocol}: set that to one with {what}, or leave"
                    f" {idle[0]} out"
                )
        if protocol == "PLAINTEXT":
            return None
        # Clients without security do without these modules.
        from barnabas.peers.security import connection_security

        return connection_security(
            protocol,
            self.sasl_mechanism,
            values.__getitem__,
            self.sasl_jaas_config,
            user=self.sasl_username,
            password=self.sasl_password,
        )

    def _default_client_id(self) -> str:
        return f"{self.KIND}-{next(cast(Any, self._numbers))}"


class ProducerSettings(ClientSettings):
    TABLE = PRODUCER
    KIND = "producer"
    _numbers = itertools.count(1)

    acks: str
    batch_size: int
    buffer_memory: int
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    delivery_timeout_ms: int
    enable_idempotence: bool
    interceptor_classes: Any
    key_serializer: Callable[..., bytes | None] | None
    linger_ms: int
    max_block_ms: int
    max_in_flight_requests_per_connection: int
    max_request_size: int
    metadata_max_idle_ms: int
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: int
    partitioner_class: Any
    partitioner_ignore_keys: bool
    retries: int
    transaction_timeout_ms: int
    transactional_id: str | None
    value_serializer: Callable[..., bytes | None] | None

    MAX_IN_FLIGHT_IF_IDEMPOTENT: ClassVar[int] = 5

    @property
    def acks_number(self) -> int:
        return -1 if self.acks == "all" else int(self.acks)

    @property
    def compression_level(self) -> int | None:
        """The level of the chosen compression; None where it has none or is left to its default."""
        level: int | None = getattr(self, f"compression_{self.compression_type}_level", None)
        return None if f"compression.{self.compression_type}.level" not in self.given else level

    def _default_client_id(self) -> str:
        return (
            super()._default_client_id()
            if self.transactional_id is None
            else f"producer-{self.transactional_id}"
        )

    def check(self) -> None:
        self._check_idempotence()
        if self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms:
            if "delivery.timeout.ms" in self.given:
                raise InvalidConfig(
                    f"delivery.timeout.ms={self.delivery_timeout_ms} must be at least linger.ms={self.linger_ms} and"
                    f" request.timeout.ms={self.request_timeout_ms} together: raise it, or lower those"
                )
            self.delivery_timeout_ms = min(self.linger_ms + self.request_timeout_ms, INT_MAX)

    def _check_idempotence(self) -> None:
        """As in Kafka: settings that conflict with idempotence turn it off, unless it was set explicitly."""
        obstacles = []
        if self.retries == 0:
            obstacles.append("retries=0, which must be at least 1")
        if self.acks_number != -1:
            obstacles.append(f"acks={self.acks}, which must be all")
        if self.max_in_flight_requests_per_connection > self.MAX_IN_FLIGHT_IF_IDEMPOTENT:
            obstacles.append(
                f"max.in.flight.requests.per.connection={self.max_in_flight_requests_per_connection}, which must be at"
                f" most {self.MAX_IN_FLIGHT_IF_IDEMPOTENT}"
            )
        asked_for = "enable.idempotence" in self.given and self.enable_idempotence
        if obstacles and (asked_for or self.transactional_id is not None):
            wish = "enable.idempotence=true" if asked_for else f"transactional.id={self.transactional_id}"
            raise InvalidConfig(f"{wish} cannot be with {obstacles[0]}")
        if obstacles:
            self.enable_idempotence = False
        elif self.transactional_id is not None and not self.enable_idempotence:
            raise InvalidConfig(
                f"transactional.id={self.transactional_id} cannot be with enable.idempotence=false: leave that out"
            )


class ConsumerSettings(ClientSettings):
    TABLE = CONSUMER
    KIND = "consumer"
    _numbers = itertools.count(1)

    allow_auto_create_topics: bool
    auto_commit_interval_ms: int
    auto_offset_reset: str
    check_crcs: bool
    consumer_timeout_ms: int | None
    default_api_timeout_ms: int
    enable_auto_commit: bool
    exclude_internal_topics: bool
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    fetch_min_bytes: int
    group_id: str | None
    group_instance_id: str | None
    group_protocol: str
    group_remote_assignor: str | None
    heartbeat_interval_ms: int
    interceptor_classes: Any
    isolation_level: str
    key_deserializer: Callable[[bytes], Any] | None
    max_partition_fetch_bytes: int
    max_poll_interval_ms: int
    max_poll_records: int
    partition_assignment_strategy: tuple[str, ...]
    session_timeout_ms: int
    value_deserializer: Callable[[bytes], Any] | None

    # In a group with the new protocol, these come from the broker, or from group.remote.assignor.
    CLASSIC_ONLY: ClassVar[tuple[str, ...]] = (
        "heartbeat.interval.ms",
        "partition.assignment.strategy",
        "session.timeout.ms",
    )

    def check(self) -> None:
        if ResetPolicy.parse(self.auto_offset_reset) is None:
            raise InvalidSetting(
                "auto.offset.reset",
                self.auto_offset_reset,
                "earliest, latest, none or by_duration:PERIOD, such as by_duration:PT1H",
            )
        if self.group_id is None:
            if self.enable_auto_commit and "enable.auto.commit" in self.given:
                raise InvalidConfig("enable.auto.commit=true needs a group.id to commit offsets for")
            if self.group_instance_id is not None:
                raise InvalidConfig("group.instance.id needs a group.id that the instance is a member of")
            self.enable_auto_commit = False
        if self.group_protocol == "consumer":
            for name in self.CLASSIC_ONLY:
                if name in self.given:
                    raise InvalidConfig(
                        f"{name} cannot be with group.protocol=consumer, where the broker decides it: leave it out"
                    )
        else:
            self._check_classic()

    def _check_classic(self) -> None:
        if "group.remote.assignor" in self.given:
            raise InvalidConfig(
                "group.remote.assignor needs group.protocol=consumer; with classic groups it is"
                " partition.assignment.strategy"
            )
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise InvalidConfig(
                f"heartbeat.interval.ms={self.heartbeat_interval_ms} must be below"
                f" session.timeout.ms={self.session_timeout_ms}: a third of it is usual"
            )


class AdminSettings(ClientSettings):
    TABLE = ADMIN
    KIND = "admin"
    _numbers = itertools.count(1)

    default_api_timeout_ms: int
    retries: int


def value_of(setting: Setting, given: object) -> object:
    """The value that a setting is given, as text or as Python has it, checked."""
    kind = setting.type
    if kind is CLASS:
        return given
    if isinstance(given, str):
        return setting.parse(given)
    value: SettingValue
    if kind is BOOLEAN:
        value = given if isinstance(given, bool) else _refuse(setting, given)
    elif kind is LIST:
        value = tuple(map(str, given)) if isinstance(given, list | tuple) else _refuse(setting, given)
    elif isinstance(given, bool) or not isinstance(given, int | float):
        _refuse(setting, given)
    elif kind is STRING or kind is PASSWORD:
        value = str(given)
    elif kind is DOUBLE:
        value = float(given)
    elif isinstance(given, float) and not given.is_integer():
        _refuse(setting, given)
    else:
        return setting.parse(str(int(given)))
    if not setting.allows(value):
        _refuse(setting, given)
    return value


def _refuse(setting: Setting, given: object) -> Any:
    shown = "[hidden]" if setting.type is PASSWORD else given
    raise InvalidSetting(setting.name, shown, setting.describe_allowed())


def parse_address(text: str) -> tuple[str, int]:
    """`host:port`, `[::1]:port`; a listener's name before it (PLAINTEXT://host:port) does not count."""
    rest = text.rpartition("://")[2]
    host, colon, port = rest.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise InvalidSetting(
            "bootstrap.servers", text, "host:port, several with commas, such as localhost:9092"
        )
    return host, int(port)


def _unknown(name: str, kind: str, table: Mapping[str, Setting]) -> UnknownSetting:
    # difflib takes a millisecond to import and is needed once in a blue moon.
    from difflib import get_close_matches

    from barnabas.client.setting_hints import hint_for

    told = hint_for(name, table)
    if told is not None:
        return UnknownSetting(f"a {kind} has no setting {name!r}: {told}")
    near = get_close_matches(name.replace("_", ".").lower(), table, n=1, cutoff=0.6)
    hint = (
        f"did you mean {near[0]} ({near[0].replace('.', '_')} as a keyword)?"
        if near
        else "see the documentation"
    )
    return UnknownSetting(f"a {kind} has no setting {name!r}; {hint}")
