"""Memory of a Python worker of Spark, which lives for many tasks.

Freed blocks are kept for the next batch of columns. By default glibc maps every block above some size and unmaps it
when it is freed, and returns free memory at the end of its heap to the system. The system then clears each page again
at its first use: measured, this takes twice the time of decoding itself, and a seventh of writing.

Modules and their data are not garbage. Spark lets Python's collector examine everything after each task: measured, this
is a seventh of a worker's time when it reads.
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
    """Called by tasks that move many columns; only the first call has an effect. Elsewhere nothing changes."""
    if TaskContext.get() is not None:
        _settle_in()


@functools.cache
def _settle_in() -> None:
    keep_freed_memory()
    gc.freeze()


def keep_freed_memory() -> None:
    """Makes the process keep freed blocks, up to a bound. Without glibc nothing changes."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(M_MMAP_THRESHOLD, BLOCK_BYTES_MAX)
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES_MAX)
