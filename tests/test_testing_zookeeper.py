"""The ZooKeeper that tests of others use."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from barnabas.testing import ZooKeeper, ZooKeeperUnavailable
from barnabas.testing.zookeeper import JARS_VARIABLE, find_jars, takes_sessions
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.peer]

# It bounds a wait on a busy machine; it is not what is expected.
WAIT_S = 90


@pytest.fixture(scope="module", autouse=True)
def jars() -> Iterator[Path]:
    try:
        yield find_jars()
    except ZooKeeperUnavailable as missing:
        pytest.skip(str(missing))


def test_what_is_confirmed_survives_a_restart() -> None:
    with ZooKeeper() as server:
        address = server.address
        client = KazooClient(address)
        client.start()
        client.create("/kept", b"data")
        client.stop()
        client.close()
        server.stop()
        server.start()
        assert server.address == address
        client = KazooClient(address)
        client.start()
        assert client.get("/kept")[0] == b"data"
        client.stop()
        client.close()


def test_it_does_not_outlive_who_started_it() -> None:
    code = """
import os
from barnabas.testing import ZooKeeper
server = ZooKeeper()
server.start()
print(server.port, flush=True)
input()
os._exit(1)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdin is not None
        assert starter.stdout is not None
        port = int(starter.stdout.readline())
        assert takes_sessions(port)
        starter.stdin.write("\n")
        starter.stdin.flush()
        assert starter.wait(WAIT_S) == 1
        wait_until(lambda: not takes_sessions(port), "ZooKeeper runs on")


def test_a_folder_of_jars_may_be_named(monkeypatch: pytest.MonkeyPatch, jars: Path, tmp_path: Path) -> None:
    named = tmp_path / "jars"
    named.symlink_to(jars)
    monkeypatch.setenv(JARS_VARIABLE, str(named))
    assert find_jars() == named


def test_without_java_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ZooKeeperUnavailable, match="there is no java on the PATH"):
        find_jars()


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(ZooKeeperUnavailable, match="did not start"):
        ZooKeeper(jars=tmp_path).start()
