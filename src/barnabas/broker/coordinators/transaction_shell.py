"""The shell of the coordinator of one partition of `__transaction_state`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Final, TypeAlias

from barnabas.broker.coordinators.shell import CoordinatorShell
from barnabas.broker.replication.partition import Partition
from barnabas.broker.waiting.timing_wheel import Timer
from barnabas.clock import Clock
from barnabas.errors import KafkaError
from barnabas.log.partition.append import AppendInfo
from barnabas.model import TopicPartition
from barnabas.primitives.decision import Decision
from barnabas.records.header import BatchHeader
from barnabas.records.record import Record
from barnabas.transactions.coordinator import TOMBSTONE_TIMEOUT_MS, TransactionCoordinator
from barnabas.transactions.markers import Markers
from barnabas.transactions.timers import TimerKey, TimerKind

log = logging.getLogger(__name__)

MarkersWritten: TypeAlias = Callable[[dict[TopicPartition, KafkaError | None]], None]
# Writes the markers of a coordinator of an epoch, and reports once for each partition how that went.
SendMarkers: TypeAlias = Callable[[Markers, int, MarkersWritten], None]

_SHOWN_ERRORS: Final = 3
_SOON_MS: Final = 10


class TransactionShell(CoordinatorShell):
    def __init__(
        self,
        partition: Partition,
        coordinator: TransactionCoordinator,
        send_markers: SendMarkers,
        *,
        timer: Timer,
        clock: Clock,
    ) -> None:
        super().__init__(partition, timer=timer, clock=clock, commit_timeout_ms=TOMBSTONE_TIMEOUT_MS)
        self.coordinator = coordinator
        self._send_markers = send_markers

    def _replay(self, header: BatchHeader, records: Sequence[Record]) -> None:
        self.coordinator.replay(header, records)

    def _loaded(self, now_ms: int) -> Decision:
        return self.coordinator.loaded(now_ms)

    def _activated(self) -> None:
        """Nothing is put off."""

    def _unloaded(self, now_ms: int) -> Decision:
        return Decision()

    def _expired(self, key: Hashable, now_ms: int) -> Decision:
        assert isinstance(key, TimerKey)
        return self.coordinator.expire(key, now_ms)

    def _appended(self, decision: Decision, info: AppendInfo, high_watermark: int) -> None:
        """A transaction takes its step when the record is committed: see `then` of the decision."""

    def _catch_up(self, high_watermark: int) -> None:
        """The same."""

    def _do(self, work: object) -> None:
        assert isinstance(work, Markers)
        self._send_markers(work, self.coordinator_epoch, partial(self._markers_written, work))

    @property
    def coordinator_epoch(self) -> int:
        """The leader epoch of this coordinator's own leadership.

        The partition has the epoch of the next leader as soon as this broker has lost the role.
        """
        leadership = self._leadership
        assert leadership is not None
        return leadership.leader_epoch

    def retry_soon(self) -> None:
        """Leaders may have changed: transactions that wait to be ended on them try again."""
        retries = [key for key in self._timers if isinstance(key, TimerKey) and key.kind is TimerKind.RETRY]
        self._change_timers(dict.fromkeys(retries, _SOON_MS))

    def _markers_written(self, markers: Markers, results: dict[TopicPartition, KafkaError | None]) -> None:
        if not self._is_active:
            return
        failed = [f"{partition}: {error}" for partition, error in results.items() if error is not None]
        if failed:
            log.warning(
                "The transaction of %s has no marker in %d of %d partitions: %s",
                markers.transactional_id,
                len(failed),
                len(results),
                "; ".join(failed[:_SHOWN_ERRORS]),
            )
        self.carry_out(self.coordinator.markers_written(markers, results, self._clock.now_ms()))
