"""The timers of groups and of their members."""

from __future__ import annotations

import enum
from typing import NamedTuple


class TimerKind(enum.Enum):
    SESSION = "session"
    JOIN = "join"
    SYNC = "sync"
    # Of a member of a consumer group: to give up what it must, or to join and sync if it speaks the classic protocol.
    REVOCATION = "revocation"
    MEMBER_JOIN = "member join"
    MEMBER_SYNC = "member sync"
    REGEX = "regex"
    CLEANUP = "cleanup"


class TimerKey(NamedTuple):
    """There is at most one timer of a key: setting it again replaces it."""

    kind: TimerKind
    group_id: str = ""
    member_id: str = ""
