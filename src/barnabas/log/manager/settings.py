"""Settings of the log manager that are the broker's, with Kafka's names and defaults."""

from __future__ import annotations

import os

from barnabas.config.log_config import DAY_MS, LONG_MAX
from barnabas.value import Value


class ManagerSettings(Value, kw_only=True):
    num_recovery_threads_per_data_dir: int = 2
    log_initial_task_delay_ms: int = 30_000
    log_retention_check_interval_ms: int = 5 * 60_000
    log_flush_scheduler_interval_ms: int = LONG_MAX
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_flush_start_offset_checkpoint_interval_ms: int = 60_000
    replica_high_watermark_checkpoint_interval_ms: int = 5_000
    producer_id_expiration_ms: int = DAY_MS
    producer_id_expiration_check_interval_ms: int = 10 * 60_000
    verifies_transactions: bool = False
    file_delete_delay_ms: int = 60_000
    log_cleaner_enable: bool = True
    log_cleaner_threads: int = 1
    log_cleaner_dedupe_buffer_size: int = 128 << 20
    log_cleaner_io_buffer_load_factor: float = 0.9
    log_cleaner_io_max_bytes_per_second: float = float("inf")
    log_cleaner_backoff_ms: int = 15_000
    validate_fully: bool = False
    # Whether a log that is not compacted has every offset, as ours have: data after a gap is lost.
    expects_no_gaps: bool = True
    # Whether directories marked for deletion are removed: a tool that only looks after a directory leaves them alone.
    removes_deleted: bool = True
    # Whether a partition whose log vanishes is missed: a tool that only looks after a directory does not know.
    misses_logs: bool = True
    # Paths of logs, and of log directories, whose loss a person has accepted.
    accepted_losses: frozenset[str] = frozenset()

    def accepts_loss(self, path: str) -> bool:
        """Whether a person has accepted the loss of the log at the path, or of all logs in its log directory."""
        return path in self.accepted_losses or os.path.dirname(path) in self.accepted_losses
