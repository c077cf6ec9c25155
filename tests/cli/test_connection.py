"""Which cluster a command is for: the options at any place of the line, files, profiles, the environment."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from barnabas.cli.shared.target import parse_bootstrap, target_of
from barnabas.testing import Broker
from tests.cli.conftest import Barnabas

NOBODY = "127.0.0.1:1"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics=["here"]) as running:
        yield running


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of settings of the test's own; nothing of the machine's has a say."""
    directory = tmp_path / "config"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(directory))
    for variable in ("BARNABAS_BOOTSTRAP", "BARNABAS_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    return directory / "barnabas" / "profiles.toml"


@pytest.fixture
def ok(barnabas: Barnabas) -> Callable[..., str]:
    def call(*arguments: str | Path) -> str:
        result = barnabas(*arguments)
        assert result.exit_code == 0, result
        return result.stdout

    return call


@pytest.fixture
def rows(ok: Callable[..., str]) -> Callable[..., Any]:
    return lambda *arguments: json.loads(ok(*arguments, "--json"))


def test_the_address_may_stand_anywhere(ok: Callable[..., str], broker: Broker) -> None:
    address = ("-b", broker.bootstrap)
    for line in (
        (*address, "topics", "list"),
        ("topics", *address, "list"),
        ("topics", "list", *address),
        ("--timeout", "20", "topics", "--bootstrap", broker.bootstrap, "list", "here"),
        # The last one counts.
        ("-b", NOBODY, "topics", "list", *address),
    ):
        assert "here" in ok(*line), line
    assert ok(*address, "consume", "here") == ""


def test_commands_without_a_cluster_take_no_address(barnabas: Barnabas) -> None:
    for command in (("wire", "apis"), ("start",), ("profile", "list"), ("log", "verify", ".")):
        result = barnabas("-b", "localhost", *command)
        assert result.exit_code == 2
        assert (
            f"`barnabas {command[0]}` does not connect to a cluster and has no option --bootstrap."
            in result.stderr
        )


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("kafka", "kafka:9092"),
        ("kafka:19092", "kafka:19092"),
        ("a, b:1 ,c,", "a:9092,b:1,c:9092"),
        ("::1", "[::1]:9092"),
        ("[::1]", "[::1]:9092"),
        ("[::1]:19092", "[::1]:19092"),
        ("PLAINTEXT://kafka", "kafka:9092"),
    ],
)
def test_the_port_may_be_left_out(text: str, address: str) -> None:
    assert parse_bootstrap(text) == address


@pytest.mark.parametrize("text", ["", ",", "a b", "host:", "host:x", "host:70000", ":9092"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not HOST or HOST:PORT"):
        parse_bootstrap(text)


def test_no_port_means_9092_on_the_line_too(barnabas: Barnabas) -> None:
    result = barnabas("topics", "list", "-b", "no-such-host.invalid")
    assert result.exit_code == 3
    assert "no broker answers at no-such-host.invalid:9092 (unknown host)" in result.stderr


def test_a_file_of_client_settings_names_the_brokers(
    ok: Callable[..., str], barnabas: Barnabas, broker: Broker, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    # Settings that only Kafka's clients have are no obstacle.
    file.write_text(
        f"bootstrap.servers={broker.bootstrap}\nrequest.timeout.ms=20000\nclient.dns.lookup=use_all_dns_ips\n"
        "ssl.protocol=TLSv1.3\nmetric.reporters=\n"
    )
    assert "here" in ok("--client-config", file, "topics", "list")
    assert "here" in ok("topics", "list", "--client-config", file)
    result = barnabas("topics", "list", "--client-config", file, "-b", NOBODY)
    assert f"no broker answers at {NOBODY} (connection refused). Check" in result.stderr
    file.write_text(f"bootstrap.servers={broker.bootstrap}\nssl.truststore.location=/none\n")
    result = barnabas("topics", "list", "--client-config", file)
    assert "ssl.truststore.location has no effect with security.protocol=PLAINTEXT" in result.stderr
    file.write_text(f"bootstrap.servers={broker.bootstrap}\nssl.provider=Conscrypt\n")
    result = barnabas("topics", "list", "--client-config", file)
    assert "clients have no setting ssl.provider" in result.stderr
    file.write_text(f"bootstrap.servers={NOBODY}\n")
    result = barnabas("topics", "list", "--client-config", file)
    assert f"no broker answers at {NOBODY} (connection refused), from bootstrap.servers of {file}." in (
        result.stderr
    )
    file.write_text(f"bootstrap.server={broker.bootstrap}\n")
    result = barnabas("topics", "list", "--client-config", file)
    assert result.stderr == (
        f"barnabas: {file}: clients have no setting bootstrap.server; did you mean bootstrap.servers?\n"
    )
    file.write_text(f"bootstrap.servers={broker.bootstrap}\nzzz=1\n")
    result = barnabas("topics", "list", "--client-config", file)
    assert (result.exit_code, result.stderr) == (
        0,
        f"{file}: clients have no setting zzz; it has no effect\n",
    )


def test_profiles_from_the_first_to_the_last(
    ok: Callable[..., str], rows: Callable[..., Any], barnabas: Barnabas, broker: Broker, home: Path
) -> None:
    result = barnabas("profile", "list")
    assert (result.stdout, result.stderr) == ("", "no profiles\n")
    created = barnabas("profile", "create", "dev", "-b", broker.bootstrap, "-X", "request.timeout.ms=20000")
    assert created.stdout == f"dev: saved in {home}\n"
    assert created.stderr == "Use it with `barnabas profile use dev`, or once with --profile dev.\n"
    assert stat.S_IMODE(home.stat().st_mode) == 0o600
    assert stat.S_IMODE(home.parent.stat().st_mode) == 0o700
    assert "here" in ok("topics", "list", "--profile", "dev")
    assert "here" in ok("--profile", "dev", "topics", "list")
    ok("profile", "create", "prod", "-b", "kafka1,kafka2:1", "--use")
    assert rows("profile", "list") == [
        {"profile": "dev", "in_use": False, "bootstrap_servers": broker.bootstrap},
        {"profile": "prod", "in_use": True, "bootstrap_servers": "kafka1:9092,kafka2:1"},
    ]
    assert ok("profile", "use", "dev") == "dev: in use\n"
    assert "here" in ok("topics", "list")
    assert rows("profile", "show") == {
        "profile": "dev",
        "in_use": True,
        "bootstrap_servers": broker.bootstrap,
        "settings": {"request.timeout.ms": "20000", "bootstrap.servers": broker.bootstrap},
    }
    result = barnabas("profile", "create", "dev", "-b", NOBODY)
    assert result.stderr == "barnabas: profile dev already exists; use --replace to replace it\n"
    ok("profile", "create", "dev", "-b", NOBODY, "--replace")
    result = barnabas("topics", "list")
    assert f"no broker answers at {NOBODY} (connection refused), from profile dev." in result.stderr
    assert barnabas("profile", "delete", "dev").stderr == (
        "barnabas: Refusing to delete the profile dev without confirmation. Use --yes.\n"
    )
    assert ok("profile", "delete", "dev", "--yes") == "dev: deleted\n"
    result = barnabas("profile", "show")
    assert result.exit_code == 4
    assert ok("profile", "use", "--none") == "no profile is in use\n"
    assert stat.S_IMODE(home.stat().st_mode) == 0o600


def test_a_profile_that_there_is_not(barnabas: Barnabas, ok: Callable[..., str]) -> None:
    ok("profile", "create", "production", "-b", "kafka")
    for command in (
        ("topics", "list", "--profile", "prodution"),
        ("profile", "use", "prodution"),
        ("profile", "show", "prodution"),
        ("profile", "delete", "prodution", "--yes"),
    ):
        result = barnabas(*command)
        assert result.exit_code == 4
        assert result.stderr == "barnabas: there is no profile prodution; did you mean production?\n"


def test_wrong_use_of_profiles(barnabas: Barnabas) -> None:
    for arguments, told in (
        (("create", "dev"), "Name the brokers with -b"),
        (("create", "a b", "-b", "kafka"), "a profile name may contain letters"),
        (("create", "dev", "-b", "kafka:x"), "is not HOST or HOST:PORT"),
        (("create", "dev", "-b", "kafka", "-X", "acks"), "is not NAME=VALUE"),
        (("use",), "Name a profile, or use --none."),
        (("use", "dev", "--none"), "Name a profile, or use --none."),
    ):
        result = barnabas("profile", *arguments)
        assert result.exit_code == 2, arguments
        assert told in result.stderr
    result = barnabas("profile", "create", "dev", "-b", "kafka", "-X", "request.timeot.ms=3")
    assert result.stderr == (
        "barnabas: --set: clients have no setting request.timeot.ms; did you mean request.timeout.ms?\n"
    )


def test_secrets_are_kept_and_hidden(
    ok: Callable[..., str], rows: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text('bootstrap.servers=kafka\nsasl.jaas.config=x password="a b";\n')
    ok(
        "profile",
        "create",
        "safe",
        "--client-config",
        file,
        "-X",
        'ssl.key.password=a"b\\c\x01\x7f\U0001f600',
    )
    assert rows("profile", "show", "safe")["settings"] == {
        "bootstrap.servers": "kafka:9092",
        "sasl.jaas.config": "(hidden)",
        "ssl.key.password": "(hidden)",
    }
    shown = rows("profile", "show", "safe", "--secrets")["settings"]
    assert shown["ssl.key.password"] == 'a"b\\c\x01\x7f\U0001f600'
    assert "password=" in shown["sasl.jaas.config"]


def test_a_file_that_a_person_has_written(barnabas: Barnabas, rows: Callable[..., Any], home: Path) -> None:
    home.parent.mkdir(parents=True)
    home.write_text(
        'in_use = "mine"\n[profiles.mine]\nbootstrap.servers = ["a", "b:1"]\nenable.idempotence = true\nacks = 1\n'
    )
    assert rows("profile", "show")["settings"] == {
        "bootstrap.servers": "a,b:1",
        "enable.idempotence": "true",
        "acks": "1",
    }
    for text in ("in_use = ", "in_use = 3", "profiles = 3", "[profiles]\nmine = 3", "\xff"):
        home.write_bytes(text.encode("latin-1"))
        result = barnabas("profile", "list")
        assert result.exit_code == 1, text
        assert result.stderr.startswith(f"barnabas: {home}: ")


def test_what_counts_first(ok: Callable[..., str], tmp_path: Path) -> None:
    for name in ("used", "other"):
        ok("profile", "create", name, "-b", name, "-X", f"client.id={name}")
    ok("profile", "use", "used")
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file\n")

    def chosen(environment: dict[str, str], **given: str) -> tuple[str, str | None]:
        target = target_of(given, environment)
        return target.bootstrap.removesuffix(":9092"), target.settings.get("client.id")

    address, profile = {"BARNABAS_BOOTSTRAP": "env"}, {"BARNABAS_PROFILE": "other"}
    assert chosen({}) == ("used", "used")
    assert chosen(profile) == ("other", "other")
    # The profile in use is not for another address: its settings stay away too.
    assert chosen(address) == ("env", None)
    assert chosen({}, bootstrap="line") == ("line", None)
    assert chosen({}, client_config=str(file)) == ("file", None)
    # One that is named is.
    assert chosen(address | profile) == ("env", "other")
    assert chosen({}, bootstrap="line", profile="other") == ("line", "other")
    assert chosen(address, profile="other") == ("other", "other")
    assert chosen(profile, client_config=str(file), bootstrap="line") == ("line", "other")


@pytest.mark.slow
def test_completion_knows_profiles_and_asks_the_cluster_of_the_line(
    ok: Callable[..., str], broker: Broker
) -> None:
    ok("profile", "create", "dev", "-b", broker.bootstrap)

    def completed(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "barnabas"],
            env={
                **os.environ,
                "_BARNABAS_COMPLETE": "bash_complete",
                "COMP_WORDS": " ".join(words),
                "COMP_CWORD": str(len(words) - 1),
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout

    assert completed("barnabas", "topics", "list", "--profile", "d") == "plain,dev\n"
    assert completed("barnabas", "profile", "use", "d") == "plain,dev\n"
    assert completed("barnabas", "--profile", "dev", "consume", "he") == "plain,here\n"
    assert completed("barnabas", "topics", "-b", broker.bootstrap, "describe", "he") == "plain,here\n"
    assert "delete-records" in completed("barnabas", "topics", "delete")


def test_a_cluster_that_does_not_answer_is_told_in_one_line(
    barnabas: Barnabas, caplog: pytest.LogCaptureFixture
) -> None:
    """Each connection ends at once, as behind a load balancer without a broker."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"

        def hang_up() -> None:
            with contextlib.suppress(OSError):
                while True:
                    server.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        result = barnabas("-b", address, "--timeout", "0.5", "topics", "list")
        server.shutdown(socket.SHUT_RDWR)
    assert result.exit_code == 3
    assert f"no broker can be reached (tried {address})" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    # Outside of pytest a warning would be one more line.
    assert not caplog.records
