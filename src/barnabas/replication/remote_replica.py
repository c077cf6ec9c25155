"""The leader's state of a replica on another broker: all of it comes from the replica's fetches.

A replica's last caught-up time is the largest time at which its last fetch offset was not below the leader's log end.
Times are those of a clock that never goes back: the ISR does not depend on jumps of the wall clock.
"""

from __future__ import annotations

from typing import Final

from barnabas.model import NO_OFFSET, BrokerId

# Before any time of a clock.
NEVER_MS: Final = -(1 << 60)


class RemoteReplica:
    __slots__ = (
        "broker_id",
        "last_caught_up_ms",
        "last_fetch_leader_end_offset",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    broker_id: BrokerId
    log_end_offset: int
    log_start_offset: int
    last_fetch_ms: int
    last_fetch_leader_end_offset: int
    last_caught_up_ms: int

    def __init__(self, broker_id: BrokerId) -> None:
        self.broker_id = broker_id
        self.log_end_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.last_fetch_ms = NEVER_MS
        self.last_fetch_leader_end_offset = NO_OFFSET
        self.last_caught_up_ms = NEVER_MS

    def begin_epoch(
        self, *, leader_end_offset: int, is_new_leader: bool, is_in_sync: bool, now_ms: int
    ) -> None:
        """The leader begins an epoch. A replica that is not in sync has to fetch before it counts as caught up."""
        self.last_caught_up_ms = now_ms if is_in_sync else NEVER_MS
        if is_new_leader:
            self.log_end_offset = NO_OFFSET
            self.log_start_offset = NO_OFFSET
            self.last_fetch_leader_end_offset = NO_OFFSET
            self.last_fetch_ms = NEVER_MS
        else:
            self.last_fetch_leader_end_offset = leader_end_offset
            self.last_fetch_ms = now_ms if is_in_sync else NEVER_MS

    def note_fetch(
        self, *, fetch_offset: int, log_start_offset: int, leader_end_offset: int, now_ms: int
    ) -> None:
        """The replica fetches, so it has all records before the offset.

        A replica that always fetches a little below the leader's end is caught up too: its offset has passed the
        leader's end at the fetch before.
        """
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif fetch_offset >= self.last_fetch_leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.last_fetch_leader_end_offset = max(self.last_fetch_leader_end_offset, leader_end_offset)
        self.last_fetch_ms = now_ms

    def is_caught_up(self, *, leader_end_offset: int, now_ms: int, lag_time_max_ms: int) -> bool:
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_time_max_ms
