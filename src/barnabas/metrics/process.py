"""The metrics of a process that Prometheus' own client libraries export, under the same names.

Metrics that a system does not provide are omitted: only Linux has /proc.
"""

from __future__ import annotations

import os
import resource
import time
from typing import Final

from barnabas.metrics.registry import Registry

_STAT: Final = "/proc/self/stat"
_DESCRIPTORS: Final = "/proc/self/fd"
# Of the fields behind the name of the program, which are numbered from 3 on: see proc(5).
_START_TIME: Final = 22 - 3
_VIRTUAL_BYTES: Final = 23 - 3
_RESIDENT_PAGES: Final = 24 - 3


def register_process(metrics: Registry) -> None:
    metrics.total(
        "process_cpu_seconds_total",
        "Total user and system CPU time spent in seconds.",
        time.process_time,
    )
    metrics.gauge("process_max_fds", "Maximum number of open file descriptors.", _max_descriptors)
    if not os.path.exists(_STAT):
        return
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    metrics.gauge(
        "process_open_fds", "Number of open file descriptors.", lambda: len(os.listdir(_DESCRIPTORS)) - 1
    )
    metrics.gauge(
        "process_resident_memory_bytes",
        "Resident memory size in bytes.",
        lambda: _stat(_RESIDENT_PAGES) * page_bytes,
    )
    metrics.gauge(
        "process_virtual_memory_bytes", "Virtual memory size in bytes.", lambda: _stat(_VIRTUAL_BYTES)
    )
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - _stat(_START_TIME) / os.sysconf("SC_CLK_TCK")
    started_s = round(time.time() - age_s, 2)
    metrics.gauge(
        "process_start_time_seconds",
        "Start time of the process since unix epoch in seconds.",
        lambda: started_s,
    )


def _stat(field: int) -> int:
    # The name of the program, in parentheses, may have blanks in it.
    with open(_STAT) as file:
        return int(file.read().rpartition(")")[2].split()[field])


def _max_descriptors() -> float:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return float("inf") if soft == resource.RLIM_INFINITY else soft
