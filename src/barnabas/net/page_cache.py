"""Checks whether a range of a file is in the page cache, so that the event loop never waits for a disk.

Linux 6.5 has a system call for this, cachestat. On older kernels the probe reads single bytes with RWF_NOWAIT, which
fails instead of waiting: one byte every 64 KiB, because the kernel reads ahead in spans of about this size. If the
system has neither (macOS), every range counts as cached.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Final

from barnabas.primitives.file_slice import OpenFile

PROBE_STEP_BYTES: Final = 64 * 1024
CACHESTAT: Final = 451  # The number is the same on every architecture.

Probe = Callable[[int, int, int], bool]


def always_cached(descriptor: int, position: int, count: int) -> bool:
    return True


def probed_by_reading(descriptor: int, position: int, count: int) -> bool:
    buffer = [bytearray(1)]
    last = position + count - 1
    for probe in (*range(position, last, PROBE_STEP_BYTES), last):
        try:
            os.preadv(descriptor, buffer, probe, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True  # A file system without RWF_NOWAIT, such as tmpfs: sendfile itself reports errors.
    return True


def _cachestat_probe() -> Probe | None:
    # ctypes costs 10 ms and a megabyte: it is loaded when the first slice of a file is sent, not at start.
    import ctypes

    class CachestatRange(ctypes.Structure):
        _fields_ = (("off", ctypes.c_uint64), ("len", ctypes.c_uint64))

    class Cachestat(ctypes.Structure):
        _fields_ = tuple(
            (name, ctypes.c_uint64)
            for name in ("nr_cache", "nr_dirty", "nr_writeback", "nr_evicted", "nr_recently_evicted")
        )

    syscall = ctypes.CDLL(None, use_errno=False).syscall
    syscall.restype = ctypes.c_long
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    wanted = CachestatRange()
    found = Cachestat()
    wanted_pointer = ctypes.byref(wanted)
    found_pointer = ctypes.byref(found)

    def probed_by_cachestat(descriptor: int, position: int, count: int) -> bool:
        wanted.off = position
        wanted.len = count
        if syscall(CACHESTAT, descriptor, wanted_pointer, found_pointer, 0) != 0:
            return True
        pages = (position + count - 1) // page_bytes - position // page_bytes + 1
        return int(found.nr_cache) >= pages

    with open(__file__, "rb") as known:
        known.read(1)
        works = syscall(CACHESTAT, known.fileno(), wanted_pointer, found_pointer, 0) == 0
    return probed_by_cachestat if works else None


def choose_probe() -> Probe:
    if not sys.platform.startswith("linux"):
        return always_cached
    return _cachestat_probe() or probed_by_reading


def read_ahead(file: OpenFile, position: int, count: int) -> None:
    """Brings a range into the page cache. It waits for the disk: call it off the loop."""
    end = position + count
    while position < end:
        data = file.pread(min(end - position, 256 * 1024), position)
        if not data:
            return
        position += len(data)
