"""Counters of coordinators.

One object serves all coordinators of a broker, so that nothing is lost when a partition moves.
"""

from __future__ import annotations


class GroupCounts:
    __slots__ = (
        "classic_rebalances",
        "consumer_rebalances",
        "offset_commits",
        "offset_deletions",
        "offset_expirations",
    )

    def __init__(self) -> None:
        self.offset_commits = 0
        self.offset_expirations = 0
        self.offset_deletions = 0
        self.classic_rebalances = 0
        self.consumer_rebalances = 0
