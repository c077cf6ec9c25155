"""Commands that look at a cluster and change it, against a running broker."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.cli.main import COMMANDS, LazyGroup
from barnabas.cli.main import barnabas as group
from barnabas.testing import Broker
from tests.cli.conftest import Barnabas, Result

TIMEOUT_S = 120


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_topics_from_the_first_to_the_last(
    run: Barnabas, ok: Callable[..., str], rows: Callable[..., Any]
) -> None:
    assert ok("topics", "create", "t-one", "t-two", "-p", "3", "-c", "retention.ms=1000") == (
        "t-one: created with 3 partitions of 1 replica\nt-two: created with 3 partitions of 1 replica\n"
    )
    assert lines(ok("topics", "list", "t-*")) == [
        ["topic", "partitions", "replicas", "size"],
        ["t-one", "3", "1", "0", "B"],
        ["t-two", "3", "1", "0", "B"],
    ]
    (described,) = rows("topics", "describe", "t-one")
    assert described["configs"] == {"retention.ms": "1000"}
    assert [each["partition"] for each in described["partitions"]] == [0, 1, 2]
    assert [each["end_offset"] for each in described["partitions"]] == [0, 0, 0]
    told = ok("topics", "describe", "t-one")
    assert told.startswith("t-one: id ")
    assert "settings: retention.ms=1000" in told
    ok("topics", "alter", "t-one", "-p", "5", "-c", "cleanup.policy=compact", "-d", "retention.ms")
    (described,) = rows("topics", "describe", "t-one")
    assert len(described["partitions"]) == 5
    assert described["configs"] == {"cleanup.policy": "compact"}
    assert ok("topics", "delete", "t-one", "t-two", "--yes") == "t-one: deleted\nt-two: deleted\n"
    result = run("topics", "list", "t-*")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no topics\n")


def test_a_topic_that_there_is_already(run: Barnabas, ok: Callable[..., str]) -> None:
    ok("topics", "create", "again")
    result = run("topics", "create", "again")
    assert (result.exit_code, result.stderr) == (1, "barnabas: Topic 'again' already exists.\n")
    assert ok("topics", "create", "again", "--if-not-exists") == ""
    assert ok("topics", "create", "again", "and-again", "--if-not-exists").startswith("and-again: created")


def test_a_dry_run_creates_nothing(ok: Callable[..., str], rows: Callable[..., Any]) -> None:
    assert (
        ok("topics", "create", "dry", "--dry-run") == "dry: could be created with 1 partition of 1 replica\n"
    )
    assert rows("topics", "list", "dry") == []


def test_the_nearest_name_is_told(run: Barnabas, ok: Callable[..., str]) -> None:
    ok("topics", "create", "payments")
    for arguments in (
        ("topics", "describe", "paymants"),
        ("topics", "delete", "paymants", "--yes"),
        ("topics", "alter", "paymants", "-p", "3"),
        ("configs", "describe", "topic", "paymants"),
        ("leaders", "elect", "--topic", "paymants"),
        ("transactions", "producers", "paymants"),
    ):
        result = run(*arguments)
        expected = "barnabas: there is no topic paymants; did you mean payments?\n"
        assert (result.exit_code, result.stderr) == (4, expected), arguments
    result = run("topics", "alter", "payments", "-c", "retentoin.ms=3")
    assert result.stderr == "barnabas: a topic has no setting retentoin.ms; did you mean retention.ms?\n"
    result = run("groups", "describe", "nobody")
    assert result.exit_code == 4
    assert "there is no group nobody" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("topics", "create", "hinted", "-c", "retentoin.ms=3"), "retentoin.ms; did you mean retention.ms?"),
        (
            ("topics", "alter", "suggested", "-d", "retenton.ms"),
            "a topic has no setting retenton.ms; did you mean retention.ms?",
        ),
        (
            ("configs", "alter", "topic", "suggested", "clenup.policy=compact"),
            "a topic has no setting clenup.policy; did you mean cleanup.policy?",
        ),
        (
            ("configs", "alter", "broker", "all", "log.retenton.ms=3"),
            "a broker has no setting log.retenton.ms; did you mean log.retention.ms?",
        ),
        (
            ("quotas", "set", "--user", "ann", "producer_byt_rate=3"),
            "there is no quota producer_byt_rate; did you mean producer_byte_rate?",
        ),
        (
            ("quotas", "delete", "--user", "ann", "request_percent", "--yes"),
            "there is no quota request_percent; did you mean request_percentage?",
        ),
        (
            ("produce", "suggested", "-X", "liner.ms=3"),
            "a producer has no setting liner.ms; did you mean linger.ms?",
        ),
        (
            ("consume", "suggested", "-X", "fetch.mn.bytes=3"),
            "a consumer has no setting fetch.mn.bytes; did you mean fetch.min.bytes?",
        ),
        (
            ("copy", "suggested", "x", "--create", "-X", "batch.sise=3"),
            "a producer has no setting batch.sise; did you mean batch.size?",
        ),
        (
            ("perf", "consume", "suggested", "-X", "max.poll.record=3"),
            "a consumer has no setting max.poll.record; did you mean max.poll.records?",
        ),
    ],
)
def test_every_command_that_takes_settings_suggests_the_nearest(
    run: Barnabas, ok: Callable[..., str], arguments: tuple[str, ...], told: str
) -> None:
    ok("topics", "create", "suggested", "--if-not-exists")
    result = run(*arguments)
    assert result.exit_code == 1
    assert result.stderr.endswith(f"{told}\n")


def test_internal_topics_are_hidden_unless_they_are_asked_for(
    ok: Callable[..., str], rows: Callable[..., Any], broker: Broker
) -> None:
    internal = "__consumer_offsets"
    ok("topics", "create", "shown")
    ok("groups", "reset-offsets", "shown", "--topic", "shown", "--to-earliest", "--yes")
    for command in (
        ("topics", "list"),
        ("topics", "describe"),
        ("leaders", "list"),
        ("log-dirs", "describe", "--replicas"),
    ):
        assert internal not in ok(*command), command
        assert internal not in str(rows(*command)), command
        assert internal in ok(*command, "--internal"), command
        assert internal in str(rows(*command, "--internal")), command
    named: list[tuple[str, ...]] = [
        ("topics", "list", internal),
        ("topics", "describe", internal),
        ("leaders", "list", internal),
        ("log-dirs", "describe", "--topic", internal),
    ]
    for words in named:
        assert internal in str(rows(*words)), words
    ok("groups", "delete", "shown", "--yes")


def test_topics_have_sizes(ok: Callable[..., str], rows: Callable[..., Any], broker: Broker) -> None:
    ok("topics", "create", "sized", "-p", "2")
    with broker.producer() as producer:
        for partition in range(2):
            producer.send("sized", b"x" * 50_000, partition=partition).result(TIMEOUT_S)
    (row,) = rows("topics", "list", "sized")
    assert 100_000 < row["size_bytes"] < 101_000
    assert lines(ok("topics", "list", "sized"))[1] == ["sized", "2", "1", "100", "kB"]


def test_nobody_to_ask(run: Barnabas, ok: Callable[..., str], rows: Callable[..., Any]) -> None:
    ok("topics", "create", "kept")
    result = run("topics", "delete", "kept")
    assert (result.exit_code, result.stderr) == (
        1,
        "barnabas: Refusing to delete 1 topic with all records (kept) without confirmation. Use --yes.\n",
    )
    assert len(rows("topics", "list", "kept")) == 1


def test_offsets_of_a_group(run: Barnabas, ok: Callable[..., str], rows: Callable[..., Any]) -> None:
    ok("topics", "create", "g-topic", "-p", "2")
    shown = run("groups", "reset-offsets", "g-readers", "--topic", "g-topic", "--to-earliest")
    assert shown.stderr == "Nothing was changed. Use --execute to make the changes.\n"
    assert rows("groups", "list") == []
    reset = rows("groups", "reset-offsets", "g-readers", "--topic", "g-topic:1", "--to-offset", "7", "--yes")
    # There are no records yet, so 0 is as far as it goes.
    assert [(row["partition"], row["new_offset"], row["executed"]) for row in reset] == [(1, 0, True)]
    (group,) = rows("groups", "describe", "g-readers")
    assert (group["state"], group["type"]) == ("Empty", "classic")
    assert [(row["partition"], row["committed_offset"], row["lag"]) for row in group["offsets"]] == [
        (1, 0, 0)
    ]
    told = ok("groups", "describe", "g-readers")
    assert told.startswith("g-readers: Empty, classic, coordinator ")
    assert lines(told)[-1] == ["g-topic", "1", "0", "0", "0"]
    for way in (["--to-latest"], ["--shift-by", "-5"], ["--by-duration", "1h"], ["--to-time", "2020-01-01"]):
        assert rows("groups", "reset-offsets", "g-readers", "--all-topics", *way)[0]["new_offset"] == 0
    assert ok("groups", "delete-offsets", "g-readers", "--topic", "g-topic", "--yes") == (
        "g-topic-0: offset deleted\ng-topic-1: offset deleted\n"
    )
    rows("groups", "reset-offsets", "g-readers", "--topic", "g-topic", "--to-latest", "--yes")
    assert ok("groups", "delete", "g-readers", "--yes") == "g-readers: deleted\n"
    assert run("groups", "delete", "g-readers", "--yes").exit_code == 4


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--topic", "x"], "Use exactly one of"),
        (["--topic", "x", "--to-latest", "--to-earliest"], "Use exactly one of"),
        (["--to-latest"], "Specify partitions"),
        (["--topic", "x:one", "--to-latest"], "'x:one' is not TOPIC, TOPIC:0,1 or TOPIC:0-3."),
    ],
)
def test_wrong_use_of_reset_offsets(run: Barnabas, arguments: list[str], told: str) -> None:
    result = run("groups", "reset-offsets", "g", *arguments)
    assert result.exit_code == 2
    assert told in result.stderr


def test_times_and_durations_that_are_none(run: Barnabas, ok: Callable[..., str]) -> None:
    ok("topics", "create", "times")
    for option, value in (("--to-time", "soon"), ("--by-duration", "3 moons")):
        result = run("groups", "reset-offsets", "g", "--topic", "times", option, value)
        assert result.exit_code == 2
        assert f"{value!r} is not a " in result.stderr


def test_settings(run: Barnabas, ok: Callable[..., str], rows: Callable[..., Any]) -> None:
    ok("topics", "create", "c-topic")
    assert run("configs", "describe", "topic", "c-topic").stderr == (
        "all settings have their defaults; --all shows them\n"
    )
    ok("configs", "alter", "topic", "c-topic", "retention.ms=1000", "--append", "cleanup.policy=compact")
    assert lines(ok("configs", "describe", "topic", "c-topic"))[1:] == [
        ["cleanup.policy", "delete,compact", "dynamic", "topic", "no"],
        ["retention.ms", "1000", "dynamic", "topic", "no"],
    ]
    ok(
        "configs",
        "alter",
        "topic",
        "c-topic",
        "--delete",
        "retention.ms",
        "--subtract",
        "cleanup.policy=compact",
    )
    everything = rows("configs", "describe", "topic", "c-topic", "--all", "--doc")
    entry = next(row for row in everything if row["name"] == "cleanup.policy")
    assert entry["value"] == "delete"
    assert entry["documentation"]
    result = run("configs", "alter", "topic", "c-topic", "retention.ms=soon")
    assert result.exit_code == 1
    assert "Invalid value soon for configuration" in result.stderr
    assert run("configs", "alter", "topic", "c-topic").exit_code == 2
    (node,) = rows("cluster", "describe")["brokers"]
    assert "log.dirs" in ok("configs", "describe", "broker", str(node["id"]))
    result = run("configs", "describe", "broker", "77")
    assert (result.exit_code, result.stderr) == (
        4,
        f"barnabas: there is no broker 77; there are {node['id']}, or all\n",
    )


def test_quotas(run: Barnabas, ok: Callable[..., str], rows: Callable[..., Any]) -> None:
    ok("quotas", "set", "--client-id", "loader", "producer_byte_rate=1e6")
    ok("quotas", "set", "--user", "", "request_percentage=50")
    assert lines(ok("quotas", "list"))[1:] == [
        ["-", "loader", "-", "producer_byte_rate", "1,000,000"],
        ["<default>", "-", "-", "request_percentage", "50"],
    ]
    assert len(rows("quotas", "list", "--client-id", "loader")) == 1
    ok("quotas", "delete", "--client-id", "loader", "producer_byte_rate", "--yes")
    ok("quotas", "delete", "--user", "", "request_percentage", "--yes")
    assert run("quotas", "list").stderr == "no quotas\n"
    assert run("quotas", "set", "producer_byte_rate=1").exit_code == 2
    assert run("quotas", "set", "--ip", "10.0.0.1", "producer_byte_rate=x").exit_code == 2


def test_leaders_and_directories(ok: Callable[..., str], rows: Callable[..., Any], broker: Broker) -> None:
    ok("topics", "create", "l-topic", "-p", "2")
    listed = rows("leaders", "list", "l-topic")
    assert [row["leader"] == row["preferred"] for row in listed] == [True, True]
    assert rows("leaders", "list", "l-topic", "--not-preferred") == []
    assert rows("leaders", "elect", "--topic", "l-topic:1") == [{"partition": "l-topic-1", "changed": False}]
    (directory,) = rows("log-dirs", "describe")
    assert directory["path"] == str(broker.directory)
    assert directory["usable_bytes"] <= directory["total_bytes"]
    assert lines(ok("log-dirs", "describe", "--topic", "l-topic:1"))[1][2:5] == ["l-topic", "1", "0"]


def test_transactions(
    run: Barnabas, ok: Callable[..., str], rows: Callable[..., Any], broker: Broker
) -> None:
    ok("topics", "create", "x-topic")
    with broker.admin() as admin:
        admin.fence_producers("x-ledger")
    assert [row["transactional_id"] for row in rows("transactions", "list")] == ["x-ledger"]
    assert lines(ok("transactions", "describe", "x-ledger"))[1][:2] == ["x-ledger", "Empty"]
    assert rows("transactions", "producers", "x-topic") == []
    assert ok("transactions", "fence", "x-ledger", "--yes") == "x-ledger: its producers are fenced\n"
    result = run("transactions", "describe", "x-leger")
    assert (result.exit_code, result.stderr) == (
        4,
        "barnabas: there is no transactional id x-leger; did you mean x-ledger?\n",
    )
    result = run("transactions", "abort", "x-topic", "0", "--start-offset", "3", "--yes")
    assert result.stderr == "barnabas: no open transaction of x-topic-0 begins at offset 3\n"


def test_the_cluster(ok: Callable[..., str], rows: Callable[..., Any], broker: Broker) -> None:
    described = rows("cluster", "describe")
    assert [node["port"] for node in described["brokers"]] == [broker.port]
    assert ok("cluster", "describe").startswith(f"cluster {described['cluster_id']}\n")
    # Without a command it is described.
    assert ok("cluster") == ok("cluster", "describe")
    assert json.loads(ok("cluster", "--json")) == described


def test_features(run: Barnabas, ok: Callable[..., str], rows: Callable[..., Any]) -> None:
    described = {row["feature"]: row for row in rows("features", "describe")}
    assert described["group.version"] == {
        "feature": "group.version",
        "level": 1,
        "min_version": 0,
        "max_version": 1,
        "epoch": 0,
        "unsupported_by": [],
    }
    result = run("features", "upgrade")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "all features have the highest level that all brokers support\n"
    assert ok("features", "upgrade", "group.version=1", "--dry-run") == "group.version: level 1 is possible\n"
    for words, exit_code, told in (
        (("upgrade", "group.versio=1"), 4, "there is no feature group.versio; did you mean group.version?"),
        (("upgrade", "group.version=one"), 2, "group.version: 'one' is not a level."),
        (("disable",), 2, "Specify features, or --all."),
        (("disable", "group.version"), 1, "Refusing to lower group.version to level 0 without confirmation."),
        (("downgrade", "group.version=0", "--yes"), 1, "Barnabas runs each at its highest level."),
    ):
        result = run("features", *words)
        assert (result.exit_code, told in result.stderr) == (exit_code, True), result


def test_no_broker(barnabas: Barnabas) -> None:
    with socket.socket() as reserved:
        # Bound and not listening: nobody else can answer there.
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        result = barnabas("topics", "list", "--bootstrap", f"127.0.0.1:{port}")
    assert result == Result(
        exit_code=3,
        stdout="",
        stderr=f"barnabas: no broker answers at 127.0.0.1:{port} (connection refused). Check that a broker runs there"
        " (`barnabas start` starts one), or name another with -b HOST:PORT\n",
    )
    for address in ("no port", "host:port", "host:0", ",", ""):
        result = barnabas("topics", "list", "--bootstrap", address)
        assert result.exit_code == 2, address
        assert "is not HOST or HOST:PORT" in result.stderr


@pytest.mark.slow
def test_somebody_else_answers(barnabas: Barnabas) -> None:
    """A server of another kind: it is told within the time that was given."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        result = barnabas("topics", "list", "--bootstrap", address, "--timeout", "0.5")
    assert result.exit_code == 3
    assert result.stderr == (
        f"barnabas: describing topics was not done within 500 ms. Check that {address} is a Kafka broker, or use"
        " a larger --timeout\n"
    )


@pytest.mark.slow
def test_a_broker_that_advertises_an_address_of_no_use(barnabas: Barnabas) -> None:
    advertised = "PLAINTEXT://no-such-host.invalid:9092"
    with Broker(advertised_listeners=advertised) as broker:
        result = barnabas("topics", "create", "x", "-b", f"127.0.0.1:{broker.port}", "--timeout", "0.5")
    assert result.exit_code == 3
    assert result.stderr.endswith(
        "cannot be reached at the address that it advertises, no-such-host.invalid:9092 (unknown host): check"
        " its advertised.listeners\n"
    )


def test_completion(broker: Broker) -> None:
    environment = {
        **os.environ,
        "_BARNABAS_COMPLETE": "bash_complete",
        "BARNABAS_BOOTSTRAP": broker.bootstrap,
        "COMP_WORDS": "barnabas topics describe comp",
        "COMP_CWORD": "3",
    }
    with broker.admin() as admin:
        admin.create_topics(["complete-me", "other"])
    done = subprocess.run(
        [sys.executable, "-m", "barnabas"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.stdout == "plain,complete-me\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_of_completion(barnabas: Barnabas, shell: str) -> None:
    result = barnabas("completion", shell)
    assert result.exit_code == 0
    assert "_BARNABAS_COMPLETE" in result.stdout


def commands() -> Iterator[tuple[str, ...]]:
    import click

    context = click.Context(group)
    assert isinstance(group, LazyGroup)
    for name in COMMANDS:
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            for inner in command.commands:
                yield name, inner
        else:
            yield (name,)


def test_every_command_explains_itself(barnabas: Barnabas) -> None:
    for words in commands():
        result = barnabas(*words, "--help")
        assert result.exit_code == 0
        assert result.stdout.startswith(f"Usage: barnabas {' '.join(words)}")
        assert max(map(len, result.stdout.splitlines())) <= 130, words


def test_help_texts_are_whole(barnabas: Barnabas) -> None:
    """The list of a group's commands has the first sentence of each, with none cut off."""
    import click

    from barnabas.cli.shared.group import first_sentence

    context = click.Context(group)
    for name in COMMANDS:
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            listed = " ".join(barnabas(name, "--help").stdout.partition("Commands:")[2].split())
            for inner, each in command.commands.items():
                sentence = first_sentence(each)
                assert sentence.endswith("."), (name, inner)
                assert f"{inner} {sentence}" in listed


def test_every_command_of_a_cluster_knows_json() -> None:
    import click

    context = click.Context(group)
    for words in commands():
        command: Any = group
        for word in words:
            command = command.get_command(context, word)
        options = {name for parameter in command.params for name in parameter.opts}
        assert "--json" in options or "--bootstrap" not in options, words
