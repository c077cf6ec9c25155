"""`make cluster`: what it shows is true, and it leaves nothing behind. What `make demo-migration` says at its end."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from demo.migration import show_result
from rich.console import Console

from barnabas.client.admin.admin import Admin
from barnabas.testing.ports import free_ports
from tests.cluster.clusters import require_zookeeper
from tests.cluster.mixed import require_kafka
from tests.histories.history import READ_COMMITTED, Acknowledged, Ended, Event, Polled, Position
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.peer]

ROOT: Final = Path(__file__).parents[2]
BROKERS: Final = 2
# These bound a wait on a busy machine; they are not what is expected.
WAIT_S: Final = 120
DEMO_TIMEOUT_S: Final = 1_200
IS_SOAK: Final = os.environ.get("BARNABAS_SOAK") == "1"


def test_a_cluster_until_it_is_ended(tmp_path: Path) -> None:
    require_zookeeper()
    port = free_ports(BROKERS)
    output = tmp_path / "output"
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with output.open("wb") as into:
        demo = subprocess.Popen(
            [sys.executable, "-m", "demo.cluster", "--brokers", str(BROKERS), "--port", str(port)],
            stdout=into,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(scratch)},
        )
    try:
        wait_until(
            lambda: "Ctrl-C ends the cluster." in output.read_text() or demo.poll() is not None,
            output.read_text,
            timeout_s=WAIT_S,
        )
        shown = output.read_text()
        assert demo.poll() is None, shown
        bootstrap = ",".join(f"127.0.0.1:{port + number}" for number in range(BROKERS))
        assert f"export BARNABAS_BOOTSTRAP={bootstrap}" in shown
        with Admin(bootstrap_servers=bootstrap) as admin:
            described = admin.describe_cluster()
            assert sorted(node.port for node in described.nodes) == [port, port + 1]
            admin.create_topics("orders")
            [topic] = admin.describe_topics(["orders"]).values()
            assert [sorted(each.replicas) for each in topic.partitions] == [[0, 1]] * 3
        take_the_tour(bootstrap, shown)
        assert any(scratch.iterdir())
        demo.terminate()
        assert demo.wait(WAIT_S) == 0
    finally:
        demo.kill()
        demo.wait(WAIT_S)
    assert "The cluster has stopped, and its data is removed." in output.read_text()
    assert not any(scratch.iterdir())
    for number in range(BROKERS):
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port + number)) != 0


def take_the_tour(bootstrap: str, shown: str) -> None:
    """What README does: it kills a leader by the number of its process, and goes on."""

    def barnabas(*arguments: str, given: str = "") -> str:
        done = subprocess.run(
            [sys.executable, "-m", "barnabas", *arguments],
            input=given,
            capture_output=True,
            text=True,
            env={**os.environ, "BARNABAS_BOOTSTRAP": bootstrap},
            timeout=WAIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    barnabas("topics", "create", "tour", "-p", "3")
    assert "0,1" in barnabas("topics", "describe", "tour").replace(" ", "")
    [killed] = [
        int(line.split("kill -9 ")[1].split()[0]) for line in shown.splitlines() if "kill -9 " in line
    ]
    os.kill(killed, signal.SIGKILL)
    for partition in range(3):
        barnabas("produce", "tour", "--partition", str(partition), given="hello\n")
    problems = json.loads(barnabas("cluster", "problems", "--json"))
    assert {each["leader"] for each in problems if each["topic"] == "tour"} == {1}
    assert "not alive: 0" in barnabas("cluster")


@pytest.mark.skipif(not IS_SOAK, reason="test_migration.py has the same; this takes minutes: see `make soak`")
def test_the_demo_of_a_migration(tmp_path: Path) -> None:
    require_kafka()
    demo = subprocess.run(
        [sys.executable, "-m", "demo.migration"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        timeout=DEMO_TIMEOUT_S,
        check=False,
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
    for line in ("To Barnabas", "To Apache Kafka", "no error that a retry did not cover"):
        assert line in demo.stdout
    assert not any(tmp_path.iterdir())


def test_the_result_of_a_migration() -> None:
    at = Position("in/0", 0)
    events: list[Event] = [
        Acknowledged(at_s=1.0, value="idempotent.0:1", position=at),
        Acknowledged(at_s=3.5, value="idempotent.0:2", position=at),
        Acknowledged(at_s=9.0, value="transactional.0:1", position=at),
        Ended(at_s=9.5, transaction="t1", committed=True),
        Ended(at_s=9.7, transaction="t2", committed=False),
        Polled(at_s=9.9, consumer="c", group="g", isolation=READ_COMMITTED, records=[(at, "a"), (at, "b")]),
    ]
    for told, expected in (
        ([], "no error that a retry did not cover"),
        (["lost write: [x]"], "lost write: [x]"),
    ):
        output = io.StringIO()
        show_result(Console(file=output, width=100), events, list(told))
        shown = output.getvalue()
        assert "3 records confirmed, 1 transactions committed, 2 records read" in shown
        assert "longest pause of the idempotent producer: 2.5 s" in shown
        assert expected in shown
