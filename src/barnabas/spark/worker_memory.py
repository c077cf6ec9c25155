"""Memory of a worker: kept for the next batch of columns, and not given back to the system each time.

glibc maps every block of some size anew and unmaps it when it is freed, and gives back what is free at the end of its
heap. The system then clears each page again at its first use: measured, twice the time that decoding itself takes, and a seventh of writing.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Final

# mallopt's names of settings, of <malloc.h>.
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3

KEPT_BYTES_MAX: Final = 128 * 1024 * 1024
BLOCK_BYTES_MAX: Final = 32 * 1024 * 1024


@functools.cache
def keep_freed_memory() -> None:
    """Has the process keep blocks that are freed, up to a bound. Without glibc nothing changes."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(M_MMAP_THRESHOLD, BLOCK_BYTES_MAX)
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES_MAX)
