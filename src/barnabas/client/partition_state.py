"""An assigned partition as the loop and the caller both see it; `subscription` describes the rules."""

from __future__ import annotations

from barnabas.model import TopicPartition


class PartitionState:
    """An assigned partition from one position on.

    Written by the caller: position, epoch, is_paused, drained_bytes. Written by the loop: the rest; and the position
    while there is none yet.
    """

    __slots__ = (
        "drained_bytes",
        "epoch",
        "fetch_epoch",
        "fetch_offset",
        "fetched_bytes",
        "high_watermark",
        "is_awaiting_callback",
        "is_paused",
        "is_starved",
        "last_stable_offset",
        "log_start_offset",
        "partition",
        "position",
        "reset_timestamp",
        "retry_s",
        "short_waits",
        "validated_epoch",
    )

    def __init__(
        self,
        partition: TopicPartition,
        *,
        position: int | None = None,
        epoch: int = -1,
        reset_timestamp: int | None = None,
        is_paused: bool = False,
        is_awaiting_callback: bool = False,
    ) -> None:
        self.partition = partition
        # The offset of the next record to return; None until the committed offset or a reset is known.
        self.position = position
        self.epoch = epoch
        self.is_paused = is_paused
        # Assigned, but the listener was not called yet: nothing is fetched, so that it may seek first.
        self.is_awaiting_callback = is_awaiting_callback
        # The timestamp for ListOffsets to find the position; None means the committed offset.
        self.reset_timestamp = reset_timestamp
        self.fetch_offset = position
        self.fetch_epoch = epoch
        # Nothing is asked of brokers for it before this time; infinity after an error that the caller has to see.
        self.retry_s = 0.0
        # The leader epoch up to which the position is known to be in the leader's log.
        self.validated_epoch = -1
        # Records between these two offsets wait for the caller.
        self.fetched_bytes = 0
        self.drained_bytes = 0
        # Excluded from fetches because too much waits: the caller notifies the loop when it has taken some.
        self.is_starved = False
        # Fetches of other partitions in a row that were short for the sake of this one.
        self.short_waits = 0
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1

    def settle(self, position: int, epoch: int = -1) -> None:
        """The loop has found where to begin."""
        self.fetch_offset = position
        self.fetch_epoch = epoch
        self.epoch = epoch
        self.position = position

    @property
    def waiting_bytes(self) -> int:
        return self.fetched_bytes - self.drained_bytes

    def successor(
        self, *, position: int | None, epoch: int = -1, reset_timestamp: int | None = None
    ) -> PartitionState:
        """The same partition from another position on."""
        return PartitionState(
            self.partition,
            position=position,
            epoch=epoch,
            reset_timestamp=reset_timestamp,
            is_paused=self.is_paused,
            is_awaiting_callback=self.is_awaiting_callback,
        )
