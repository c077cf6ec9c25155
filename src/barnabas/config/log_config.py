"""A topic's settings, as the log needs them: Kafka's names with underscores, Kafka's defaults and bounds.

If releases differ, defaults and bounds are those of 3.9: segments may be small, and a timestamp may be in the future
(4.0 rejects more than an hour). Settings that only one of 3.9 and 4.3 knows are accepted too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from barnabas.config.definition import (
    Importance,
    Setting,
    SettingType,
    SettingValue,
    UnknownSetting,
)
from barnabas.errors import InvalidConfig
from barnabas.value import Value, replace

if TYPE_CHECKING:
    from random import Random

LONG_MAX: Final = (1 << 63) - 1
DAY_MS: Final = 24 * 60 * 60 * 1000
MAGIC_V0: Final = 0
MAGIC_V1: Final = 1
MAGIC_V2: Final = 2

COMPACT: Final = "compact"
DELETE: Final = "delete"
CREATE_TIME: Final = "CreateTime"
LOG_APPEND_TIME: Final = "LogAppendTime"
PRODUCER: Final = "producer"
DELETION_HOLD: Final = "barnabas.deletion.hold"
# The value of local.retention.* that means: as long as retention.*
SAME_AS_RETENTION: Final = -2


class LogConfig(Value, kw_only=True):
    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    retention_bytes: int = -1
    retention_ms: int = 7 * DAY_MS
    max_message_bytes: int = (1 << 20) + 12
    index_interval_bytes: int = 4096
    delete_retention_ms: int = DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    file_delete_delay_ms: int = 60_000
    min_cleanable_dirty_ratio: float = 0.5
    cleanup_policy: tuple[str, ...] = (DELETE,)
    unclean_leader_election_enable: bool = False
    min_insync_replicas: int = 1
    compression_type: str = PRODUCER
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    preallocate: bool = False
    message_format_version: str = "3.0-IV1"
    message_timestamp_type: str = CREATE_TIME
    message_timestamp_difference_max_ms: int = LONG_MAX
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = LONG_MAX
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    message_downconversion_enable: bool = True
    remote_storage_enable: bool = False
    local_retention_ms: int = SAME_AS_RETENTION
    local_retention_bytes: int = SAME_AS_RETENTION
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    # Specific to Barnabas: retention and compaction delete nothing, because no user has confirmed the topic's settings.
    barnabas_deletion_hold: bool = False
    # Kafka's names of the settings that were set for the topic itself, the others being the broker's.
    overridden: frozenset[str] = frozenset()

    def _compared(self) -> tuple[Any, ...]:
        return replace(self, overridden=frozenset())._values()

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], *, defaults: LogConfig | None = None
    ) -> LogConfig:
        """The configuration of a topic whose own settings are these texts; the rest comes from `defaults`.

        Raises InvalidConfig.
        """
        return replace(
            cls() if defaults is None else defaults,
            **parse_topic_settings(properties),
            overridden=frozenset(properties),
        ).validated()

    def validated(self) -> LogConfig:
        """Itself, if its values agree with each other; else raises InvalidConfig."""
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise InvalidConfig(
                f"conflict topic config setting min.compaction.lag.ms ({self.min_compaction_lag_ms}) >"
                f" max.compaction.lag.ms ({self.max_compaction_lag_ms})"
            )
        return self

    def value_of(self, name: str) -> SettingValue:
        """The value of a setting by Kafka's name for it."""
        value: SettingValue = getattr(self, topic_setting(name).name.replace(".", "_"))
        return value

    @property
    def compact(self) -> bool:
        return COMPACT in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return DELETE in self.cleanup_policy

    @property
    def max_segment_ms(self) -> int:
        """How old a segment may grow: a compacted topic also rolls in time for its compaction lag."""
        return min(self.max_compaction_lag_ms, self.segment_ms) if self.compact else self.segment_ms

    @property
    def initial_file_bytes(self) -> int:
        return self.segment_bytes if self.preallocate else 0

    @property
    def timestamp_before_max_ms(self) -> int:
        """How far in the past a record's timestamp may lie; the setting of old that bounds both sides fills in."""
        if self.message_timestamp_before_max_ms != LONG_MAX:
            return self.message_timestamp_before_max_ms
        return self.message_timestamp_difference_max_ms

    @property
    def timestamp_after_max_ms(self) -> int:
        """How far in the future a record's timestamp may lie."""
        if self.message_timestamp_after_max_ms != LONG_MAX:
            return self.message_timestamp_after_max_ms
        return self.message_timestamp_difference_max_ms

    @property
    def message_magic(self) -> int:
        """The record format of a message.format.version."""
        release = tuple(int(part) for part in self.message_format_version.split("-")[0].split("."))
        if release < (0, 10):
            return MAGIC_V0
        return MAGIC_V1 if release < (0, 11) else MAGIC_V2

    def random_segment_jitter_ms(self, rng: Random) -> int:
        """By how much one segment rolls earlier than segment.ms, so that partitions do not all roll at once."""
        bound = min(self.segment_jitter_ms, self.segment_ms)
        return rng.randrange(bound) if bound > 0 else 0

    def effective_local_retention_ms(self) -> int:
        return self.retention_ms if self.local_retention_ms == SAME_AS_RETENTION else self.local_retention_ms

    def effective_local_retention_bytes(self) -> int:
        if self.local_retention_bytes == SAME_AS_RETENTION:
            return self.retention_bytes
        return self.local_retention_bytes


def topic_setting(name: str) -> Setting:
    setting = TOPIC_SETTINGS.get(name)
    if setting is None:
        raise UnknownSetting(f"Unknown topic config name: {name}")
    return setting


def parse_topic_settings(properties: Mapping[str, str]) -> dict[str, Any]:
    """Texts by Kafka's names to values by the fields' names."""
    return {name.replace(".", "_"): topic_setting(name).parse(text) for name, text in properties.items()}


_ALLOWED: Final = {
    # The smallest record of the oldest format takes 14 bytes.
    "segment.bytes": ">=14",
    "segment.ms": ">=1",
    "segment.jitter.ms": ">=0",
    "segment.index.bytes": ">=4",
    "flush.messages": ">=1",
    "flush.ms": ">=0",
    "retention.ms": ">=-1",
    "max.message.bytes": ">=0",
    "index.interval.bytes": ">=0",
    "delete.retention.ms": ">=0",
    "min.compaction.lag.ms": ">=0",
    "max.compaction.lag.ms": ">=1",
    "file.delete.delay.ms": ">=0",
    "min.cleanable.dirty.ratio": "0..1",
    "cleanup.policy": "compact|delete",
    "min.insync.replicas": ">=1",
    "compression.type": "uncompressed|zstd|lz4|snappy|gzip|producer",
    "compression.gzip.level": "1..9 or -1",
    "compression.lz4.level": "1..17",
    "compression.zstd.level": "-131072..22",
    "message.format.version": "release",
    "message.timestamp.type": "CreateTime|LogAppendTime",
    "message.timestamp.difference.max.ms": ">=0",
    "message.timestamp.before.max.ms": ">=0",
    "message.timestamp.after.max.ms": ">=0",
    "leader.replication.throttled.replicas": "throttled",
    "follower.replication.throttled.replicas": "throttled",
    "local.retention.ms": ">=-2",
    "local.retention.bytes": ">=-2",
}
_INTS: Final = frozenset(
    {
        "segment.bytes",
        "segment.index.bytes",
        "max.message.bytes",
        "index.interval.bytes",
        "min.insync.replicas",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
    }
)
_TYPES: Final = {
    "bool": SettingType.BOOLEAN,
    "int": SettingType.LONG,
    "float": SettingType.DOUBLE,
    "str": SettingType.STRING,
    "tuple[str, ...]": SettingType.LIST,
}


def _topic_settings() -> dict[str, Setting]:
    settings = {}
    defaults = LogConfig()
    for attribute, kind_name in LogConfig.__annotations__.items():
        if attribute == "overridden":
            continue
        name = attribute.replace("_", ".")
        default: Any = getattr(defaults, attribute)
        kind = SettingType.INT if name in _INTS else _TYPES[kind_name]
        importance = Importance.LOW if name == "message.downconversion.enable" else Importance.MEDIUM
        settings[name] = Setting(name, kind, default, _ALLOWED.get(name, ""), importance)
    return settings


TOPIC_SETTINGS: Final = _topic_settings()
