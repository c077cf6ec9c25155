"""One partition that a fetcher copies: how far its log is, and what it needs of the leader next."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from barnabas.model import NO_LEADER_EPOCH, NO_OFFSET, TopicPartition


class Phase(Enum):
    # The leader is asked for records from the end of the log on.
    FETCHING = auto()
    # The leader is asked where the log's last epoch ends there, before any record is fetched.
    TRUNCATING = auto()
    # The leader has no such offset: it is asked for its first and last one.
    OUT_OF_RANGE = auto()


@dataclass(slots=True, kw_only=True)
class FollowedPartition:
    """`last_epoch` is the epoch of the last batch in the log, NO_LEADER_EPOCH if that is not known."""

    topic_partition: TopicPartition
    topic_id: bytes
    leader_epoch: int
    fetch_offset: int
    last_epoch: int
    log_start_offset: int
    phase: Phase
    # Until then it is left out of requests.
    delayed_until_ms: int = 0
    # Errors that the leader has answered with, one after the other.
    errors: int = 0
    # How far the log is behind the leader's high watermark; None before the first answer.
    lag: int | None = None


class FollowerLog(Protocol):
    """What truncation needs to know of a log."""

    @property
    def log_end_offset(self) -> int: ...

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd | None:
        """Where the largest known epoch that is not above the given one ends."""


class EpochEnd(Protocol):
    @property
    def epoch(self) -> int: ...

    @property
    def end_offset(self) -> int: ...


def truncation_point(log: FollowerLog, leader_epoch: int, leader_end_offset: int) -> tuple[int, bool]:
    """Where a log is truncated when the leader has said where its largest epoch up to the log's last one ends.

    The log may hold records of epochs that the leader does not know; then one answer is not enough, and the second
    result is False: the leader is asked again about the epoch before.
    """
    end_offset = log.log_end_offset
    if leader_epoch == NO_LEADER_EPOCH:
        # The leader's log is older than epochs: its end is all that it can tell.
        return min(leader_end_offset, end_offset), True
    own = log.end_offset_for_epoch(leader_epoch)
    if own is None or own.end_offset == NO_OFFSET:
        return min(leader_end_offset, end_offset), True
    if own.epoch != leader_epoch:
        return min(own.end_offset, end_offset), False
    return min(own.end_offset, leader_end_offset, end_offset), True
