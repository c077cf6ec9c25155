"""Memory of a Python worker of Spark, which lives for many tasks.

Blocks that are freed are kept for the next batch of columns. glibc maps every block of some size anew and unmaps it
when it is freed, and gives back what is free at the end of its heap. The system then clears each page again at its
first use: measured, twice the time that decoding itself takes, and a seventh of writing.

Modules and what they hold are no garbage. Spark has Python's collector look through everything after each task:
measured, a seventh of a worker's time when it reads.
"""

from __future__ import annotations

import ctypes
import functools
import gc
from typing import Final

from pyspark import TaskContext

# mallopt's names of settings, of <malloc.h>.
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3

KEPT_BYTES_MAX: Final = 128 * 1024 * 1024
BLOCK_BYTES_MAX: Final = 32 * 1024 * 1024


def settle_in() -> None:
    """Called by whoever moves many columns in a task; what it does, it does once. Elsewhere nothing changes."""
    if TaskContext.get() is not None:
        _settle_in()


@functools.cache
def _settle_in() -> None:
    keep_freed_memory()
    gc.freeze()


def keep_freed_memory() -> None:
    """Has the process keep blocks that are freed, up to a bound. Without glibc nothing changes."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(M_MMAP_THRESHOLD, BLOCK_BYTES_MAX)
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES_MAX)
