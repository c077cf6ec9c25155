"""How long a normal client waits while others attack the broker.

Attackers are processes of their own: in this one they would hold the measuring client up, too. Each sends prepared
requests again and again, one after the other, and reads the answers. The normal client asks for versions and produces
a record of 1 KB, one after the other. What it sees is measured in rounds, and the median of the rounds' 99th
percentiles counts: a machine that runs other tests may not look after the client for a moment, but not in most rounds.
On a machine that has other things to do all the time, everything takes longer by as much as work of our own takes
longer than its processor time.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from barnabas.protocol import frames
from barnabas.protocol.apis import api_for_name
from barnabas.protocol.message import Message
from barnabas.protocol.messages.api_versions_request import ApiVersionsRequest
from barnabas.protocol.requests import encode_request
from tests.broker.record_requests import batch, produce
from tests.clients.broker_process import BrokerProcess

NORMAL_TOPIC: Final = "normal"
ROUNDS: Final = 5
ROUND_S: Final = 1.0
WORK_S: Final = 0.05
IS_COMPILED: Final = not frames.__file__.endswith(".py")


def framed(name: str, version: int, body: Message) -> bytes:
    request = encode_request(api_for_name(name), version, 1, "attacker", body)
    return struct.pack(">i", len(request)) + bytes(request)


@contextlib.contextmanager
def attackers(broker: BrokerProcess, directory: Path, request: bytes, count: int) -> Iterator[None]:
    """Clients that send one request, or several, all the time; at the beginning all of them have sent the first."""
    path = directory / "request"
    path.write_bytes(request)
    command = [sys.executable, "-m", "tests.hostile.stalls", str(broker.port), str(path)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == b"sent\n"
        yield
        for process in processes:
            assert process.poll() is None, "an attacker has given up"
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def slowdown() -> float:
    """How much longer than its processor time work takes on this machine now."""
    began_s, end_s = time.perf_counter(), time.thread_time() + WORK_S
    while time.thread_time() < end_s:
        pass
    return max((time.perf_counter() - began_s) / WORK_S, 1.0)


def normal_p99_ms(broker: BrokerProcess, what: str) -> float:
    """What a normal client sees, printed as a line; its 99th percentile on a machine that has nothing else to do."""
    medians, worst, longest, slowdowns = [], [], 0.0, []
    with broker.client("normal") as client:
        for _ in range(ROUNDS):
            times_s = []
            end_s = time.monotonic() + ROUND_S
            while time.monotonic() < end_s:
                began_s = time.perf_counter()
                client.ask(
                    "ApiVersions",
                    3,
                    ApiVersionsRequest(client_software_name="a", client_software_version="b"),
                )
                asked_s = time.perf_counter()
                answer = produce(client, NORMAL_TOPIC, batch(bytes(1_000)))
                assert answer.error_code == 0, answer
                times_s += [asked_s - began_s, time.perf_counter() - asked_s]
                time.sleep(0.002)
            slowdowns.append(slowdown())
            times_s.sort()
            medians.append(statistics.median(times_s))
            worst.append(times_s[int(len(times_s) * 0.99)])
            longest = max(longest, times_s[-1])
    p99_ms = statistics.median(worst) * 1_000
    p50_ms = statistics.median(medians) * 1_000
    factor = statistics.median(slowdowns)
    print(
        f"{what}: p50 {p50_ms:.1f} ms, p99 {p99_ms:.1f} ms, longest {longest * 1_000:.0f} ms;"
        f" work takes {factor:.1f} times as long as on a machine of our own"
    )
    return p99_ms / factor


def split(data: bytes) -> list[bytes]:
    """The frames in it."""
    found = []
    while data:
        end = 4 + int.from_bytes(data[:4], "big")
        found.append(data[:end])
        data = data[end:]
    return found


def main() -> None:
    # Attackers have machines of their own.
    os.nice(19)
    port, path = int(sys.argv[1]), Path(sys.argv[2])
    requests = split(path.read_bytes())
    is_first = True
    while True:
        with (
            contextlib.suppress(ConnectionError),
            socket.create_connection(("127.0.0.1", port), timeout=120) as connected,
        ):
            for request in itertools.cycle(requests):
                connected.sendall(request)
                if is_first:
                    print("sent", flush=True)
                    is_first = False
                head = connected.recv(4, socket.MSG_WAITALL)
                if len(head) < 4:
                    break
                missing_bytes = int.from_bytes(head, "big")
                while missing_bytes:
                    missing_bytes -= len(connected.recv(min(missing_bytes, 1 << 20)))


if __name__ == "__main__":
    main()
