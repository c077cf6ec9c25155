"""What a machine decides: the shell around it carries it out.

The shell, for each decision and without waiting in between:

1. sends `replies`,
2. sets and cancels `timers`, and sets those `timers_if_absent` that do not run; one that is due comes back as
   `GroupCoordinator.expire`,
3. appends `records` as one batch, for `producer` if that is set, and tells the coordinator by `appended`,
4. calls `then`, if there is one, once the records are committed, or with the error that kept them from it. What
   that returns is a decision again.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from barnabas.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidFetchSize,
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    NetworkException,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    RecordListTooLarge,
    RequestTimedOut,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from barnabas.groups.records import GroupRecord
from barnabas.model import ProducerEpoch, ProducerId
from barnabas.protocol.message import Message


class Caller:
    """Who sent a request. A parked request is known by its caller, so each request has one of its own."""

    __slots__ = ("client_host", "client_id", "ticket", "version")

    def __init__(
        self, *, version: int, client_id: str = "", client_host: str = "", ticket: object = None
    ) -> None:
        self.version: Final = version
        self.client_id: Final = client_id
        self.client_host: Final = client_host
        # Whatever the shell needs to find the request again.
        self.ticket: Final = ticket


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


class Producer(NamedTuple):
    """Records of a transaction are appended in its producer's name."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    # What the log gave out when the transaction's coordinator was asked about it; 0 if it was not.
    verification_guard: int = 0


class Decision:
    """Grows while the machine works on one request, and is read once by the shell."""

    __slots__ = ("producer", "records", "replies", "then", "timers", "timers_if_absent")

    def __init__(self) -> None:
        self.records: list[GroupRecord] = []
        self.producer: Producer | None = None
        self.replies: list[tuple[Caller, Message]] = []
        # The delay of a timer to set, None for one to cancel; of two changes the later counts.
        self.timers: dict[TimerKey, int | None] = {}
        self.timers_if_absent: dict[TimerKey, int] = {}
        self.then: Then | None = None

    def reply(self, caller: Caller, response: Message) -> None:
        self.replies.append((caller, response))

    def set_timer(self, key: TimerKey, delay_ms: int) -> None:
        self.timers[key] = delay_ms

    def set_timer_if_absent(self, key: TimerKey, delay_ms: int) -> None:
        if key not in self.timers:
            self.timers_if_absent[key] = delay_ms

    def cancel_timer(self, key: TimerKey) -> None:
        self.timers[key] = None

    def keep_timers(self) -> None:
        """No timer is cancelled after all."""
        self.timers = {key: delay_ms for key, delay_ms in self.timers.items() if delay_ms is not None}

    def append(self, records: list[GroupRecord], then: Then | None = None) -> None:
        assert self.then is None
        self.records.extend(records)
        self.then = then


Then: TypeAlias = Callable[[KafkaError | None, int], Decision]
"""What follows an append, given its error and the time in milliseconds."""

_CODE_OF_FAILED_APPEND: Final[dict[int, int]] = {
    UnknownTopicOrPartition.code: CoordinatorNotAvailable.code,
    NotEnoughReplicas.code: CoordinatorNotAvailable.code,
    RequestTimedOut.code: CoordinatorNotAvailable.code,
    NotLeaderOrFollower.code: NotCoordinator.code,
    KafkaStorageError.code: NotCoordinator.code,
    MessageTooLarge.code: UnknownServerError.code,
    RecordListTooLarge.code: UnknownServerError.code,
    InvalidFetchSize.code: UnknownServerError.code,
    # Of the question to the coordinator of a transaction; older clients do not expect it.
    NetworkException.code: CoordinatorLoadInProgress.code,
}


def code_of_failed_append(error: KafkaError) -> int:
    """What a client of a group is told when its coordinator could not write: to look for the coordinator again."""
    return _CODE_OF_FAILED_APPEND.get(error.code, error.code)
