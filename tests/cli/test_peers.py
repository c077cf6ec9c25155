"""The commands against Apache Kafka."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Barnabas
from tests.client.consumer_servers import Server, running
from tests.peers.kafka_peer import V3, V4, run_tool
from tests.waiting import Deadline

pytestmark = [pytest.mark.slow, pytest.mark.peer]


@pytest.fixture(scope="module", params=[V4, V3])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(request.param, tmp_path_factory.mktemp("cli")) as started:
        yield started


@pytest.fixture
def ok(barnabas: Barnabas, server: Server, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What a command prints when it succeeds, at the latest when Kafka has come to know all that it has confirmed."""
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", server.address)

    def call(*arguments: str, stdin: bytes = b"", until: Callable[[str], bool] = lambda _: True) -> str:
        deadline = Deadline()
        while True:
            result = barnabas(*arguments, stdin=stdin)
            if result.exit_code == 0 and until(result.stdout):
                return result.stdout
            deadline.check(result)
            time.sleep(0.05)

    return call


@pytest.fixture
def rows(ok: Callable[..., str]) -> Callable[..., Any]:
    def call(*arguments: str, until: Callable[[Any], bool] = lambda _: True) -> Any:
        return json.loads(ok(*arguments, "--json", until=lambda text: until(json.loads(text))))

    return call


def test_topics_and_records(ok: Callable[..., str], rows: Callable[..., Any]) -> None:
    assert "created with 3 partitions" in ok(
        "topics", "create", "orders", "-p", "3", "-c", "retention.ms=100000000"
    )
    rows("topics", "list", until=lambda found: [row["topic"] for row in found] == ["orders"])
    lines = b"".join(b"k%d:v%d\n" % (number, number) for number in range(30))
    ok("produce", "orders", "-k", ":", "-H", "h=1", "--compression", "lz4", stdin=lines)
    assert len(ok("consume", "orders", "--format", "key-value").splitlines()) == 30
    assert len(ok("consume", "orders:0", "--from", "-2").splitlines()) == 2
    ok("copy", "orders", "copied", "--create", "--exact")
    original = [json.loads(line) for line in ok("consume", "orders", "--json").splitlines()]
    copied = [json.loads(line) for line in ok("consume", "copied", "--json").splitlines()]
    for row in original + copied:
        del row["topic"]
    assert sorted(original, key=str) == sorted(copied, key=str)
    (described,) = rows("topics", "describe", "orders")
    assert sum(row["end_offset"] for row in described["partitions"]) == 30
    assert described["configs"] == {"retention.ms": "100000000"}
    ok("topics", "alter", "orders", "-p", "4", "-c", "cleanup.policy=compact")
    rows("topics", "describe", "orders", until=lambda found: len(found[0]["partitions"]) == 4)
    ok("topics", "delete", "copied", "--yes")


def test_groups(ok: Callable[..., str], rows: Callable[..., Any]) -> None:
    ok("produce", "read", "--create", stdin=b"1\n2\n3\n")
    assert ok("consume", "read", "--group", "readers", "-n", "2") == "1\n2\n"
    assert ok("consume", "read", "--group", "readers") == "3\n"
    (group,) = rows("groups", "describe", "readers", until=lambda found: found[0]["state"] == "Empty")
    assert [row["lag"] for row in group["offsets"]] == [0]
    (reset,) = rows("groups", "reset-offsets", "readers", "--all-topics", "--shift-by", "-1", "--yes")
    assert (reset["committed_offset"], reset["new_offset"]) == (3, 2)
    assert ok("consume", "read", "--group", "readers") == "3\n"
    assert "readers" in ok("groups", "list")
    assert ok("groups", "delete", "readers", "--yes") == "readers: deleted\n"


def test_the_rest(ok: Callable[..., str], rows: Callable[..., Any], server: Server) -> None:
    ok("topics", "create", "rest", "-p", "2")
    rows("topics", "describe", "rest")
    ok("configs", "alter", "topic", "rest", "retention.ms=5000")
    rows(
        "configs",
        "describe",
        "topic",
        "rest",
        until=lambda found: [row["value"] for row in found] == ["5000"],
    )
    ok("quotas", "set", "--client-id", "loader", "producer_byte_rate=1e9")
    rows("quotas", "list", until=lambda found: [row["client_id"] for row in found] == ["loader"])
    assert [row["leader"] for row in rows("leaders", "list", "rest")] == [1, 1]
    assert rows("leaders", "elect", "--topic", "rest:1") == [{"partition": "rest-1", "changed": False}]
    (directory,) = rows("log-dirs", "describe")
    assert directory["path"] == str(server.process.directory)
    assert rows("cluster", "describe")["controller_id"] == 1
    assert rows("transactions", "list") == []
    assert rows("perf", "produce", "rest", "-n", "1000")["records"] == 1000
    assert rows("perf", "consume", "rest")["records"] == 1000
    assert len(rows("transactions", "producers", "rest")) >= 1
    assert rows("perf", "latency", "rest", "-n", "10", "--rate", "100")["records"] == 10


def test_files_of_offsets_are_those_of_kafka(
    ok: Callable[..., str], rows: Callable[..., Any], server: Server, tmp_path: Path
) -> None:
    """kafka-consumer-groups reads what we export and exports what we read; kafka-delete-records has our JSON."""
    ok("topics", "create", "filed", "-p", "2")
    for partition in ("0", "1"):
        ok("produce", "filed", "-p", partition, stdin=b"1\n2\n3\n")
    ok("groups", "reset-offsets", "filed-readers", "--topic", "filed", "--to-offset", "2", "--yes")
    file = tmp_path / "offsets.csv"
    file.write_text(
        ok("groups", "reset-offsets", "filed-readers", "--all-topics", "--to-current", "--export")
    )

    def kafka(main_class: str, *arguments: str) -> str:
        version = V4 if server.kind == V4 else V3
        return run_tool(version, main_class, "--bootstrap-server", server.address, *arguments)

    groups = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    resetting = ("--reset-offsets", "--group", "filed-readers", "--dry-run", "--export")
    assert sorted(kafka(groups, *resetting, "--from-file", str(file)).split()) == ["filed,0,2", "filed,1,2"]
    file.write_text(kafka(groups, *resetting, "--all-topics", "--to-earliest").lstrip())
    reset = rows("groups", "reset-offsets", "filed-readers", "--from-file", str(file), "--yes")
    assert [row["new_offset"] for row in reset] == [0, 0]

    file = tmp_path / "offsets.json"
    file.write_text('{"version":1,"partitions":[{"topic":"filed","partition":0,"offset":1}]}')
    (row,) = rows("topics", "delete-records", "--from-file", str(file), "--yes")
    assert (row["new_first_offset"], row["deleted"]) == (1, 1)
    file.write_text('{"version":1,"partitions":[{"topic":"filed","partition":0,"offset":-1}]}')
    kafka("org.apache.kafka.tools.DeleteRecordsCommand", "--offset-json-file", str(file))
    (row,) = rows("topics", "delete-records", "--from-file", str(file), "--yes")
    assert (row["first_offset"], row["deleted"]) == (3, 0)
