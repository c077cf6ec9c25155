"""The settings of groups, with Kafka's defaults."""

from __future__ import annotations

from barnabas.value import Value

_DAY_MS = 24 * 60 * 60 * 1_000
CLASSIC = "classic"
CONSUMER = "consumer"
# Those of the server, the default first.
ASSIGNOR_NAMES = ("uniform", "range")


class GroupSettings(Value, kw_only=True):
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    # How long a member that does not yet know its id may stay parked. Kafka has no setting for it.
    new_member_join_timeout_ms: int = 5 * 60 * 1_000
    offsets_retention_ms: int = 7 * _DAY_MS
    offsets_retention_check_interval_ms: int = 600_000
    offset_metadata_max_bytes: int = 4_096
    # Which protocols there are; a group of another is as good as none.
    rebalance_protocols: frozenset[str] = frozenset({CLASSIC, CONSUMER})
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_max_size: int = 2**31 - 1
    # The first is taken where members do not ask for one.
    consumer_assignors: tuple[str, ...] = ASSIGNOR_NAMES
    consumer_assignment_interval_ms: int = 1_000
    consumer_regex_refresh_interval_ms: int = 600_000
    can_upgrade: bool = True
    can_downgrade: bool = True


class GroupOverrides(Value, kw_only=True):
    """The settings that a single group may override."""

    session_timeout_ms: int | None = None
    heartbeat_interval_ms: int | None = None
    assignment_interval_ms: int | None = None
