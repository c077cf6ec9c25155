"""Keeps the cleaner away from logs that are truncated, moved, deleted or retained, and these away from the cleaner."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from barnabas.errors import KafkaStorageError
from barnabas.model import TopicPartition

PAUSE_TIMEOUT_S: Final = 300

_IN_PROGRESS: Final = -1
_ABORTED: Final = -2


class CleaningAborted(Exception):
    """The cleaning of a log was stopped: its partition moves, is truncated, or is deleted."""


class CleaningExclusion:
    """Owns the state of each log: being cleaned, paused by some number of callers, or neither.

    Threads: any thread pauses; the cleaner's thread begins and ends. `changed` guards the states. The cleaner holds it
    while it chooses a log.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        # Positive numbers count the callers that have paused a log.
        self._states: dict[TopicPartition, int] = {}

    @contextmanager
    def paused(self, partition: TopicPartition) -> Iterator[None]:
        """Keeps the cleaner off a log; a cleaning that is under way is stopped first."""
        self.pause(partition)
        try:
            yield
        finally:
            self.resume(partition)

    def pause(self, partition: TopicPartition) -> None:
        with self.changed:
            if self._states.get(partition) in (_IN_PROGRESS, _ABORTED):
                self._states[partition] = _ABORTED
                # The cleaner looks after every batch.
                if not self.changed.wait_for(lambda: partition not in self._states, PAUSE_TIMEOUT_S):
                    raise KafkaStorageError(
                        f"the cleaner has not let go of {partition} in {PAUSE_TIMEOUT_S} s"
                    )
            self._states[partition] = self._states.get(partition, 0) + 1

    def try_pause(self, partition: TopicPartition) -> bool:
        """As pause, but a log that is being cleaned is left to the cleaner: false."""
        with self.changed:
            state = self._states.get(partition, 0)
            if state < 0:
                return False
            self._states[partition] = state + 1
            return True

    def resume(self, partition: TopicPartition) -> None:
        with self.changed:
            count = self._states[partition]
            assert count > 0, partition
            if count == 1:
                del self._states[partition]
            else:
                self._states[partition] = count - 1
            self.changed.notify_all()

    def is_free(self, partition: TopicPartition) -> bool:
        """Whether the log may be chosen. The caller holds `changed`."""
        return partition not in self._states

    def begin(self, partition: TopicPartition) -> None:
        """The log is being cleaned from now on. The caller holds `changed`."""
        assert partition not in self._states, partition
        self._states[partition] = _IN_PROGRESS

    def check(self, partition: TopicPartition) -> None:
        """Raises CleaningAborted if another thread wants to pause the log that is being cleaned."""
        if self._states.get(partition) == _ABORTED:
            raise CleaningAborted(str(partition))

    def end(self, partition: TopicPartition) -> None:
        with self.changed:
            del self._states[partition]
            self.changed.notify_all()
