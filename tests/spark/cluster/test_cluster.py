"""The demo's pipelines on a Spark cluster, exactly once, while executors and workers are killed.

The workers of the cluster have Spark and Python and nothing of ours: barnabas comes in the archive of
`barnabas pipeline pack`, as docs/SPARK_CLUSTER.md describes it. One pipeline with a kill of each kind runs in
`make test`; all of them, with kills of a seed's choice, with BARNABAS_SOAK=1.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from demo.stream import Event, expected_revenue, hour, products

from barnabas.testing import Broker
from tests.spark.cluster.standalone import DAEMON_JAVA, EXECUTOR_MB, SparkCluster
from tests.spark.conftest import require_java
from tests.spark.pipeline.running import records_of
from tests.waiting import wait_until

pytest.importorskip("pyspark", reason="pyspark is needed: install barnabas[spark]")
pyarrow_dataset = pytest.importorskip("pyarrow.dataset")

ROOT: Final = Path(__file__).parents[3]
DEMO: Final = ROOT / "demo"
IS_SOAK: Final = os.environ.get("BARNABAS_SOAK") == "1"
SEED: Final = int(os.environ.get("SPARK_CLUSTER_SEED", "21"))
# A JVM on a busy machine: these bound a wait, they are not what is expected.
TIMEOUT_S: Final = 400
SOAK_ROUNDS: Final = 4
TOPICS: Final = {"orders": 2, "products": 1, "clicks": 2}
# What the pipelines in `demo` do not use.
NOT_NEEDED: Final = (
    "deltalake",
    "adbc-driver-postgresql",
    "adbc-driver-sqlite",
    "pandas",
    "numpy",
    "fastavro",
)

pytestmark = pytest.mark.slow


class Command:
    """`barnabas …` in a process of its own; the events that it prints, while it prints them."""

    def __init__(self, folder: Path, *arguments: str, environment: dict[str, str]) -> None:
        self.events: list[dict[str, Any]] = []
        self._errors = folder / "stderr"
        code = "from barnabas.cli.main import main; main()"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code, *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, **environment},
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.events.append(json.loads(line))

    def batches(self) -> int:
        return sum(event["event"] == "batch" for event in self.events)

    def wait_for_batches(self, count: int) -> None:
        wait_until(
            lambda: self.batches() >= count or self._process.poll() is not None,
            self.told,
            timeout_s=TIMEOUT_S,
        )
        assert self.batches() >= count, self.told()

    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait(self) -> int:
        code = self._process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        return code

    def told(self) -> str:
        return f"{self.events[-3:]}\n{self._errors.read_text(errors='replace')[-4000:]}"

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The documented command."""
    path = tmp_path_factory.mktemp("pack") / "workers.tar"
    command = [
        sys.executable,
        "-c",
        "from barnabas.cli.main import main; main()",
        "pipeline",
        "pack",
        str(path),
    ]
    for name in NOT_NEEDED:
        command += ["--without", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert "barnabas" in done.stdout
    yield path
    path.unlink()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    require_java()
    with SparkCluster(tmp_path_factory.mktemp("spark-cluster")) as running:
        yield running
    print(f"killed: {running.killed}")


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return [*products(), *hour()]


def demo_file(folder: Path, name: str, records_a_batch: int) -> Path:
    """A pipeline of the demo, in batches so small that there are many."""
    text = (DEMO / f"{name}.toml").read_text()
    for topic in ("orders", "clicks"):
        line = f'topics = "{topic}"\n'
        text = text.replace(line, f"{line}max_records = {records_a_batch}\n")
    text = text.replace("max_records = 50_000\n", "").replace('"customers.csv"', f'"{DEMO}/customers.csv"')
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


def started(cluster: SparkCluster, archive: Path, broker: Broker, folder: Path, file: Path) -> Command:
    return Command(
        folder,
        *("pipeline", "run", str(file), "--json"),
        *("--master", cluster.url, "--workers", str(archive), "--spark-log", str(folder / "spark.log")),
        *("--conf", f"spark.executor.memory={EXECUTOR_MB}m", "--conf", "spark.executor.cores=1"),
        *("--conf", "spark.sql.shuffle.partitions=2", "--conf", "spark.driver.memory=512m"),
        *("--conf", f"spark.driver.extraJavaOptions={DAEMON_JAVA}"),
        *("--conf", f"spark.executor.extraJavaOptions={DAEMON_JAVA}"),
        *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"),
        environment={"BARNABAS_BOOTSTRAP": broker.bootstrap, "DEMO_FOLDER": str(folder)},
    )


def feed(broker: Broker, events: list[Event], *topics: str) -> None:
    broker.create_topics({topic: TOPICS[topic] for topic in topics})
    with broker.producer(linger_ms=20) as producer:
        for topic in topics:
            theirs = [event for event in events if event.topic == topic]
            producer.send_many(topic, [each.value for each in theirs], keys=[each.key for each in theirs])


def check_revenue(broker: Broker, events: list[Event]) -> None:
    rows = [json.loads(record.value) for record in records_of(broker, "revenue")]
    found = Counter((row["since"][11:16], row["category"]) for row in rows)
    assert set(found.values()) == {1}, "a window is there more than once"
    cents = Counter({(row["since"][11:16], row["category"]): round(row["euros"] * 100) for row in rows})
    expected = expected_revenue(events)
    assert cents == expected, (cents - expected, expected - cents)
    broken = sum(event.topic == "orders" and not _is_json(event.value) for event in events)
    assert len(records_of(broker, "orders-bad")) == broken


def check_enriched(broker: Broker, events: list[Event]) -> None:
    wanted = Counter(
        json.loads(event.value)["id"] for event in events if event.topic == "orders" and _is_json(event.value)
    )
    found = Counter(json.loads(record.value)["id"] for record in records_of(broker, "orders-enriched"))
    assert found == wanted, (found - wanted, wanted - found)


def check_archive(folder: Path, events: list[Event]) -> None:
    """As a reader finds it that follows Spark's log of the folder."""
    names = set()
    for log in (folder / "clicks" / "_spark_metadata").iterdir():
        if log.name.partition(".")[0].isdigit():
            lines = log.read_text().splitlines()[1:]
            names |= {json.loads(line)["path"].removeprefix("file://") for line in lines}
    rows = pyarrow_dataset.dataset(sorted(names)).to_table(columns=["partition", "offset"]).to_pylist()
    found = Counter((row["partition"], row["offset"]) for row in rows)
    assert set(found.values()) == {1}
    assert len(found) == sum(event.topic == "clicks" for event in events)


def _is_json(value: bytes) -> bool:
    try:
        json.loads(value)
    except ValueError:
        return False
    return True


def test_a_worker_and_an_executor_are_killed(
    cluster: SparkCluster, archive: Path, events: list[Event], tmp_path: Path
) -> None:
    """The windows of the demo, exactly once: topic to topic, with state and dead letters."""
    with Broker() as broker:
        feed(broker, events, "orders")
        command = started(cluster, archive, broker, tmp_path, demo_file(tmp_path, "revenue", 2_400))
        try:
            command.wait_for_batches(1)
            cluster.kill_executor()
            command.wait_for_batches(2)
            cluster.kill_worker()
            assert command.is_running(), command.told()
            assert command.wait() == 0, command.told() + cluster.executor_errors()
        finally:
            command.close()
        check_revenue(broker, events)
        assert cluster.killed["executors"] >= 1
        assert cluster.killed["workers"] >= 1


@pytest.mark.skipif(not IS_SOAK, reason="takes minutes: runs with BARNABAS_SOAK=1")
@pytest.mark.parametrize("seed", [SEED + number for number in range(SOAK_ROUNDS)])
def test_all_pipelines_of_the_demo(
    cluster: SparkCluster, archive: Path, events: list[Event], tmp_path: Path, seed: int
) -> None:
    cluster.complete()
    chooser = random.Random(seed)
    before = dict(cluster.killed)
    with Broker() as broker:
        feed(broker, events, *TOPICS)
        for name, records in (("revenue", 500), ("enriched", 500), ("archive", 8_000)):
            command = started(cluster, archive, broker, tmp_path, demo_file(tmp_path, name, records))
            try:
                for number in range(1, 4):
                    command.wait_for_batches(2 * number - 1)
                    if chooser.random() < 0.5:
                        cluster.kill_executor(chooser.randrange(2))
                    else:
                        cluster.kill_worker(chooser.randrange(2))
                        cluster.complete()
                assert command.wait() == 0, command.told() + cluster.executor_errors()
            finally:
                command.close()
        check_revenue(broker, events)
        check_enriched(broker, events)
        check_archive(tmp_path, events)
    assert sum(cluster.killed.values()) == sum(before.values()) + 9
    print(f"seed {seed}: killed so far {cluster.killed}")
