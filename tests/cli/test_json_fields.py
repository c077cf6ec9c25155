"""The fields of JSON are those that docs/CLI.md has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.testing import Broker
from tests.cli.conftest import Barnabas
from tests.cli.test_cluster_commands import commands

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60
# Objects whose keys are names of settings, quotas and the like.
BY_NAME = {"configs", "settings", "entity", "quotas", "libraries", "extras"}

# A command of each row, in an order in which all of them have something to show.
COMMANDS: dict[str, tuple[str, ...]] = {
    "topics create": ("shop",),
    "produce": ("shop",),
    "consume": ("shop", "--group", "reader"),
    "copy": ("shop", "shop-copy", "--create"),
    "topics list": (),
    "topics describe": ("shop",),
    "topics alter": ("shop", "-c", "retention.ms=100000"),
    "groups list": (),
    "groups describe": ("reader", "live"),
    "groups reset-offsets": ("reader", "--all-topics", "--to-earliest"),
    "groups delete-offsets": ("reader", "--topic", "shop", "--yes"),
    "groups remove-members": ("live", "--all", "--yes"),
    "groups delete": ("reader", "--yes"),
    "configs describe": ("topic", "shop", "--all"),
    "configs alter": ("topic", "shop", "retention.ms=200000"),
    "transactions list": (),
    "transactions describe": ("bank",),
    "transactions producers": ("shop",),
    "transactions fence": ("bank", "--yes"),
    "log-dirs describe": (),
    "leaders list": (),
    "leaders elect": ("--topic", "shop"),
    "quotas set": ("--user", "ann", "request_percentage=50"),
    "quotas list": (),
    "quotas delete": ("--user", "ann", "request_percentage", "--yes"),
    "users create": ("ann", "--password-stdin"),
    "users list": (),
    "users delete": ("ann", "--yes"),
    "acls allow": ("User:ann", "read", "topic", "shop"),
    "acls deny": ("User:bob", "all", "topic", "shop"),
    "acls list": (),
    "acls remove": ("User:ann", "--yes"),
    "cluster describe": (),
    "features describe": (),
    "features upgrade": ("group.version=1",),
    "perf produce": ("shop", "-n", "10", "--each"),
    "perf consume": ("shop",),
    "perf latency": ("shop", "-n", "5", "--rate", "500"),
    "topics delete-records": ("shop", "--before", "end", "--yes"),
    "topics delete": ("shop", "--yes"),
    "profile create": ("dev", "-b", "localhost"),
    "profile list": (),
    "profile show": ("dev",),
    "profile use": ("dev",),
    "profile delete": ("dev", "--yes"),
    "version": ("--verbose",),
}
# These need a second directory, a hanging transaction, ZooKeeper or several brokers; tests of their own run them.
NOT_RUN = {
    "cluster migrate",
    "cluster problems",
    "features disable",
    "features downgrade",
    "log-dirs move",
    "reassign cancel",
    "reassign plan",
    "reassign run",
    "reassign status",
    "transactions abort",
}
OTHERS = {"pipeline", "log", "wire", "start", "certs", "console", "completion"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:ANONYMOUS",
    ) as running:
        yield running


def documented() -> dict[str, set[str]]:
    text = (ROOT / "docs" / "CLI.md").read_text(encoding="utf-8").partition("| command | fields |")[2]
    rows = re.findall(r"^\| `([a-z -]+)` \| (.*) \|$", text, re.MULTILINE)
    return {command: set(re.findall(r"`([^`]+)`", fields)) for command, fields in rows}


def fields_of(value: Any) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(fields_of, value))
    if not isinstance(value, dict):
        return set()
    return set(value).union(*(fields_of(each) for key, each in value.items() if key not in BY_NAME))


@pytest.mark.slow
def test_fields(barnabas: Barnabas, broker: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", broker.bootstrap)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    expected = documented()
    with broker.consumer(group_id="live") as live, broker.producer(transactional_id="bank") as producer:
        for command, arguments in COMMANDS.items():
            if command == "groups list":
                with producer.transaction():
                    producer.send("shop", b"paid")
                live.subscribe(["shop"])
                while not live.assignment():
                    live.poll(100)
            result = barnabas(*command.split(), *arguments, "--json", stdin=b"hello\n")
            assert result.exit_code == 0, result
            found = (
                [json.loads(line) for line in result.stdout.splitlines()]
                if command in ("consume", "produce")
                else json.loads(result.stdout)
            )
            assert fields_of(found) == expected[command], command


def test_every_command_is_documented() -> None:
    every = {" ".join(words) for words in commands() if words[0] not in OTHERS}
    assert every == set(documented()) == set(COMMANDS) | NOT_RUN
