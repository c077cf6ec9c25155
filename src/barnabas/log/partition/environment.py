"""The parts and settings that a partition's log gets when it is opened."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from barnabas.clock import Clock
from barnabas.log.file_system import FileSystem
from barnabas.log.producers.state import ProducerSettings
from barnabas.log.scheduler import InlineScheduler, Scheduler
from barnabas.value import Value, field

OnFlush = Callable[[int], None]
"""Gets the nanoseconds that a flush took, in the thread that flushed."""


def _fixed_random() -> Random:
    return Random(0)


class LogEnvironment(Value, kw_only=True):
    """The parts and settings that all logs of a broker share. The random numbers are for the jitter of segment rolls.

    The producer settings may change while logs use them; `validate_fully` applies to logs that are opened from now on.
    """

    fs: FileSystem
    clock: Clock
    scheduler: Scheduler = field(default_factory=InlineScheduler)
    rng: Random = field(default_factory=_fixed_random)
    producer_settings: ProducerSettings = field(default_factory=ProducerSettings)
    validate_fully: bool = False
    on_flush: OnFlush | None = None


class PriorState(Value, kw_only=True):
    """The log directory's data about a log before it is opened; the defaults are for a new log.

    The two offsets come from the directory's checkpoints. A clean shutdown of Barnabas `lists_side_files`, one of
    another broker does not. A log `is_gapless` if it was never compacted: then recovery notices that a segment lost its
    end.
    """

    recovery_point: int = 0
    log_start_offset: int = 0
    clean_shutdown: bool = False
    lists_side_files: bool = True
    is_gapless: bool = False
