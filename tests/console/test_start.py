"""`barnabas start --console` and `barnabas console` as processes."""

from __future__ import annotations

import datetime
import json
import signal
import socket
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from barnabas.security.dev_certificates import dev_certificates
from barnabas.testing import Broker, free_port
from barnabas.testing.ports import free_ports
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def answer(port: int, path: str) -> Any:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as found:
            return json.loads(found.read())
    except OSError:
        return None


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "barnabas", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("number", "count"), [(signal.SIGTERM, 1), (signal.SIGKILL, 1), (signal.SIGTERM, 2), (signal.SIGKILL, 2)]
)
def test_brokers_start_their_console_and_take_it_along(
    tmp_path: Path, number: signal.Signals, count: int
) -> None:
    port, console_port = free_ports(count), free_port()
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": str(tmp_path / "data"),
        "offsets.topic.num.partitions": "1",
        "barnabas.metrics.port": "0",
    }
    overrides = [word for name, value in settings.items() for word in ("--override", f"{name}={value}")]
    command = [sys.executable, "-m", "barnabas", "start", "--console", str(console_port), *overrides]
    command += ["--console-option=--read-only", "--console-option=--mask=customers:$.email"]
    if count > 1:
        command += ["--brokers", str(count)]
    with (tmp_path / "log").open("wb") as output:
        broker = subprocess.Popen(command, stderr=output, stdin=subprocess.DEVNULL)
    try:
        now = wait_until(lambda: answer(console_port, "/api/overview"))
        assert sorted(each["port"] for each in now["brokers"]) == [port + each for each in range(count)]
        assert answer(console_port, "/api/session")["read_only"]
        # It knows where the metrics of all brokers are.
        running = subprocess.run(
            ["ps", "-ww", "-eo", "args"], capture_output=True, text=True, timeout=60, check=True
        ).stdout
        (console,) = (line for line in running.splitlines() if f"--port {console_port} " in line)
        assert console.count("--metrics http://") == count
    finally:
        broker.send_signal(number)
        broker.wait(60)
    wait_until(lambda: refuses(console_port), "the console has ended")


@pytest.mark.parametrize("count", [1, 2])
def test_a_console_that_ends_is_reported(tmp_path: Path, count: int) -> None:
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "data")}
    overrides = [word for name, value in settings.items() for word in ("--override", f"{name}={value}")]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = ("--brokers", str(count), "--console", str(taken.getsockname()[1]))
        command = [sys.executable, "-m", "barnabas", "start", *options, *overrides]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
            assert running.stderr is not None
            try:
                lines = iter(running.stderr.readline, "")
                assert any("The console has ended" in line for line in lines)
            finally:
                running.send_signal(signal.SIGTERM)
            running.communicate(timeout=60)
    assert running.returncode == 0


def test_a_console_stays_on_this_machine_unless_a_host_is_named() -> None:
    refused = run("console", "--host", "0.0.0.0", "-b", "127.0.0.1:1")
    assert refused.returncode != 0
    assert "--allowed-host" in refused.stderr


def test_options_of_the_console_are_checked_before_the_broker_starts(tmp_path: Path) -> None:
    refused = run(
        *("start", "--console", "0", "--console-option=--login=nobody"),
        *("--override", f"log.dirs={tmp_path / 'data'}"),
    )
    assert refused.returncode != 0
    assert "nobody" in refused.stderr
    assert not (tmp_path / "data").exists()


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = run("console", "--port", str(taken.getsockname()[1]), "-b", "127.0.0.1:1")
    assert refused.returncode != 0
    assert "choose another --port" in refused.stderr


def test_scripts_learn_the_address(broker: Broker) -> None:
    command = [sys.executable, "-m", "barnabas", "console", "--json", "--port", "0", "-b", broker.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as console:
        assert console.stdout is not None
        try:
            found = json.loads(console.stdout.readline())
            assert found["bootstrap"] == broker.bootstrap
            port = int(found["url"].rstrip("/").rpartition(":")[2])
            assert wait_until(lambda: answer(port, "/api/session"))["bootstrap"] == broker.bootstrap
        finally:
            console.terminate()


def test_a_console_with_tls(broker: Broker, tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="certificates need the package cryptography")
    texts = dev_certificates(["127.0.0.1"], (), datetime.datetime.now(datetime.UTC))
    for name in ("ca", "server"):
        (tmp_path / f"{name}.pem").write_text(texts[name])
    server = str(tmp_path / "server.pem")
    command = [sys.executable, "-m", "barnabas", "console", "--json", "--port", "0", "-b", broker.bootstrap]
    command += ["--tls-certificate", server, "--tls-key", server]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as console:
        assert console.stdout is not None
        try:
            url = json.loads(console.stdout.readline())["url"]
            assert url.startswith("https://")
            context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))

            def session() -> Any:
                try:
                    with urllib.request.urlopen(f"{url}api/session", timeout=60, context=context) as found:
                        return json.loads(found.read())
                except OSError:
                    return None

            assert wait_until(session)["bootstrap"] == broker.bootstrap
        finally:
            console.terminate()
    alone = run("console", "--tls-certificate", server, "-b", broker.bootstrap)
    assert "--tls-key go together" in alone.stderr
