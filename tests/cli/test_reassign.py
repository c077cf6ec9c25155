"""`barnabas reassign` and `barnabas cluster` against a single broker: plans, refusals, and what to do next."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.testing import Broker
from tests.cli.conftest import Barnabas


@pytest.fixture
def node_id(broker: Broker) -> int:
    with broker.admin() as admin:
        return admin.describe_cluster().nodes[0].id


@pytest.fixture(scope="module")
def orders(broker: Broker) -> str:
    broker.create_topics({"orders": 2})
    return "orders"


def plan_of(replicas: dict[tuple[str, int], list[int]]) -> str:
    return json.dumps(
        {
            "version": 1,
            "partitions": [
                {"topic": topic, "partition": index, "replicas": brokers}
                for (topic, index), brokers in replicas.items()
            ],
        }
    )


def test_a_cluster_without_problems(
    run: Barnabas, ok: Callable[..., str], rows: Callable[..., Any], orders: str, node_id: int
) -> None:
    told = ok("cluster", "describe")
    assert told.splitlines()[0].startswith("cluster ")
    assert told.splitlines()[1].split() == [
        *("broker", "host", "port", "rack", "controller", "leads", "replicas", "not", "in", "sync", "lag")
    ]
    assert told.endswith("2 partitions: all replicas are in sync\n")
    found = rows("cluster", "describe")
    [broker] = found["brokers"]
    assert (broker["id"], broker["leaders"], broker["replicas"], broker["lag"]) == (node_id, 2, 2, 0)
    assert (found["missing_brokers"], found["offline"], found["under_replicated"]) == ([], 0, 0)
    result = run("cluster", "problems")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no problems\n")
    assert rows("cluster", "problems") == []


def test_there_is_nothing_to_plan_for_one_broker(run: Barnabas, orders: str, tmp_path: Path) -> None:
    current = tmp_path / "current.json"
    result = run("reassign", "plan", "--all", "-o", tmp_path / "plan.json", "--current", current)
    assert result.exit_code == 0
    assert "nothing to move" in result.stderr
    assert not (tmp_path / "plan.json").exists()
    assert [each["partition"] for each in json.loads(current.read_text())["partitions"]] == [0, 1]
    result = run("reassign", "run", current, "--yes")
    assert (result.exit_code, result.stderr) == (0, "all replicas are where they should be\n")


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("plan",), 2, "Specify partitions: --topic TOPIC[:P,...], or --all."),
        (("plan", "--all", "--topic", "orders"), 2, "Specify partitions"),
        (("plan", "--topic", "ordrs"), 4, "there is no topic ordrs; did you mean orders?"),
        (("plan", "--topic", "orders:7"), 4, "orders has no partition 7; it has partitions 0 to 1"),
        (("plan", "--all", "-r", "3"), 1, "3 replicas of a partition need 3 brokers, and 1 are chosen"),
        (
            ("plan", "--all", "--brokers", "x"),
            2,
            "--brokers: 'x' is not a list of broker ids, such as 1,2,3.",
        ),
        (("plan", "--all", "--brokers", "77"), 4, "no broker 77 is alive; there are "),
        (("run", "/nowhere"), 2, "'/nowhere' does not exist"),
        (("cancel",), 2, "Specify partitions"),
    ],
)
def test_refusals(run: Barnabas, orders: str, arguments: tuple[str, ...], code: int, told: str) -> None:
    result = run("reassign", *arguments)
    assert (result.exit_code, result.stdout) == (code, ""), result
    assert told in result.stderr


def test_plans_that_cannot_be_run(run: Barnabas, orders: str, node_id: int, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    for text, told, code in (
        ("{", f"{file}: this is not JSON", 1),
        (plan_of({("orders", 9): [node_id]}), "orders has no partition 9; it has partitions 0 to 1", 4),
        (plan_of({("ordrs", 0): [node_id]}), "there is no topic ordrs; did you mean orders?", 4),
        (plan_of({("orders", 0): [node_id, 78]}), "no broker 78 is alive", 4),
    ):
        file.write_text(text)
        result = run("reassign", "run", file, "--yes")
        assert (result.exit_code, told in result.stderr) == (code, True), result
    file.write_text(plan_of({("orders", 0): [node_id]}))
    for rate in ("fast", "0", "-3", "9" * 30):
        result = run("reassign", "run", file, "--throttle", rate)
        assert result.exit_code == 2
        assert "is not a rate in bytes per second, such as 50MB" in result.stderr


def test_nothing_is_under_way(run: Barnabas, rows: Callable[..., Any], orders: str) -> None:
    for arguments in (("status",), ("status", "--wait"), ("cancel", "--all")):
        result = run("reassign", *arguments)
        assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no reassignments under way\n")
    assert rows("reassign", "status") == rows("reassign", "cancel", "--topic", "orders") == []


def test_a_throttle_that_was_left_is_told_and_removed(
    run: Barnabas, ok: Callable[..., str], orders: str
) -> None:
    ok("configs", "alter", "topic", "orders", "leader.replication.throttled.replicas=*")
    result = run("reassign", "status")
    assert "Replication is throttled on 1 broker or topic." in result.stderr
    assert "`barnabas reassign status --wait` removes it." in result.stderr
    assert "The throttle is removed." in run("reassign", "status", "--wait").stderr
    assert "throttled" not in run("reassign", "status").stderr
