"""The priority of a process that works beside a broker."""

from __future__ import annotations

import os
from contextlib import suppress


def lower_priority(niceness: int) -> None:
    """Lets other processes go first, where the system allows that: filters of system calls may deny it."""
    with suppress(OSError):
        os.nice(niceness)
