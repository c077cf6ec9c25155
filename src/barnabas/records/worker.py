"""A process that works on records for a broker, so that the event loop does not wait for it.

    python -m barnabas.records.worker CPU_SECONDS_OF_A_JOB MEMORY_BYTES

Standard input is a socket: jobs come in, results go out (net/worker_process.py has the layout), and the end of the
stream ends the process. The cost of records is bounded: by the memory of the process, beyond which a job fails, and by
the processor time of a job, after which the system ends the process, even in compiled code that never checks.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import Final

from barnabas.primitives.priority import lower_priority
from barnabas.records.jobs import run_job

# A process that still holds this much memory after a job is replaced by a new one.
KEPT_MAX_BYTES: Final = 128 << 20
# Requests come first.
NICENESS: Final = 5

JOB_SIZE: Final = struct.Struct(">I")
RESULT_HEAD: Final = struct.Struct(">I?")


def main() -> None:
    job_cpu_s, memory_bytes = float(sys.argv[1]), int(sys.argv[2])
    lower_priority(NICENESS)
    # A terminal sends its signals to all: the broker is the one to end us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    _limit_memory(memory_bytes)
    with socket.socket(fileno=os.dup(0)) as broker:
        is_last = False
        while not is_last and (size := _receive(broker, JOB_SIZE.size)) is not None:
            job = _receive(broker, JOB_SIZE.unpack(size)[0])
            if job is None:
                return
            signal.setitimer(signal.ITIMER_PROF, job_cpu_s)
            result = run_job(job)
            signal.setitimer(signal.ITIMER_PROF, 0)
            is_last = _resident_bytes() > KEPT_MAX_BYTES
            broker.sendall(RESULT_HEAD.pack(len(result), is_last))
            broker.sendall(result)
            del job, result


def _limit_memory(limit: int) -> None:
    _, hard_limit = resource.getrlimit(resource.RLIMIT_DATA)
    if hard_limit != resource.RLIM_INFINITY:
        limit = min(limit, hard_limit)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard_limit))


def _resident_bytes() -> int:
    """The memory of the process; 0 if the system does not report it."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


def _receive(broker: socket.socket, size_bytes: int) -> bytes | None:
    """None if the broker has gone."""
    data = bytearray(size_bytes)
    view = memoryview(data)
    received = 0
    while received < size_bytes:
        count = broker.recv_into(view[received:])
        if count == 0:
            return None
        received += count
    return bytes(data)


if __name__ == "__main__":
    main()
