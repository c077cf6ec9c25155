"""What the machine decides: the shell around it carries it out.

The shell, for each decision and without waiting in between:

1. sends `replies`,
2. sets and cancels `timers`; one that is due comes back as `TransactionCoordinator.expire`,
3. makes each of `appends`, as one batch, and calls its `then` once the records are committed, or with the error that
   kept them from it. What that returns is a decision again,
4. has `markers` written, and tells the coordinator by `markers_written` how that went.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeAlias, TypeVar

from barnabas.errors import (
    CoordinatorNotAvailable,
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RecordListTooLarge,
    RequestTimedOut,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from barnabas.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId, TopicPartition
from barnabas.transactions.records import TransactionRecord

AnswerT = TypeVar("AnswerT")


class TimerKind(enum.Enum):
    ABORT_TIMED_OUT = "abort timed out"
    REMOVE_EXPIRED = "remove expired"
    # What a single transaction needs to come to its end, if it did not at once.
    RETRY = "retry"


class TimerKey(NamedTuple):
    """There is at most one timer of a key: setting it again replaces it."""

    kind: TimerKind
    transactional_id: str = ""


class ProducerAnswer:
    """To InitProducerId and EndTxn: the id and epoch to go on with, or why not."""

    __slots__ = ("error", "producer_epoch", "producer_id")

    def __init__(
        self,
        *,
        error: KafkaError | None = None,
        producer_id: ProducerId = NO_PRODUCER_ID,
        producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH,
    ) -> None:
        self.error: Final = error
        self.producer_id: Final = producer_id
        self.producer_epoch: Final = producer_epoch


class Markers:
    """The end of a transaction, for each of the partitions."""

    __slots__ = ("is_commit", "partitions", "producer_epoch", "producer_id", "transactional_id", "version")

    def __init__(
        self,
        *,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        is_commit: bool,
        partitions: tuple[TopicPartition, ...],
        version: int,
    ) -> None:
        self.transactional_id: Final = transactional_id
        self.producer_id: Final = producer_id
        self.producer_epoch: Final = producer_epoch
        self.is_commit: Final = is_commit
        self.partitions: Final = partitions
        self.version: Final = version


class Append:
    __slots__ = ("records", "then", "timeout_ms")

    def __init__(self, records: list[TransactionRecord], then: Then, timeout_ms: int) -> None:
        self.records: Final = records
        self.then: Final = then
        self.timeout_ms: Final = timeout_ms


class Decision:
    """Grows while the machine works on one request, and is read once by the shell."""

    __slots__ = ("appends", "markers", "replies", "timers")

    def __init__(self) -> None:
        self.replies: list[Callable[[], None]] = []
        # The delay of a timer to set, None for one to cancel; of two changes the later counts.
        self.timers: dict[TimerKey, int | None] = {}
        self.appends: list[Append] = []
        self.markers: list[Markers] = []

    def reply(self, answer_to: Callable[[AnswerT], None], answer: AnswerT) -> None:
        self.replies.append(partial(answer_to, answer))


Then: TypeAlias = Callable[[KafkaError | None, int], Decision]
"""What follows an append, given its error and the time in milliseconds."""

_ERROR_OF_FAILED_APPEND: Final[dict[int, type[KafkaError]]] = {
    UnknownTopicOrPartition.code: CoordinatorNotAvailable,
    NotEnoughReplicas.code: CoordinatorNotAvailable,
    NotEnoughReplicasAfterAppend.code: CoordinatorNotAvailable,
    RequestTimedOut.code: CoordinatorNotAvailable,
    NotLeaderOrFollower.code: NotCoordinator,
    KafkaStorageError.code: NotCoordinator,
    MessageTooLarge.code: UnknownServerError,
    RecordListTooLarge.code: UnknownServerError,
}


def error_of_failed_append(error: KafkaError) -> KafkaError:
    """What a producer is told when its coordinator could not write."""
    kind = _ERROR_OF_FAILED_APPEND.get(error.code)
    return error if kind is None else kind(str(error))
