"""What a fetcher does to logs: appends the leader's records, follows its watermarks, truncates.

Batches are written as they came. Each step leaves the log in a state that the outcome describes; a step that fails
leaves it as it was.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from barnabas.errors import KafkaError, KafkaStorageError, UnknownServerError
from barnabas.log.manager.manager import LogManager
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.model import NO_LEADER_EPOCH, TopicPartition
from barnabas.replication.fetcher import Append, Diverge, Fail, StartAt, Step, TruncateTo
from barnabas.replication.followed import truncation_point

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Done:
    step: Step
    log_end_offset: int
    last_epoch: int
    log_start_offset: int
    # Whether consumers can read further than before.
    has_new_watermark: bool = False
    # Whether a truncation found the place where the logs part.
    is_complete: bool = True


@dataclass(frozen=True, slots=True)
class Failed:
    step: Step
    error: KafkaError


Outcome: TypeAlias = Done | Failed


class FollowerWrites:
    """Threads: any thread calls, for a partition one at a time."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager

    def carry_out(self, steps: Iterable[Step]) -> list[Outcome]:
        return [self._carry_out(step) for step in steps]

    def _carry_out(self, step: Step) -> Outcome:
        try:
            log = self._manager.log(step.key)
            if log is None:
                return Failed(step, KafkaStorageError(f"{step.key} has no log any more."))
            if isinstance(step, Append):
                return self._append(log, step)
            is_complete = True
            if isinstance(step, Diverge):
                offset, is_complete = truncation_point(log, step.epoch, step.end_offset)
                self._truncate_to(log, offset)
            elif isinstance(step, TruncateTo):
                self._truncate_to(log, step.offset)
            else:
                assert isinstance(step, StartAt), step
                self._drop_copy(step.key)
                self._manager.truncate_fully_and_start_at(step.key, step.offset)
            return _done(log, step, is_complete=is_complete)
        except KafkaError as error:
            return Failed(step, error)
        except Exception as error:
            # As in Apache Kafka, only this partition is not copied any more: the leader's others are not affected.
            logger.exception("A step for %s has failed", step.key)
            return Failed(step, UnknownServerError(f"{type(error).__name__}: {error}"))

    def _truncate_to(self, log: PartitionLog, offset: int) -> None:
        if offset < log.log_end_offset:
            self._drop_copy(log.topic_partition)
        self._manager.truncate_to(log.topic_partition, offset)

    def _drop_copy(self, key: TopicPartition) -> None:
        """A copy in another log directory may have records that are about to go. Its move ends, and can be repeated."""
        if self._manager.log(key, is_future=True) is not None:
            logger.warning("%s is truncated: its move to another log directory has to begin again", key)
            self._manager.delete(key, is_future=True)

    def _append(self, log: PartitionLog, step: Append) -> Done:
        if step.records:
            self._manager.append_as_follower(step.key, step.records)
        high_watermark = min(max(step.high_watermark, log.log_start_offset), log.log_end_offset)
        is_new = high_watermark != log.high_watermark
        if is_new:
            log.update_high_watermark(high_watermark)
        if log.log_start_offset < step.log_start_offset <= high_watermark:
            log.advance_log_start_offset(step.log_start_offset)
        return _done(log, step, has_new_watermark=is_new)


def _done(
    log: PartitionLog, step: Step, *, has_new_watermark: bool = False, is_complete: bool = True
) -> Done:
    assert not isinstance(step, Fail), step
    return Done(
        step,
        log.log_end_offset,
        latest_epoch(log),
        log.log_start_offset,
        has_new_watermark,
        is_complete,
    )


def latest_epoch(log: PartitionLog) -> int:
    epoch = log.latest_epoch
    return NO_LEADER_EPOCH if epoch is None else epoch
