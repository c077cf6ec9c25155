"""Ports of this machine for the processes of a test."""

from __future__ import annotations

import random
import socket
from collections import deque
from typing import Final

# Where the system does not choose ports by itself: there no client that tries to reconnect to a broker that is down can
# be given the broker's own port, and so be connected to itself.
PORTS: Final = range(15_000, 30_000)
HOST: Final = "127.0.0.1"

# Ports that this process has chosen: a broker may not listen there yet, or be down for a while.
_chosen: deque[int] = deque(maxlen=len(PORTS) // 4)


def free_port() -> int:
    """A free port, chosen at random so that parallel tests choose others."""
    return free_ports(1)


def free_ports(count: int) -> int:
    """The first of so many free ports in a row."""
    chooser = random.SystemRandom()
    for _ in range(1_000):
        first = chooser.choice(PORTS[: len(PORTS) - count + 1])
        ports = range(first, first + count)
        if all(port not in _chosen and _is_free(port) for port in ports):
            _chosen.extend(ports)
            return first
    raise OSError(f"no free port between {PORTS.start} and {PORTS.stop - 1}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
