"""Users and certificates by the command line, and its connections with TLS and passwords."""

from __future__ import annotations

import contextlib
import json
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.testing import Broker
from tests.cli.conftest import Barnabas

Ok = Callable[..., str]


@pytest.fixture(scope="module")
def secured() -> Iterator[Broker]:
    with Broker(security="sasl_ssl", users={"admin": "secret"}, topics=["here"]) as broker:
        yield broker


@pytest.fixture
def file(secured: Broker, tmp_path: Path) -> Path:
    return write_settings(tmp_path / "client.properties", secured.client_settings, secured, tmp_path)


def write_settings(path: Path, settings: dict[str, str], broker: Broker, folder: Path) -> Path:
    ca = folder / "ca.pem"
    ca.write_text(broker.security_settings["ssl.truststore.certificates"])
    settings = {**settings, "ssl.truststore.location": str(ca)}
    del settings["ssl.truststore.certificates"]
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


@pytest.mark.slow
def test_users(
    ok: Ok,
    barnabas: Barnabas,
    secured: Broker,
    file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    created = barnabas("users", "create", "ann", "--password-stdin", "--client-config", file, stdin=b"hush\n")
    assert created.stdout == "ann can log in with SCRAM-SHA-256 and SCRAM-SHA-512\n"
    listed = json.loads(ok("users", "list", "--client-config", file, "--json"))
    assert [(each["user"], each["mechanism"]) for each in listed if each["user"] == "ann"] == [
        ("ann", "SCRAM-SHA-256"),
        ("ann", "SCRAM-SHA-512"),
    ]
    settings = secured.client_settings
    settings["sasl.jaas.config"] = (
        settings["sasl.jaas.config"].replace("admin", "ann").replace("secret", "hush")
    )
    own = write_settings(tmp_path / "ann.properties", settings, secured, tmp_path)
    assert "here" in ok("topics", "list", "--client-config", own)
    ok("profile", "create", "secure", "--client-config", own)
    assert "here" in ok("topics", "list", "--profile", "secure")
    assert ok("users", "delete", "ann", "--yes", "--client-config", file).startswith(
        "ann can no longer log in"
    )
    refused = barnabas("topics", "list", "--client-config", own)
    assert refused.exit_code == 1
    assert "due to invalid credentials with SASL mechanism SCRAM-SHA-256" in refused.stderr
    assert (
        "there is no user ann" in barnabas("users", "delete", "ann", "--yes", "--client-config", file).stderr
    )


@pytest.mark.slow
def test_a_password_is_needed(barnabas: Barnabas, file: Path) -> None:
    result = barnabas("users", "create", "ann", "--client-config", file)
    assert "Use --password-stdin" in result.stderr
    result = barnabas("users", "create", "ann", "--password-stdin", "--client-config", file)
    assert "1 to 1024 characters" in result.stderr


def test_certificates(ok: Ok, barnabas: Barnabas, tmp_path: Path) -> None:
    folder = tmp_path / "certs"
    printed = ok("certs", "dev", "--directory", folder, "--host", "kafka.test", "--user", "ann")
    assert sorted(each.name for each in folder.iterdir()) == ["ann.pem", "ca.pem", "server.pem"]
    assert f"ssl.keystore.location={folder / 'server.pem'}" in printed
    for name in ("server", "ann"):
        assert stat.S_IMODE((folder / f"{name}.pem").stat().st_mode) == 0o600
    assert "PRIVATE KEY" not in (folder / "ca.pem").read_text()
    again = barnabas("certs", "dev", "--directory", folder)
    assert again.exit_code == 1
    assert "Use --force" in again.stderr
    ok("certs", "dev", "--directory", folder, "--force")
    assert "cannot be the name" in barnabas("certs", "dev", "--directory", folder, "--user", "../x").stderr


@pytest.mark.slow
def test_a_broker_from_the_certificates(ok: Ok, tmp_path: Path) -> None:
    folder = tmp_path / "certs"
    ok("certs", "dev", "--directory", folder)
    settings: dict[str, Any] = {
        "ssl_keystore_type": "PEM",
        "ssl_keystore_location": str(folder / "server.pem"),
    }
    with (
        Broker(security="ssl", **settings) as broker,
        broker.admin(
            ssl_truststore_certificates=None, ssl_truststore_location=str(folder / "ca.pem")
        ) as admin,
    ):
        assert admin.list_topics() == []


@pytest.mark.slow
def test_a_plain_start_is_for_this_machine(tmp_path: Path) -> None:
    """It says how to open the broker. The port is taken, by the test if by nobody else, so that the start ends."""
    with contextlib.ExitStack() as taken:
        for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            holder = taken.enter_context(socket.socket(family))
            with contextlib.suppress(OSError):
                holder.bind((host, 9092))
                holder.listen()
        ended = subprocess.run(
            [sys.executable, "-m", "barnabas", "start", "--override", f"log.dirs={tmp_path / 'data'}"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert ended.returncode == 1
    assert "Only this machine can connect" in ended.stderr
    assert "--override listeners=PLAINTEXT://0.0.0.0:9092" in ended.stderr
    assert "cannot listen on localhost:9092" in ended.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
def test_a_password_that_nobody_can_be_asked_for(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "barnabas", "start", "--add-scram", "SCRAM-SHA-512=[name=ann]"],
        stdin=subprocess.DEVNULL,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    assert "Use --add-scram @FILE" in ended.stderr
    assert "Traceback" not in ended.stderr
