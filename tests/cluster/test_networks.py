"""The network of the tests: what is cut is lost in silence, one way, and arrives again afterwards."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from tests.cluster.networks import OUTSIDE, Network, network, require_namespaces

pytestmark = pytest.mark.slow

# Answers each datagram to its sender, with a number that counts what has arrived.
_ECHO = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
    here.bind((sys.argv[1], 5000))
    print("ready", flush=True)
    for number in range(1, 100):
        _, sender = here.recvfrom(100)
        here.sendto(str(number).encode(), sender)
"""
SOON_S = 10.0
LOST_S = 0.3


def test_what_is_cut_is_lost_one_way() -> None:
    require_namespaces()
    with network(["one"]) as net:
        command = [*net["one"].prefix, sys.executable, "-c", _ECHO, net["one"].address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as echo:
            try:
                assert echo.stdout is not None
                assert echo.stdout.readline() == "ready\n"
                assert answers(net, 2) == ["1", "2"]
                net.cut(OUTSIDE, "one")
                assert answers(net, 1) == []
                net.heal()
                assert answers(net, 1) == ["3"]
                # The other way the datagram arrives, and the answer is lost.
                net.cut("one", OUTSIDE)
                assert answers(net, 1) == []
                net.heal()
                assert answers(net, 1) == ["5"]
            finally:
                echo.kill()


def answers(net: Network, count: int) -> list[str]:
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
        here.settimeout(LOST_S if net.is_cut else SOON_S)
        for _ in range(count):
            here.sendto(b"?", (net["one"].address, 5000))
            try:
                found.append(here.recv(100).decode())
            except TimeoutError:
                break
    return found
