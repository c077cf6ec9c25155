"""The one wait for replication: produce requests, transaction markers and coordinators all use it."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.replication.partition import Partition
from barnabas.broker.waiting.purgatory import DelayedOperation
from barnabas.errors import KafkaError, RequestTimedOut


def await_replicated(
    partition: Partition, end_offset: int, timeout_ms: int, then: Callable[[KafkaError | None], None]
) -> None:
    """Calls `then` exactly once: when all in-sync replicas have the records before the offset, or with an error.

    The caller has just appended these records. The call may come before this returns. The errors are those of
    `Partition.check_replicated`, and RequestTimedOut. With NotEnoughReplicasAfterAppend the records are committed, but
    fewer replicas than `min.insync.replicas` have them.
    """
    partition.delayed.produces.try_complete_else_watch(
        _Replication(partition, end_offset, timeout_ms, then), (partition.topic_partition,)
    )


class _Replication(DelayedOperation):
    """Records that the leader has written and the other in-sync replicas have not."""

    __slots__ = ("_end_offset", "_error", "_leadership", "_partition", "_then")

    def __init__(
        self,
        partition: Partition,
        end_offset: int,
        timeout_ms: int,
        then: Callable[[KafkaError | None], None],
    ) -> None:
        super().__init__(timeout_ms)
        leadership = partition.leadership
        assert leadership is not None, partition.topic_partition
        self._partition = partition
        self._leadership = leadership
        self._end_offset = end_offset
        self._then = then
        self._error: KafkaError | None = None

    def try_complete(self) -> bool:
        try:
            if not self._partition.check_replicated(self._end_offset, self._leadership):
                return False
        except KafkaError as error:
            self._error = error
        return self.force_complete()

    def expire(self) -> None:
        self._error = RequestTimedOut("The in-sync replicas did not all write the records in time.")
        self.force_complete()

    def on_complete(self) -> None:
        self._then(self._error)
