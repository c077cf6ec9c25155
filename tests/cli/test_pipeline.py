"""`barnabas pipeline`: what needs no Spark in this process, and a run of its own in another."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from rich.console import Console

from barnabas.cli.pipelines.run import (
    METRICS_HOST,
    LiveDisplay,
    _metrics,
    _Notes,
    _run_with_retries,
    _Stopping,
    _Watched,
)
from barnabas.client.admin.results import CommittedOffset
from barnabas.errors import CoordinatorNotAvailable, ProducerFenced
from barnabas.model import TopicPartition
from barnabas.spark.pipeline.journal import Journal, read_journal
from barnabas.spark.pipeline.load import load_pipeline
from barnabas.testing import Broker, free_port
from tests.cli.conftest import Barnabas

TIMEOUT_S = 300

PIPELINE = """
name = "{name}"
trigger = "200ms"

[sources.orders]
type = "topic"
topics = "{name}-in"
max_records = 3

[[transforms]]
name = "values"
sql = "SELECT value FROM orders"

[sink]
type = "topic"
topic = "{name}-out"
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def file(
    tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Path:
    """A pipeline between topics that only this test uses, and that exist."""
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", broker.bootstrap)
    name = request.function.__name__.replace("test_", "").replace("_", "-")
    broker.create_topics({f"{name}-in": 2, f"{name}-out": 1})
    path = tmp_path / "pipeline.toml"
    path.write_text(PIPELINE.format(name=name))
    return path


def produce(broker: Broker, topic: str, count: int) -> None:
    with broker.producer() as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % 2)


def test_validate(barnabas: Barnabas, file: Path, broker: Broker) -> None:
    done = barnabas("pipeline", "validate", file, "--no-spark")
    assert (done.exit_code, done.stdout, done.stderr) == (
        0,
        f"{file}: validate is a valid pipeline, as far as it was checked\n",
        "not checked: types of schemas, SQL and columns: --no-spark\n",
    )
    found = json.loads(barnabas("pipeline", "validate", file, "--connect", "--no-spark", "--json").stdout)
    assert found["valid"]
    assert found["not_checked"] == ["types of schemas, SQL and columns: --no-spark"]
    assert [(each["where"], each["state"]) for each in found["checks"]] == [
        ("sources.orders", "ok"),
        ("sources.orders", "ok"),
        ("sink.topic", "ok"),
    ]

    file.write_text(file.read_text().replace("trigger", "triger").replace('"topic"', '"topc"', 1))
    done = barnabas("pipeline", "validate", file)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.splitlines()[0].startswith(
        f"barnabas: {file}: triger: there is no such key; did you mean trigger?; there are name, "
    )
    assert done.stderr.count("\n") == 2
    faulty = barnabas("pipeline", "validate", file, "--json")
    assert faulty.exit_code == 1
    assert len(json.loads(faulty.stdout)["faults"]) == 2


def test_validate_without_java(
    barnabas: Barnabas, file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What could not be checked is no fault, and is not passed over in silence."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    done = barnabas("pipeline", "validate", file)
    assert done.exit_code == 0
    assert done.stdout == f"{file}: validate-without-java is a valid pipeline, as far as it was checked\n"
    assert done.stderr.startswith(
        f"not checked: types of schemas, SQL and columns: Spark needs Java: JAVA_HOME is {tmp_path}"
    )


@pytest.mark.slow
def test_validate_by_spark(barnabas: Barnabas, file: Path) -> None:
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17: there is no java on the PATH")
    done = barnabas("pipeline", "validate", file)
    assert (done.exit_code, done.stdout, done.stderr) == (
        0,
        f"{file}: validate-by-spark is a valid pipeline\n",
        "",
    )
    file.write_text(file.read_text().replace("SELECT value", "SELEC value"))
    done = barnabas("pipeline", "validate", file)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        f"barnabas: {file}: transforms[0].sql: Syntax error at or near 'SELEC'. (line 1, pos 0)",
        "not checked: sink: the columns of values are not known",
    ]


def test_missing_topics(barnabas: Barnabas, file: Path, broker: Broker) -> None:
    """Told before Java is started: with exit code 4 and the nearest name there is."""
    file.write_text(file.read_text().replace("missing-topics-in", "missing-topic-in"))
    for command in ("validate", "plan", "run", "status"):
        arguments = ["--connect"] if command == "validate" else []
        done = barnabas("pipeline", command, file, *arguments)
        assert done.exit_code == 4, command
        assert done.stderr.endswith(
            "barnabas: sources.orders.topics: there is no topic missing-topic-in; did you mean missing-topics-in?"
            " (barnabas topics create missing-topic-in makes it)\n"
        )
    file.write_text(
        file.read_text().replace("missing-topic-in", "missing-topics-in").replace("-out", "-none")
    )
    done = barnabas("pipeline", "validate", file, "--connect", "--no-spark", "--json")
    checks = json.loads(done.stdout)["checks"]
    assert checks[-1]["state"] == "missing"


def test_an_unreachable_broker(barnabas: Barnabas, file: Path) -> None:
    port = free_port()
    file.write_text(f"kafka.bootstrap.servers = 'localhost:{port}'\n{file.read_text()}")
    for command in ("validate", "plan", "run", "status", "reset"):
        done = barnabas("pipeline", command, file, *(["--connect"] if command == "validate" else []))
        assert done.exit_code == 3, command
        assert f"sources.orders: no broker answers at localhost:{port} (connection refused)" in done.stderr


def test_status(barnabas: Barnabas, file: Path, broker: Broker, tmp_path: Path) -> None:
    done = barnabas("pipeline", "status", file)
    assert done.exit_code == 0
    assert "status: has not run yet\n" in done.stdout

    produce(broker, "status-in", 10)
    with broker.admin() as admin:
        admin.alter_group_offsets("status", {TopicPartition("status-in", 0): CommittedOffset(offset=3)})
    folder = tmp_path / "checkpoints" / "status"
    for name, text in (
        ("metadata", '{"id":"a0a38f93"}'),
        (
            "offsets/7",
            'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1794783390970}\n{"status-in":{"0":3,"1":0}}',
        ),
        ("commits/6", 'v1\n{"nextBatchWatermarkMs":0}'),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    found = json.loads(barnabas("pipeline", "status", file, "--json").stdout)
    assert found["lag"] == 2
    assert found["queries"][0]["planned_batch_id"] == 7
    told = barnabas("pipeline", "status", file).stdout
    assert "status: batch 6 is done, batch 7 is under way or to be repeated, the last began at " in told
    assert "(query a0a38f93)" in told
    assert [line.split() for line in told.splitlines()[2:]] == [
        ["source", "topic", "partition", "committed", "end", "lag"],
        ["orders", "status-in", "0", "3", "5", "2"],
        ["orders", "status-in", "1", "-", "5", "-"],
    ]
    elsewhere = barnabas("pipeline", "status", file, "--checkpoint", tmp_path / "none")
    assert "status: has not run yet" in elsewhere.stdout
    remote = barnabas("pipeline", "status", file, "--checkpoint", "hdfs://there/status")
    assert "status: hdfs://there/status is not on this machine" in remote.stdout
    assert "status-in" in remote.stdout


def test_list(barnabas: Barnabas, file: Path, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("[tool.ruff]\nline-length = 110\n")
    (tmp_path / "wrong.toml").write_text('name = "wrong"\n[sources.a]\ntype = "topc"\n')
    (good, wrong) = json.loads(barnabas("pipeline", "list", tmp_path, "--json").stdout)
    assert good == {
        "file": str(file),
        "name": "list",
        "is_valid": True,
        "reads": "orders (topic)",
        "writes": "topic list-out",
        "state": "has not run yet",
    }
    assert (wrong["name"], wrong["is_valid"]) == ("wrong", False)
    assert wrong["state"].startswith("invalid: sources.a.type: 'topc' is not allowed")
    for name, text in (("metadata", '{"id":"a0"}'), ("offsets/4", "v1\n{}"), ("commits/4", "v1\n{}")):
        path = tmp_path / "checkpoints" / "list" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    told = barnabas("pipeline", "list", file).stdout
    assert "batch 4 is done" in told
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "no file here declares a pipeline" in "".join(
        (done := barnabas("pipeline", "list", empty)).stdout + done.stderr
    )


class _Attempts:
    """Fails with these errors, one after the other, and then ends well."""

    def __init__(self, watched: _Watched, *errors: Exception) -> None:
        self._watched = watched
        self._errors = list(errors)
        self.count = 0

    def __call__(self) -> None:
        self.count += 1
        if self._errors:
            raise self._errors.pop(0)


def test_a_run_starts_again_after_transient_faults(
    file: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As often as it may; with a batch between two faults, more often."""
    monkeypatch.setattr("barnabas.spark.pipeline.restarts.FIRST_DELAY_S", 0.001)
    declared = load_pipeline(file)
    shown: list[dict[str, Any]] = []
    notes = _Notes(lambda _: None, Journal(str(declared.checkpoint)))
    watched = _Watched(shown.append, notes, _Stopping(), 1.0)
    fault = CoordinatorNotAvailable("the coordinator moves")
    attempts = _Attempts(watched, fault, fault)
    _run_with_retries(attempts, declared, watched, 2)
    assert attempts.count == 3
    assert [(each["event"], each["restart"], each["error"]) for each in shown] == [
        ("restarting", 1, "the coordinator moves"),
        ("restarting", 2, "the coordinator moves"),
    ]
    with pytest.raises(CoordinatorNotAvailable):
        _run_with_retries(_Attempts(watched, fault, fault, fault), declared, watched, 2)
    refused = _Attempts(watched, ProducerFenced("another driver"))
    with pytest.raises(ProducerFenced):
        _run_with_retries(refused, declared, watched, 2)
    assert refused.count == 1
    # A user who stops it while it waits does not wait for the next attempt.
    monkeypatch.setattr("barnabas.spark.pipeline.restarts.FIRST_DELAY_S", 60.0)
    threading.Timer(0.05, watched.stopping.event.set).start()
    stopped = _Attempts(watched, fault)
    _run_with_retries(stopped, declared, watched, 2)
    assert stopped.count == 1


def test_reset(barnabas: Barnabas, file: Path, broker: Broker, tmp_path: Path) -> None:
    produce(broker, "reset-in", 10)
    folder = tmp_path / "checkpoints" / "reset"
    (folder / "offsets").mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"a0a38f93"}')
    first = TopicPartition("reset-in", 0)
    with broker.admin() as admin:
        admin.alter_group_offsets("reset", {first: CommittedOffset(offset=3, metadata="marker")})

        dry = barnabas("pipeline", "reset", file, "--to-latest")
        assert dry.exit_code == 0
        assert dry.stderr == "Nothing was changed. Use --execute to make the changes.\n"
        assert ["reset-in", "0", "3", "5"] in [line.split() for line in dry.stdout.splitlines()]
        assert folder.exists()
        nobody = barnabas("pipeline", "reset", file, "--execute")
        assert nobody.exit_code == 1
        assert "without confirmation. Use --yes." in nobody.stderr
        assert folder.exists()

        done = barnabas("pipeline", "reset", file, "--to-latest", "--execute", "--yes", "--json")
        assert done.exit_code == 0
        assert json.loads(done.stdout)["executed"]
        assert not folder.exists()
        assert admin.list_group_offsets("reset")[first] == CommittedOffset(offset=5, metadata="reset")

        again = barnabas("pipeline", "reset", file, "--execute", "--yes")
        assert again.exit_code == 0
        assert "checkpoint" in again.stdout
        assert "there is none" in again.stdout
        assert "reset" not in [group.group_id for group in admin.list_groups()]
    both = barnabas("pipeline", "reset", file, "--to-latest", "--to-earliest")
    assert both.exit_code == 2


def test_what_is_not_installed_is_named(
    barnabas: Barnabas, file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    for command in ("plan", "run"):
        done = barnabas("pipeline", command, file)
        assert done.exit_code == 1
        assert done.stderr.startswith(
            f"barnabas: Spark needs Java: JAVA_HOME is {tmp_path}, where there is no bin/java"
        )
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    assert "Spark needs Java 17: " in barnabas("pipeline", "run", file).stderr

    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "pyspark" else real(name, *more)
    )
    assert barnabas("pipeline", "run", file).stderr == (
        "barnabas: Spark needs pyspark, which is not installed: pip install 'barnabas[spark]'\n"
    )


@pytest.mark.slow
def test_help_and_validate_do_without_spark(file: Path) -> None:
    code = (
        "import sys; from barnabas.cli.main import barnabas;"
        "barnabas.main(sys.argv[1:], standalone_mode=False);"
        "print(sorted({'pyspark', 'pyarrow', 'pandas', 'py4j', 'rich'} & sys.modules.keys()), file=sys.stderr)"
    )
    for arguments in (["pipeline", "run", "--help"], ["pipeline", "validate", str(file), "--no-spark"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )
        assert done.stderr.splitlines()[-1] == "[]"


def test_what_a_terminal_shows() -> None:
    output = io.StringIO()
    batch = {
        "query": "revenue",
        "batch_id": 7,
        "rows": 12_000,
        "batch_ms": 800,
        "rows_per_second": 15_000.0,
        "lag": 42,
        "state_rows": 0,
    }
    with LiveDisplay(Console(file=output, width=100)) as display:
        display({"event": "started", "pipeline": "revenue"})
        display({"event": "batch", **batch})
        display({"event": "batch", **batch, "batch_id": 8, "lag": None})
        display({"event": "stopping"})
        display({"event": "stopped", "pipeline": "revenue", "reason": "signal"})
    assert [line.split() for line in output.getvalue().splitlines()] == [
        ["revenue", "has", "stopped", "(signal)"],
        ["query", "batch", "rows", "rows/s", "batch", "time", "lag", "state", "rows", "all", "rows"],
        ["revenue", "8", "12,000", "15,000", "0.8", "s", "-", "-", "24,000"],
    ]


def test_metrics_are_for_this_machine_only(capsys: pytest.CaptureFixture[str]) -> None:
    """Every address that begins with 127 is this machine: one that listens on all addresses answers on all of them."""
    with _metrics(METRICS_HOST, 0):
        url = capsys.readouterr().err.split()[-1]
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(url, timeout=TIMEOUT_S) as answer:
            assert b"barnabas_pipeline_rows_total" in answer.read()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", urlsplit(url).port), timeout=TIMEOUT_S)


@pytest.mark.slow
def test_run_until_a_signal(file: Path, broker: Broker) -> None:
    """Progress is JSON lines, Prometheus is answered, and SIGTERM ends between batches with nothing lost or twice."""
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17: there is no java on the PATH")
    produce(broker, "run-until-a-signal-in", 10)
    command = ["pipeline", "run", str(file), "--master", "local[2]", "--metrics-port", "0"]
    settings = ["--conf", "spark.driver.memory=1g", "--conf", "spark.sql.shuffle.partitions=2"]
    events: list[dict[str, Any]] = []
    with subprocess.Popen(
        [sys.executable, "-m", "barnabas", *command, *settings],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
        start_new_session=True,
    ) as process:
        watchdog = threading.Timer(TIMEOUT_S, os.killpg, (process.pid, signal.SIGKILL))
        watchdog.start()
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            metrics_url = process.stderr.readline().strip().removeprefix("metrics on ")
            for line in process.stdout:
                events.append(json.loads(line))
                if sum(event.get("rows", 0) for event in events) >= 10:
                    break
            else:
                pytest.fail(f"it ended by itself: {events}, {process.stderr.read()}")
            direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with direct.open(metrics_url, timeout=TIMEOUT_S) as answer:
                metrics = answer.read().decode()
            # To all processes of the group, as a terminal and many a supervisor do it.
            os.killpg(process.pid, signal.SIGTERM)
            rest, errors = process.communicate(timeout=TIMEOUT_S)
        finally:
            watchdog.cancel()
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    events += [json.loads(line) for line in rest.splitlines()]
    assert (process.returncode, errors) == (0, "")
    assert [event["event"] for event in events if event["event"] != "batch"] == [
        "started",
        "stopping",
        "stopped",
    ]
    assert events[-1]["reason"] == "signal"
    assert events[-1]["rows"] == 10
    journal = read_journal(str(file.parent / "checkpoints" / "run-until-a-signal"))
    assert journal is not None
    assert (journal["state"], journal["rows"], journal["error"]) == ("stopped", 10, None)
    assert sum(each["rows"] for each in journal["queries"]["run-until-a-signal"]) == 10
    assert (
        'barnabas_pipeline_rows_total{pipeline="run-until-a-signal",query="run-until-a-signal"} 10\n'
        in metrics
    )
    with broker.consumer("run-until-a-signal-out", isolation_level="read_committed") as consumer:
        found = [next(consumer).value for _ in range(10)]
    assert sorted(found) == [b"%d" % number for number in range(10)]
    with broker.admin() as admin:
        committed = admin.list_group_offsets("run-until-a-signal")
    assert {each.offset for each in committed.values()} == {5}
