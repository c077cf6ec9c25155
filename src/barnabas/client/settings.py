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
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final, cast

from barnabas.client.reset_policy import ResetPolicy
from barnabas.config.definition import InvalidSetting, Setting, SettingType, SettingValue, UnknownSetting
from barnabas.errors import InvalidConfig

BOOLEAN: Final = SettingType.BOOLEAN
INT: Final = SettingType.INT
LONG: Final = SettingType.LONG
DOUBLE: Final = SettingType.DOUBLE
STRING: Final = SettingType.STRING
LIST: Final = SettingType.LIST
CLASS: Final = SettingType.CLASS

INT_MAX: Final = 2**31 - 1
MINUTE_MS: Final = 60_000

COMMON: Final = (
    Setting("bootstrap.servers", LIST, None),
    Setting("client.id", STRING, None),
    Setting("client.rack", STRING, ""),
    Setting("connections.max.idle.ms", LONG, 9 * MINUTE_MS),
    Setting("metadata.max.age.ms", LONG, 5 * MINUTE_MS, ">=0"),
    Setting("receive.buffer.bytes", INT, -1, ">=-1"),
    Setting("reconnect.backoff.max.ms", LONG, 1_000, ">=0"),
    Setting("reconnect.backoff.ms", LONG, 50, ">=0"),
    Setting("request.timeout.ms", INT, 30_000, ">=0"),
    Setting("retry.backoff.max.ms", LONG, 1_000, ">=0"),
    Setting("retry.backoff.ms", LONG, 100, ">=0"),
    Setting("security.protocol", STRING, "PLAINTEXT", "PLAINTEXT|plaintext"),
    Setting("send.buffer.bytes", INT, -1, ">=-1"),
    Setting("socket.connection.setup.timeout.ms", LONG, 10_000, ">=1"),
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
    receive_buffer_bytes: int
    reconnect_backoff_max_ms: int
    reconnect_backoff_ms: int
    request_timeout_ms: int
    retry_backoff_max_ms: int
    retry_backoff_ms: int
    security_protocol: str
    send_buffer_bytes: int
    socket_connection_setup_timeout_ms: int

    def __init__(self, settings: Mapping[str, object] | None = None, /, **keywords: object) -> None:
        table = {row.name: row for row in self.TABLE}
        values: dict[str, object] = {name: row.default for name, row in table.items()}
        self.given: Final = self._set(table, values, settings or {}, keywords)
        for name, value in values.items():
            setattr(self, name.replace(".", "_"), value)
        self.bootstrap: Final[tuple[tuple[str, int], ...]] = self._bootstrap()
        if self.client_id is None:
            self.client_id = self._default_client_id()
        self.check()

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
    elif kind is STRING:
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
    raise InvalidSetting(setting.name, given, setting.describe_allowed())


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

    near = get_close_matches(name.replace("_", ".").lower(), table, n=1, cutoff=0.6)
    hint = (
        f"did you mean {near[0]} ({near[0].replace('.', '_')} as a keyword)?"
        if near
        else "see the documentation"
    )
    return UnknownSetting(f"a {kind} has no setting {name!r}; {hint}")
