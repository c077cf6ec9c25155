"""A network for a test: hosts that are network namespaces, and a router between them that loses packets on demand.

    with network(["one", "two"]) as net:
        subprocess.Popen([*net["one"].prefix, "some-server", "--listen", net["one"].address])
        net.cut("one", "two")

A packet that is lost is lost in silence, as by a broken switch: the sender gets no error and waits. The test itself and
the clients that it starts reach all hosts through the same router, as the host `""`.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final, NamedTuple

import pytest

COMMAND_TIMEOUT_S: Final = 30
OUTSIDE: Final = ""
# Of a link between a host and the router: the router has the first of its two addresses.
_LINK_ADDRESSES: Final = 4
_HOSTS_MAX: Final = 16


class Host(NamedTuple):
    address: str
    # A command runs on the host with these words before it.
    prefix: list[str]


class Network:
    def __init__(self, names: Sequence[str]) -> None:
        assert len(names) < _HOSTS_MAX
        chooser = random.SystemRandom()
        self._token = f"bb{chooser.randrange(1 << 24):06x}"
        # Addresses for private use, which parallel tests choose at random.
        self._net = f"10.{chooser.randrange(64, 192)}.{chooser.randrange(256)}"
        self._router = f"{self._token}-r"
        self._hosts: dict[str, Host] = {}
        self._lost: list[tuple[str, str]] = []
        self._names = [OUTSIDE, *names]

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def open(self) -> None:
        _ip("netns", "add", self._router)
        _ip("-n", self._router, "link", "set", "lo", "up")
        _run("ip", "netns", "exec", self._router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        for number, name in enumerate(self._names):
            self._hosts[name] = self._add(number, name)

    def close(self) -> None:
        """Links end with the namespaces of their ends."""
        for number, name in enumerate(self._names):
            if name != OUTSIDE:
                self._ip_if_there("netns", "delete", self._namespace(number))
        self._ip_if_there("netns", "delete", self._router)
        self._ip_if_there("link", "delete", self._link(0))

    def cut(self, sender: str, receiver: str) -> None:
        """From now on, what the one host sends to the other is lost. The other direction is not concerned."""
        pair = (self._hosts[sender].address, self._hosts[receiver].address)
        self._rule("add", pair)
        self._lost.append(pair)

    @property
    def is_cut(self) -> bool:
        return bool(self._lost)

    def heal(self) -> None:
        """Everything arrives again."""
        while self._lost:
            self._rule("delete", self._lost.pop())

    def _rule(self, what: str, pair: tuple[str, str]) -> None:
        _ip("-n", self._router, "rule", what, "from", pair[0], "to", pair[1], "blackhole")

    def _namespace(self, number: int) -> str:
        return f"{self._token}-{number}"

    def _link(self, number: int) -> str:
        return f"{self._token}-l{number}"

    def _add(self, number: int, name: str) -> Host:
        base = number * _LINK_ADDRESSES
        near, far = f"{self._net}.{base + 2}", f"{self._net}.{base + 1}"
        port = f"{self._token}-p{number}"
        _ip("link", "add", self._link(number), "type", "veth", "peer", "name", port, "netns", self._router)
        _ip("-n", self._router, "address", "add", f"{far}/30", "dev", port)
        _ip("-n", self._router, "link", "set", port, "up")
        place: list[str] = []
        if name != OUTSIDE:
            _ip("netns", "add", self._namespace(number))
            _ip("link", "set", self._link(number), "netns", self._namespace(number))
            place = ["-n", self._namespace(number)]
            _ip(*place, "link", "set", "lo", "up")
        _ip(*place, "address", "add", f"{near}/30", "dev", self._link(number))
        _ip(*place, "link", "set", self._link(number), "up")
        _ip(*place, "route", "add", f"{self._net}.0/24", "via", far)
        prefix = ["ip", "netns", "exec", self._namespace(number)] if name != OUTSIDE else []
        return Host(near, prefix)

    def _ip_if_there(self, *arguments: str) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip(*arguments)


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)


@cache
def missing() -> str:
    """Why no namespaces can be made here; empty if they can."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "network partitions need root and the command ip (iproute2)"
    trial = Network(["a"])
    try:
        trial.open()
        trial.cut("a", OUTSIDE)
        trial.heal()
    except (subprocess.CalledProcessError, OSError) as error:
        return f"network partitions need network namespaces, veth and ip rules: {error}"
    finally:
        trial.close()
    return ""


def require_namespaces() -> None:
    """Skips the test where no namespaces can be made."""
    if missing():
        pytest.skip(missing())


@contextlib.contextmanager
def network(names: Sequence[str]) -> Iterator[Network]:
    made = Network(names)
    try:
        made.open()
        yield made
    finally:
        made.close()
