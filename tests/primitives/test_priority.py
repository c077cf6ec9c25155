"""Workers go on where a filter of system calls does not let them lower their priority."""

from __future__ import annotations

import platform
import socket
import subprocess
import sys

import pytest

SETPRIORITY = {"x86_64": 141, "aarch64": 140}
# Denies setpriority(2) as the SystemCallFilter of a unit does, and becomes the worker.
PROGRAM = """
import ctypes, os, runpy, struct, sys

number, module = int(sys.argv.pop(1)), sys.argv.pop(1)
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0, os.strerror(ctypes.get_errno())
assert libc.prctl(22, 2, program) == 0, os.strerror(ctypes.get_errno())
try:
    os.nice(1)
except PermissionError:
    runpy.run_module(module, run_name="__main__")
    print("worked")
"""


@pytest.mark.skipif(platform.machine() not in SETPRIORITY, reason="needs the number of setpriority(2)")
@pytest.mark.parametrize(
    "worker", [["barnabas.records.worker", "30", str(1 << 30)], ["barnabas.console.search.worker"]]
)
def test_a_worker_runs_where_its_priority_is_fixed(worker: list[str]) -> None:
    ours, its = socket.socketpair()
    with ours, its:
        ours.shutdown(socket.SHUT_WR)
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(SETPRIORITY[platform.machine()]), *worker],
            stdin=its.fileno(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stdout) == (0, "worked\n"), done.stderr
