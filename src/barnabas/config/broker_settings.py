"""Every broker setting of Apache Kafka 3.9.1 and 4.3.1, and the topic settings that they are defaults for.

`broker_settings.json` holds the facts, one row per setting:

    name: [type, default, allowed values, importance, update mode, releases, what 3.9.1 has otherwise]

Types, defaults and bounds are those of 4.3.1. If 3.9.1 differs, the last column has its own. A value that either
release accepts is accepted, so that the broker starts from a file of either release. The table is read at first use.
"""

from __future__ import annotations

import json
import os
from enum import StrEnum
from functools import cache
from typing import Any, Final, NamedTuple

from barnabas.config.definition import Importance, InvalidSetting, Setting, SettingType, SettingValue
from barnabas.config.log_config import LONG_MAX

BROKERS_MAX: Final = 256
HOUR_MS: Final = 60 * 60 * 1000
MINUTE_MS: Final = 60 * 1000


class UpdateMode(StrEnum):
    """Where a running broker takes a new value from."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class BrokerSetting(NamedTuple):
    setting: Setting
    older: Setting
    update_mode: UpdateMode
    releases: tuple[str, ...]
    internal: bool

    @property
    def name(self) -> str:
        return self.setting.name

    @property
    def is_sensitive(self) -> bool:
        return self.setting.type is SettingType.PASSWORD

    def parse(self, text: str) -> SettingValue:
        try:
            return self.setting.parse(text)
        except InvalidSetting:
            if self.older == self.setting:
                raise
            try:
                value = self.older.parse(text)
            except InvalidSetting:
                pass
            else:
                return _to_list(value) if self.setting.type is SettingType.LIST else value
            raise


def processor_count() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def broker_count(text: str) -> int:
    """The value of barnabas.brokers. Raises InvalidSetting."""
    text = text.strip()
    if text == "auto":
        return min(processor_count(), BROKERS_MAX)
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= BROKERS_MAX):
        raise InvalidSetting(
            "barnabas.brokers",
            text,
            f"a number from 1 to {BROKERS_MAX}, or auto for the number of processors",
        )
    return int(text)


class Synonym(NamedTuple):
    """A broker setting that fills in for a topic's, in milliseconds when `factor` is not 1."""

    name: str
    factor: int = 1


# Where we choose another default than 4.3.1, and why.
OUR_DEFAULTS: Final[dict[str, SettingValue]] = {
    # /tmp is no place for data.
    "log.dir": ("./barnabas-data",),
    # As 3.9: a client whose clock is ahead, or that stores times to come, is served.
    "log.message.timestamp.after.max.ms": LONG_MAX,
    # -1 means that the id is found on disk or generated, as in 3.9; 4.3 demands one.
    "node.id": -1,
    # Kafka has no bound unless one is set.
    "queued.max.request.bytes": 128 << 20,
}

# Bytes a second. A file does not set them: tools that move partitions do, and take them away afterwards.
REPLICATION_QUOTAS: Final = (
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)

OUR_SETTINGS: Final = (
    # Paths of files and directories that are lost, or damaged beyond repair, and that the broker may start without.
    Setting("barnabas.accept.loss", SettingType.LIST, (), ""),
    # Brokers of this host that share one store; see server/host/supervisor.py. A file may say `auto`: `broker_count`.
    Setting("barnabas.brokers", SettingType.INT, 1, f"1..{BROKERS_MAX}"),
    # The event loop polls for this time before it sleeps; see net/busy_poll.py. 0 saves processor time.
    Setting("barnabas.busy.poll.us", SettingType.INT, 50, "0..1000"),
    # Of each kind, after a burst; see primitives/log_limit.py. 0 for no bound.
    Setting("barnabas.log.lines.per.second", SettingType.INT, 1, ">=0"),
    # `header` checks the header of a batch; `full` also walks every record, as Apache Kafka does.
    Setting("barnabas.record.validation", SettingType.STRING, "header", "header|full"),
    # Requests that take longer are logged; the time that a fetch waits for records does not count.
    Setting("barnabas.slow.request.ms", SettingType.INT, 1_000, "1..2147483647"),
    # user:password, which the endpoint for metrics asks for (HTTP basic authentication).
    Setting("barnabas.metrics.credentials", SettingType.PASSWORD, None, ""),
    # The host on which metrics are served: this machine only, unless set otherwise; 0.0.0.0 for all addresses.
    Setting("barnabas.metrics.host", SettingType.STRING, "127.0.0.1", ""),
    # A PEM file with private key and certificates: the endpoint for metrics uses TLS then.
    Setting("barnabas.metrics.keystore.location", SettingType.STRING, None, ""),
    # The port that serves metrics to Prometheus; -1 for none.
    Setting("barnabas.metrics.port", SettingType.INT, -1, "0..65535 or -1"),
    # A new connection whose TLS handshake takes longer is closed.
    Setting("barnabas.tls.handshake.timeout.ms", SettingType.INT, 10_000, "1..2147483647"),
    # user:password, with which the broker identifies itself to ZooKeeper (scheme "digest").
    Setting("barnabas.zookeeper.digest", SettingType.PASSWORD, None, ""),
)

TOPIC_SYNONYMS: Final[dict[str, tuple[Synonym, ...]]] = {
    "segment.bytes": (Synonym("log.segment.bytes"),),
    "segment.ms": (Synonym("log.roll.ms"), Synonym("log.roll.hours", HOUR_MS)),
    "segment.jitter.ms": (Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", HOUR_MS)),
    "segment.index.bytes": (Synonym("log.index.size.max.bytes"),),
    "flush.messages": (Synonym("log.flush.interval.messages"),),
    "flush.ms": (Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    "retention.bytes": (Synonym("log.retention.bytes"),),
    "retention.ms": (
        Synonym("log.retention.ms"),
        Synonym("log.retention.minutes", MINUTE_MS),
        Synonym("log.retention.hours", HOUR_MS),
    ),
    "max.message.bytes": (Synonym("message.max.bytes"),),
    "index.interval.bytes": (Synonym("log.index.interval.bytes"),),
    "delete.retention.ms": (Synonym("log.cleaner.delete.retention.ms"),),
    "min.compaction.lag.ms": (Synonym("log.cleaner.min.compaction.lag.ms"),),
    "max.compaction.lag.ms": (Synonym("log.cleaner.max.compaction.lag.ms"),),
    "file.delete.delay.ms": (Synonym("log.segment.delete.delay.ms"),),
    "min.cleanable.dirty.ratio": (Synonym("log.cleaner.min.cleanable.ratio"),),
    "cleanup.policy": (Synonym("log.cleanup.policy"),),
    "unclean.leader.election.enable": (Synonym("unclean.leader.election.enable"),),
    "min.insync.replicas": (Synonym("min.insync.replicas"),),
    "compression.type": (Synonym("compression.type"),),
    "compression.gzip.level": (Synonym("compression.gzip.level"),),
    "compression.lz4.level": (Synonym("compression.lz4.level"),),
    "compression.zstd.level": (Synonym("compression.zstd.level"),),
    "preallocate": (Synonym("log.preallocate"),),
    "message.format.version": (Synonym("log.message.format.version"),),
    "message.timestamp.type": (Synonym("log.message.timestamp.type"),),
    "message.timestamp.difference.max.ms": (Synonym("log.message.timestamp.difference.max.ms"),),
    "message.timestamp.before.max.ms": (Synonym("log.message.timestamp.before.max.ms"),),
    "message.timestamp.after.max.ms": (Synonym("log.message.timestamp.after.max.ms"),),
    "message.downconversion.enable": (Synonym("log.message.downconversion.enable"),),
    "local.retention.ms": (Synonym("log.local.retention.ms"),),
    "local.retention.bytes": (Synonym("log.local.retention.bytes"),),
}


@cache
def broker_settings() -> dict[str, BrokerSetting]:
    with open(os.path.join(os.path.dirname(__file__), "broker_settings.json"), "rb") as file:
        rows = json.load(file)
    settings = {name: _broker_setting(name, *row) for name, row in rows.items()}
    for setting in OUR_SETTINGS:
        settings[setting.name] = BrokerSetting(setting, setting, UpdateMode.READ_ONLY, (), internal=False)
    for name in REPLICATION_QUOTAS:
        setting = Setting(name, SettingType.LONG, LONG_MAX, ">=0")
        settings[name] = BrokerSetting(setting, setting, UpdateMode.CLUSTER_WIDE, (), internal=True)
    return settings


def nearest_name(name: str) -> str | None:
    """The known name that is closest to a mistyped one."""
    # difflib takes a millisecond to import and is needed once in a blue moon.
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, broker_settings(), n=1, cutoff=0.75)), None)


def _broker_setting(
    name: str,
    kind: str,
    default: Any,
    allowed: str,
    importance: str,
    mode: str,
    releases: str,
    otherwise: dict[str, Any] | None = None,
) -> BrokerSetting:
    setting = _setting(name, kind, default, allowed, importance)
    if name in OUR_DEFAULTS:
        setting = setting._replace(default=OUR_DEFAULTS[name])
    older = setting
    if otherwise is not None:
        row = {"kind": kind, "default": default, "allowed": allowed, "importance": importance}
        row.update(
            (("kind" if key == "type" else key), value) for key, value in otherwise.items() if key != "mode"
        )
        older = _setting(name, **row)
    *known_to, last = releases.split()
    internal = last == "internal"
    return BrokerSetting(
        setting, older, UpdateMode(mode), tuple(known_to if internal else [*known_to, last]), internal
    )


def _setting(name: str, kind: str, default: Any, allowed: str, importance: str) -> Setting:
    setting_type = SettingType(kind)
    if setting_type is SettingType.LIST and default is not None:
        default = _to_list(default)
    return Setting(name, setting_type, default, allowed, Importance(importance))


def _to_list(text: SettingValue) -> tuple[str, ...]:
    return tuple(item.strip() for item in str(text).split(",")) if text else ()
