"""Memory of a Python worker of Spark, which lives for many tasks.

Freed blocks are kept for the next batch of columns.

Modules and their data are not garbage. Spark lets Python's collector examine everything after each task: measured, this
is a seventh of a worker's time when it reads.
"""

from __future__ import annotations

import functools
import gc
from typing import Final

from pyspark import TaskContext

from barnabas.primitives.freed_memory import keep_freed_memory

KEPT_BYTES_MAX: Final = 128 * 1024 * 1024


def settle_in() -> None:
    """Called by tasks that move many columns; only the first call has an effect. Elsewhere nothing changes."""
    if TaskContext.get() is not None:
        _settle_in()


@functools.cache
def _settle_in() -> None:
    keep_freed_memory(KEPT_BYTES_MAX)
    gc.freeze()
