"""Commands about several brokers, against a cluster of Apache Kafka 3.9.1 and its own tools."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Barnabas
from tests.cli.test_json_fields import documented, fields_of
from tests.peers.kafka_cluster import KafkaCluster, kafka_cluster
from tests.peers.kafka_peer import V3, PeerUnavailable, run_tool
from tests.waiting import Deadline

pytestmark = [pytest.mark.slow, pytest.mark.peer]

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    try:
        with kafka_cluster(tmp_path_factory.mktemp("cluster"), (1, 2, 3)) as started:
            yield started
    except PeerUnavailable as why:
        pytest.skip(str(why))


@pytest.fixture
def run(barnabas: Barnabas, cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> Barnabas:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", cluster.bootstrap)
    return barnabas


@pytest.fixture
def ok(run: Barnabas) -> Callable[..., str]:
    def call(*arguments: str | Path, stdin: bytes = b"") -> str:
        result = run(*arguments, stdin=stdin)
        assert result.exit_code == 0, result
        return result.stdout

    return call


@pytest.fixture
def rows(ok: Callable[..., str]) -> Callable[..., Any]:
    """What a command prints with --json, at the latest when it is as expected."""

    def call(*arguments: str | Path, until: Callable[[Any], bool] = lambda _: True) -> Any:
        deadline = Deadline(120)
        while not until(found := json.loads(ok(*arguments, "--json"))):
            deadline.check(found)
            time.sleep(0.1)
        return found

    return call


def replicas_of(rows: Callable[..., Any], topic: str) -> list[list[int]]:
    (described,) = rows("topics", "describe", topic)
    return [each["replicas"] for each in described["partitions"]]


def create(ok: Callable[..., str], rows: Callable[..., Any], topic: str, *options: str) -> None:
    ok("topics", "create", topic, *options)

    def is_known(found: Any) -> bool:
        return [each["topic"] for each in found] == [topic]

    rows("topics", "list", topic, until=is_known)
    rows("cluster", "problems", until=lambda found: found == [])


def test_replicas_move_by_plan(
    cluster: KafkaCluster, run: Barnabas, ok: Callable[..., str], rows: Callable[..., Any], tmp_path: Path
) -> None:
    create(ok, rows, "moved", "-p", "6", "-r", "2")
    ok("produce", "moved", stdin=b"".join(b"%d\n" % number for number in range(500)))
    before = replicas_of(rows, "moved")
    plan, back = tmp_path / "plan.json", tmp_path / "back.json"
    told = run("reassign", "plan", "--topic", "moved", "--without", "3", "-o", plan, "--current", back)
    assert told.exit_code == 0
    assert f"`barnabas reassign run {plan}` carries it out" in told.stderr
    planned = rows("reassign", "plan", "--topic", "moved", "--without", "3")
    assert planned == json.loads(plan.read_text())
    assert fields_of(planned) == documented()["reassign plan"]
    result = run("reassign", "run", plan)
    assert (result.exit_code, "without confirmation. Use --yes" in result.stderr) == (1, True)
    done = rows("reassign", "run", plan, "--throttle", "50MB", "--yes")
    assert fields_of(done) == documented()["reassign run"]
    assert all(row["done"] and 3 not in row["new_replicas"] for row in done)
    assert all(set(each) == {1, 2} for each in replicas_of(rows, "moved"))
    assert "throttled" not in run("reassign", "status").stderr
    # Kafka's tool reads our plan, and we read its current assignment.
    verified = run_tool(
        V3,
        REASSIGN,
        "--bootstrap-server",
        cluster.bootstrap,
        "--reassignment-json-file",
        str(plan),
        "--verify",
    )
    assert verified.count("is completed") == len(done)
    assert "reassigned" in ok("reassign", "run", back, "--yes")
    assert replicas_of(rows, "moved") == before
    assert ok("consume", "moved").count("\n") == 500


def test_a_reassignment_is_watched_and_cancelled(
    run: Barnabas, ok: Callable[..., str], rows: Callable[..., Any], tmp_path: Path
) -> None:
    create(ok, rows, "slow", "-p", "1", "-r", "2")
    ok("perf", "produce", "slow", "-n", "2000", "--size", "1000")
    [before] = replicas_of(rows, "slow")
    [other] = {1, 2, 3} - set(before)
    plan = tmp_path / "plan.json"
    partition = {"topic": "slow", "partition": 0, "replicas": [before[0], other]}
    plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    assert "1 reassignment begun" in ok("reassign", "run", plan, "--throttle", "1k", "--no-wait", "--yes")
    [moving] = rows("reassign", "status", until=lambda found: found and found[0]["total_bytes"] > 0)
    assert fields_of(moving) == documented()["reassign status"]
    assert (moving["adding"], moving["removing"]) == ([other], [before[1]])
    assert 0 <= moving["done_bytes"] < moving["total_bytes"]
    result = run("reassign", "run", plan, "--yes")
    assert (result.exit_code, "1 reassignment already under way" in result.stderr) == (1, True)
    assert "throttled" in run("reassign", "status").stderr
    cancelled = rows("reassign", "cancel", "--topic", "slow", "--yes")
    assert fields_of(cancelled) == documented()["reassign cancel"]
    assert replicas_of(rows, "slow") == [before]
    assert "throttled" not in run("reassign", "status").stderr


def test_a_broker_that_is_gone_shows_and_its_leaders_come_back(
    cluster: KafkaCluster, ok: Callable[..., str], rows: Callable[..., Any]
) -> None:
    create(ok, rows, "kept", "-p", "3", "-r", "3", "-c", "min.insync.replicas=2")
    gone = next(each for each in (3, 2, 1) if not _is_controller(rows, each))
    cluster.brokers[gone].stop()
    ok("perf", "produce", "kept", "-n", "100")

    def is_behind(found: Any) -> bool:
        return sum(gone not in each["isr"] for each in found if each["topic"] == "kept") == 3

    problems = rows("cluster", "problems", until=is_behind)
    assert fields_of(problems) == documented()["cluster problems"]
    kept = [each for each in problems if each["topic"] == "kept"]
    assert {tuple(each["problems"]) for each in kept} == {("at min ISR", "under-replicated")}
    assert {each["lag"] for each in kept} == {0}
    assert {lag["lag"] for each in kept for lag in each["lags"] if lag["broker"] == gone} == {None}
    described = rows("cluster", "describe")
    assert described["missing_brokers"] == [gone]
    assert described["under_replicated"] >= described["at_min_isr"] >= 3
    assert f"not alive: {gone}" in ok("cluster", "describe")
    cluster.brokers[gone].start()
    cluster.brokers[gone].wait_until_ready()
    rows("cluster", "problems", until=lambda found: found == [])

    def is_whole(found: Any) -> bool:
        return [broker["lag"] for broker in found["brokers"]] == [0, 0, 0]

    rows("cluster", "describe", until=is_whole)
    ok("leaders", "elect", "--all")
    assert rows("leaders", "list", "kept", "--not-preferred", until=lambda found: found == []) == []


def _is_controller(rows: Callable[..., Any], broker_id: int) -> bool:
    return bool(rows("cluster", "describe")["controller_id"] == broker_id)
