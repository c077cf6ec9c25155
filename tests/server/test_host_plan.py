"""What the brokers of a host get from the settings of the first, and what the supervisor does about their ends."""

from __future__ import annotations

import errno
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest

from barnabas.cli.start import BrokerCount
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.definition import InvalidSetting
from barnabas.errors import InvalidConfig
from barnabas.log.directory import DirectoryInUse
from barnabas.net.transport import CannotListen
from barnabas.server.host.locking import HostLock, wait_for_leftovers
from barnabas.server.host.parent import Parent
from barnabas.server.host.plan import (
    NO_PORTS,
    Ports,
    broker_config,
    check_ports,
    directories_of,
    probe_ports,
    still_free,
)
from barnabas.server.host.process import RESTART_DELAY_MAX_S, STOP_TIMEOUT_S, Process
from barnabas.server.host.supervisor import RESTARTS_MAX, STAGGERED_S, Supervisor
from barnabas.testing.ports import free_ports


def config(**settings: str) -> BrokerConfig:
    return BrokerConfig(
        {"barnabas.brokers": "3", **{key.replace("_", "."): text for key, text in settings.items()}}
    )


def test_each_broker_has_the_next_id_and_ports_and_directories_of_its_own() -> None:
    first = config(
        listeners="PLAINTEXT://127.0.0.1:9092,OTHER://0.0.0.0:9192",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
        advertised_listeners="PLAINTEXT://127.0.0.1:9092,OTHER://public:7000",
        log_dirs="/a,/b",
        barnabas_metrics_port="9404",
        num_partitions="7",
    )
    check_ports(first)
    brokers = [broker_config(first, 1001 + index, index) for index in range(3)]
    assert [each.broker_id for each in brokers] == [1001, 1002, 1003]
    assert [[endpoint.port for endpoint in each.endpoints] for each in brokers] == [
        [9092, 9192],
        [9093, 9193],
        [9094, 9194],
    ]
    assert [str(each.advertised_endpoints[1]) for each in brokers] == [
        f"OTHER://public:{port}" for port in (7000, 7001, 7002)
    ]
    assert [each.log_dirs for each in brokers] == [
        ("/a", "/b"),
        ("/a/barnabas-brokers/1", "/b/barnabas-brokers/1"),
        ("/a/barnabas-brokers/2", "/b/barnabas-brokers/2"),
    ]
    assert [each.barnabas_metrics_port for each in brokers] == [9404, 9405, 9406]
    assert all(
        each.is_in_cluster and not each.uses_zookeeper and each.num_partitions == 7 for each in brokers
    )


def test_free_ports_stay_those_of_the_first_run() -> None:
    first = config(listeners="PLAINTEXT://127.0.0.1:0", barnabas_metrics_port="0")
    assert broker_config(first, 1, 1, NO_PORTS).endpoints[0].port == 0
    again = broker_config(first, 1, 1, Ports({"PLAINTEXT": 41234}, 41235))
    assert (again.endpoints[0].port, again.barnabas_metrics_port) == (41234, 41235)


def test_a_free_port_that_another_process_has_taken_is_not_asked_for_again() -> None:
    first = config(listeners="PLAINTEXT://127.0.0.1:0", barnabas_metrics_port="0")
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as other:
        free_port = other.getsockname()[1]
        other.close()
        port = taken.getsockname()[1]
        assert still_free(first, Ports({"PLAINTEXT": port}, free_port)) == Ports({}, free_port)
        assert still_free(first, Ports({"PLAINTEXT": free_port}, port)) == Ports({"PLAINTEXT": free_port}, 0)


def test_the_number_of_brokers() -> None:
    available = len(os.sched_getaffinity(0))
    assert config(barnabas_brokers=" auto ").barnabas_brokers == available
    assert config(barnabas_brokers="256").barnabas_brokers == 256
    for text in ("0", "257", "-1", "1_0", "many", "", "²"):
        with pytest.raises(InvalidSetting, match="takes a number from 1 to 256, or auto"):
            config(barnabas_brokers=text)
        with pytest.raises(click.BadParameter, match="is neither a number from 1 to 256 nor auto"):
            BrokerCount().convert(text, None, None)
    assert BrokerCount().convert("auto", None, None) == available


def test_brokers_on_all_processors_do_not_poll() -> None:
    assert broker_config(config(barnabas_brokers="auto"), 0, 0).barnabas_busy_poll_us == 0
    chosen = config(barnabas_brokers="auto", barnabas_busy_poll_us="20")
    assert broker_config(chosen, 0, 0).barnabas_busy_poll_us == 20


def test_internal_topics_have_one_replica_unless_a_setting_says_otherwise() -> None:
    plain = broker_config(config(), 0, 0)
    assert (plain.offsets_topic_replication_factor, plain.transaction_state_log_replication_factor) == (1, 1)
    assert (
        broker_config(config(offsets_topic_replication_factor="3"), 0, 0).offsets_topic_replication_factor
        == 3
    )


def test_a_file_of_kraft_is_a_host_too() -> None:
    first = config(
        process_roles="broker,controller",
        node_id="5",
        listeners="PLAINTEXT://:9092,CONTROLLER://:9093",
        controller_listener_names="CONTROLLER",
        advertised_listeners="PLAINTEXT://localhost:9092",
    )
    check_ports(first)
    assert [broker_config(first, 5 + index, index).node_id for index in range(3)] == [5, 6, 7]


def test_ports_that_would_be_taken_twice() -> None:
    protocols = "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT"
    both = config(listeners="PLAINTEXT://:9092,OTHER://:9094", listener_security_protocol_map=protocols)
    with pytest.raises(
        InvalidConfig, match=r"have the same port 9094.*leave at least 2 ports free after each"
    ):
        check_ports(both)
    with pytest.raises(InvalidConfig, match=r"barnabas\.metrics\.port .* have the same port 9092"):
        check_ports(config(barnabas_metrics_port="9090"))
    with pytest.raises(InvalidSetting, match="at most 65533"):
        check_ports(config(listeners="PLAINTEXT://:65534"))


def test_a_port_of_another_process() -> None:
    free = free_ports(2)
    with (
        socket.create_server(("127.0.0.1", free + 1)),
        pytest.raises(CannotListen, match=rf"cannot listen on 127\.0\.0\.1:{free + 1}"),
    ):
        probe_ports(config(listeners=f"PLAINTEXT://127.0.0.1:{free}"))


def test_zookeeper_and_several_brokers_exclude_each_other() -> None:
    with pytest.raises(InvalidSetting, match=r"1 together with zookeeper\.connect"):
        config(zookeeper_connect="localhost:2181")


def test_one_supervisor_at_a_time(tmp_path: Path) -> None:
    directory = str(tmp_path / "data")
    assert not HostLock.is_left_in(directory)
    lock = HostLock(directory)
    assert not lock.is_leftover
    code = f"from barnabas.server.host.locking import HostLock; HostLock({directory!r})"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "DirectoryInUse" in other.stderr
    lock.release()
    # A supervisor that is killed does not remove its lock.
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    later = HostLock(directory)
    assert later.is_leftover
    later.release()
    assert not HostLock.is_left_in(directory)


def test_the_next_supervisor_waits_for_the_brokers_of_a_killed_one(tmp_path: Path) -> None:
    directory = str(tmp_path)
    wait_for_leftovers([directory], 0)
    code = (
        "import sys; from barnabas.log.directory import DirectoryLock;"
        "from barnabas.log.file_system import DiskFileSystem;"
        f"lock = DirectoryLock(DiskFileSystem(), {directory!r}); print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(DirectoryInUse, match="still in use after 0 s"):
            wait_for_leftovers([directory], 0)
        holder.stdin.close()
        wait_for_leftovers([directory])
        holder.wait()


FIRST_PID: Final = 1 << 30
# The signals that the supervisor of a test has sent.
SIGNALLED: Final[list[tuple[int, int]]] = []


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    """A supervisor whose processes are only imagined."""
    monkeypatch.setattr(os, "kill", lambda pid, number: SIGNALLED.append((pid, number)))
    made = Supervisor(
        config(log_dirs=str(tmp_path)),
        lambda config, door, lifeline, on_ready: None,
        lambda name: None,
        lambda report: None,
        lambda pid, code: None,
    )
    made._has_started = True
    made._brokers = [Process(f"broker {index}", lambda report: None) for index in range(3)]
    for number, each in enumerate(made._processes):
        each.pid = FIRST_PID + number
    SIGNALLED.clear()
    yield made
    made.inherited.close()


def test_a_process_that_dies_is_started_again_with_growing_delays(watched: Supervisor) -> None:
    broker = watched._brokers[1]
    watched._note_end(broker, -9)
    assert broker.due_s is not None
    assert not broker.is_running
    delays = [broker.note_end() for _ in range(RESTARTS_MAX)]
    assert delays[:4] == [0.25, 0.5, 1.0, 2.0]
    assert max(delays) == RESTART_DELAY_MAX_S


def test_a_broker_that_dies_again_and_again_is_given_up_and_the_others_go_on(
    watched: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    broker = watched._brokers[1]
    with caplog.at_level(logging.CRITICAL, "barnabas.server"):
        for _ in range(RESTARTS_MAX + 1):
            broker.due_s = None
            broker.error = "its disk is gone"
            watched._note_end(broker, 1)
    assert broker.is_given_up
    assert broker.due_s is None
    assert not watched._is_stopping
    assert (
        "Broker 1 ended with exit code 1 (its disk is gone). It has been started 11 times in a row"
        in caplog.text
    )
    for other in (watched._brokers[0], watched._brokers[2]):
        other.failures = RESTARTS_MAX
        watched._note_end(other, 1)
    assert watched._is_stopping


def test_a_broker_that_cannot_be_forked_is_tried_again_and_the_others_go_on(
    watched: Supervisor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fork() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", fork)
    broker = watched._brokers[1]
    watched._note_end(broker, -9)
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(3):
        watched._start(broker)
    assert set(os.listdir("/proc/self/fd")) <= before
    assert "Broker 1 could not be started (the system made no process: Resource temporarily" in caplog.text
    assert broker.due_s is not None
    assert broker.descriptor == -1
    assert not watched._is_stopping


def test_nothing_runs_without_the_store(watched: Supervisor) -> None:
    watched._store.failures = RESTARTS_MAX
    watched._note_end(watched._store, 1)
    assert watched._is_stopping
    assert watched._exit_code == 1


def test_directories_of_the_first_broker_are_those_of_a_single_one(tmp_path: Path) -> None:
    assert directories_of(config(log_dirs="data"), 0) == [os.path.abspath("data")]


def test_brokers_stop_one_after_the_other_and_then_together(
    watched: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    watched._begin_stop()
    watched._continue_stop()
    assert SIGNALLED == [(FIRST_PID + 3, signal.SIGTERM)]
    watched._note_end(watched._brokers[2], 0)
    watched._continue_stop()
    watched._continue_stop()
    assert SIGNALLED[1:] == [(FIRST_PID + 2, signal.SIGTERM)]
    now_s += STAGGERED_S
    watched._continue_stop()
    assert SIGNALLED[2:] == [(FIRST_PID + 1, signal.SIGTERM)]
    # A process that does not end is killed, and the store is stopped when no broker is left.
    now_s += STOP_TIMEOUT_S + 1
    watched._continue_stop()
    assert SIGNALLED[3:] == [(FIRST_PID + 2, signal.SIGKILL), (FIRST_PID + 1, signal.SIGKILL)]
    for broker in watched._brokers[:2]:
        watched._note_end(broker, -9)
    watched._continue_stop()
    assert SIGNALLED[5:] == [(FIRST_PID, signal.SIGTERM)]


def test_a_store_that_is_ready_after_the_signal_to_stop_starts_nothing(
    watched: Supervisor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watched._brokers.clear()
    watched._has_started = False
    watched._begin_stop()
    monkeypatch.setattr(watched._store, "receive", lambda: True)
    with caplog.at_level(logging.INFO, "barnabas.server"):
        watched._receive(watched._store)
    assert caplog.text == ""
    assert watched._brokers == []


def test_every_child_that_ends_is_reaped(watched: Supervisor) -> None:
    """As process 1 of a container the supervisor inherits children, and a console is a child as well."""
    others: list[tuple[int, int]] = []
    watched._on_other_end = lambda pid, code: others.append((pid, code))
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"]) as child:
        # Its end is waited for, and it is still to be reaped.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        watched._reap()
        assert others == [(child.pid, 3)]
        with pytest.raises(ChildProcessError):
            os.waitpid(child.pid, os.WNOHANG)


def test_a_parent_that_does_not_read_gets_whole_lines_later() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        parent = Parent(ours)
        for number in range(5):
            parent.send({"number": number, "padding": "x" * 20_000})
        assert parent.events & select.POLLOUT
        theirs.settimeout(10)
        received = b""
        while parent.events & select.POLLOUT or not received.endswith(b"\n"):
            received += theirs.recv(1 << 16)
            assert parent.handle(select.POLLOUT)
        reports = [json.loads(line) for line in received.splitlines()]
        assert [each["number"] for each in reports] == [0, 4]
        theirs.close()
        assert not parent.handle(select.POLLIN | select.POLLHUP)
