"""The decisions of a coordinator's machine, and how its shell carries them out.

The shell carries a decision out without waiting in between:

1. It sets and cancels `timers`, and sets those of `timers_if_absent` that do not run. A timer that is due comes back
   to the machine as `expire`.
2. It appends `records` as one batch, in the name of `producer` if there is one, and reports the append to the machine.
3. It does `other_work`, which only the shell of this kind of coordinator knows.
4. It carries out `parts`, each as a decision of its own.

`replies` leave when the records are committed. If they cannot be committed, each requester gets its `refusal` instead.
Either way `then` is called with the outcome, and returns the next decision. A decision without records has no outcome:
its replies wait only for records that the machine counts on already.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

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
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RecordListTooLarge,
    RequestTimedOut,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from barnabas.model import ProducerEpoch, ProducerId


class StoredRecord(Protocol):
    """A record of the coordinator's partition."""

    def key_bytes(self) -> bytes: ...

    def value_bytes(self) -> bytes | None: ...


class Producer(NamedTuple):
    """Records of a transaction are appended in its producer's name."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    # The guard of the log from the verification of the transaction; 0 if there was none.
    verification_guard: int = 0


class Requester:
    """The sender of a request. Each request has its own requester."""

    __slots__ = ("answer",)

    def __init__(self, answer: Callable[[Any], None]) -> None:
        self.answer: Final = answer

    def refusal(self, response: Any, error: KafkaError) -> Any:
        """The reply in place of the response if its records cannot be committed."""
        raise AssertionError("a requester knows how it is refused")


class Decision:
    """Grows while the machine works on one request. The shell reads it once."""

    __slots__ = (
        "is_atomic",
        "other_work",
        "parts",
        "producer",
        "records",
        "replies",
        "then",
        "timeout_ms",
        "timers",
        "timers_if_absent",
    )

    def __init__(self) -> None:
        self.records: list[StoredRecord] = []
        self.producer: Producer | None = None
        # False if the records are independent, so that they may be appended as several batches.
        self.is_atomic = True
        # How long the records may take to be committed; None for the time that the shell gives to all.
        self.timeout_ms: int | None = None
        self.then: Then | None = None
        self.replies: list[tuple[Requester, Any]] = []
        # The delay of a timer to set, None for one to cancel. Of two changes the later counts.
        self.timers: dict[Hashable, int | None] = {}
        self.timers_if_absent: dict[Hashable, int] = {}
        self.other_work: tuple[object, ...] = ()
        self.parts: Sequence[Decision] = ()

    def reply(self, requester: Requester, response: Any) -> None:
        self.replies.append((requester, response))

    def set_timer(self, key: Hashable, delay_ms: int) -> None:
        self.timers[key] = delay_ms

    def set_timer_if_absent(self, key: Hashable, delay_ms: int) -> None:
        if key not in self.timers:
            self.timers_if_absent[key] = delay_ms

    def cancel_timer(self, key: Hashable) -> None:
        self.timers[key] = None

    def keep_timers(self) -> None:
        """No timer is cancelled after all."""
        self.timers = {key: delay_ms for key, delay_ms in self.timers.items() if delay_ms is not None}

    def append(self, records: Sequence[StoredRecord], then: Then | None = None) -> None:
        assert self.then is None
        self.records.extend(records)
        self.then = then


Then: TypeAlias = Callable[[KafkaError | None, int], Decision]
"""Returns the next decision after an append, given its error and the time in milliseconds."""

_ERROR_OF_FAILED_APPEND: Final[dict[int, type[KafkaError]]] = {
    UnknownTopicOrPartition.code: CoordinatorNotAvailable,
    NotEnoughReplicas.code: CoordinatorNotAvailable,
    NotEnoughReplicasAfterAppend.code: CoordinatorNotAvailable,
    RequestTimedOut.code: CoordinatorNotAvailable,
    NotLeaderOrFollower.code: NotCoordinator,
    KafkaStorageError.code: NotCoordinator,
    MessageTooLarge.code: UnknownServerError,
    RecordListTooLarge.code: UnknownServerError,
    InvalidFetchSize.code: UnknownServerError,
    # The coordinator of a transaction could not be asked; older clients do not expect this error.
    NetworkException.code: CoordinatorLoadInProgress,
}


def error_of_failed_append(error: KafkaError) -> KafkaError:
    """The error for a client whose coordinator could not write: it looks for the coordinator again."""
    kind = _ERROR_OF_FAILED_APPEND.get(error.code)
    return error if kind is None else kind(str(error))
