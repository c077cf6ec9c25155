"""Creates and opens the segments of a log by the settings of its topic."""

from __future__ import annotations

from random import Random

from barnabas.clock import Clock
from barnabas.config.log_config import LogConfig
from barnabas.log.file_system import FileSystem
from barnabas.log.segment.segment import Segment
from barnabas.log.segment.settings import SegmentSettings
from barnabas.value import Value


class SegmentFactory(Value, kw_only=True):
    """The random numbers are for the jitter of segment rolls."""

    fs: FileSystem
    clock: Clock
    rng: Random

    def create(self, directory: str, base_offset: int, config: LogConfig, state: str = "") -> Segment:
        return Segment.create(
            self.fs,
            self.clock,
            directory,
            base_offset,
            self._settings(config),
            preallocated_bytes=config.initial_file_bytes,
            state=state,
        )

    def existing(
        self,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        state: str = "",
        has_transaction_index: bool = True,
    ) -> Segment:
        return Segment(
            self.fs,
            self.clock,
            directory,
            base_offset,
            self._settings(config),
            has_transaction_index=has_transaction_index,
            state=state,
        )

    def _settings(self, config: LogConfig) -> SegmentSettings:
        return SegmentSettings(
            config.index_interval_bytes, config.segment_index_bytes, config.random_segment_jitter_ms(self.rng)
        )
