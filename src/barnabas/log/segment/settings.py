"""The settings of a topic that a segment keeps for its life."""

from __future__ import annotations

from typing import NamedTuple


class SegmentSettings(NamedTuple):
    index_interval_bytes: int
    max_index_bytes: int
    roll_jitter_ms: int = 0
