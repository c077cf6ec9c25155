"""Ports of this machine for the processes of a test."""

from __future__ import annotations

import random
import socket
from typing import Final

# Where the system does not choose ports by itself: there no client that tries to reconnect to a broker that is down can
# be given the broker's own port, and so be connected to itself.
PORTS: Final = range(15_000, 30_000)
HOST: Final = "127.0.0.1"


def free_port() -> int:
    """A free port, chosen at random so that parallel tests choose others."""
    chooser = random.SystemRandom()
    for _ in range(1_000):
        port = chooser.choice(PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        return port
    raise OSError(f"no free port between {PORTS.start} and {PORTS.stop - 1}")
