"""The kill matrix: whatever dies, and whenever, each record is in the topic once.

Each case feeds unique values to a topic, runs drivers that copy them to another one, has one of them fail, lets another
finish, and compares what a reader of committed records finds. A seeded sample runs in `make test`, all with
BARNABAS_SOAK=1, on our broker and on Apache Kafka. Mirrors read from a broker of ours and write to either.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from barnabas.client.admin.admin import Admin
from tests.client.consumer_servers import OURS
from tests.peers.kafka_peer import V3, V4
from tests.spark.conftest import require_java

pytest.importorskip("pyspark", reason="pyspark is needed: install barnabas[spark]")

from barnabas.spark.databases.connection import connected, parse_url, rows_of
from barnabas.spark.exactly_once.sink import reset, starting_offsets
from tests.spark.kill_matrix.driver import (
    AFTER_COMMIT,
    AFTER_TASKS,
    BEFORE_TASKS,
    DATABASE_POINTS,
    DRIVER_POINTS,
    HOLD,
    IN_A_TASK,
    KILL_WORKER,
    SLEEP,
    Job,
)
from tests.spark.kill_matrix.mirroring import PARTITIONS, check_mirrored, commit_readers, feed_records
from tests.spark.kill_matrix.running import (
    Server,
    check_equal,
    create,
    ended,
    feed,
    running_server,
    started,
)
from tests.spark.kill_matrix.sinks import POINTS, check_sinks, with_sinks

IS_SOAK: Final = os.environ.get("BARNABAS_SOAK") == "1"
SEED: Final = int(os.environ.get("KILL_MATRIX_SEED", "8"))
RECORDS: Final = 2_000

pytestmark = pytest.mark.slow
whole_matrix = pytest.mark.skipif(not IS_SOAK, reason="the whole kill matrix runs with BARNABAS_SOAK=1")
_numbers = itertools.count(1)


@pytest.fixture(
    scope="module", params=[OURS, *([pytest.param(V4, marks=pytest.mark.peer)] if IS_SOAK else [])]
)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    require_java()
    with running_server(request.param, tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The cluster that is mirrored; the other one is the server."""
    with running_server(OURS, tmp_path_factory.mktemp("here")) as running:
        yield running


@pytest.fixture
def mirror(here: Server, server: Server, tmp_path: Path) -> Job:
    """To the server, under another name."""
    name = f"mirror-{next(_numbers)}"
    create(here, **{name: PARTITIONS})
    return Job(
        folder=str(tmp_path),
        bootstrap=here.bootstrap,
        source=name,
        target=server.bootstrap,
        out=f"copy.{name}",
        name=name,
        checkpoint=str(tmp_path / "mirror-checkpoint"),
    )


@pytest.fixture
def job(server: Server, tmp_path: Path) -> Job:
    return new_job(server, tmp_path)


def new_job(server: Server, folder: Path) -> Job:
    name = f"job-{next(_numbers)}"
    create(server, **{f"{name}-source": 2, f"{name}-out": 3})
    return Job(
        folder=str(folder),
        bootstrap=server.bootstrap,
        source=f"{name}-source",
        out=f"{name}-out",
        name=name,
        checkpoint=str(folder / "checkpoint"),
    )


def killed(*jobs: Job) -> None:
    status, output = ended(*jobs)
    assert status == -signal.SIGKILL, output[-4000:]


def finished(job: Job) -> None:
    status, output = ended(job)
    assert status == 0, output[-4000:]


def refused(job: Job, *told: str) -> None:
    status, output = ended(job)
    assert status == 1, output[-4000:]
    for each in told:
        assert each in output, output[-4000:]


def kill_one_after_the_other(server: Server, job: Job, points: list[str]) -> None:
    """Each driver takes up what the one before has left, and is killed in the next batch; the last one finishes."""
    wanted = feed(server, job.source, range(400 * (len(points) + 1)))
    for batch, point in enumerate(points):
        killed(replace(job, point=point, batch=batch))
    finished(job)
    check_equal(server, job.out, wanted)


def test_a_sample_of_kills(here: Server, server: Server, job: Job, mirror: Job, tmp_path: Path) -> None:
    """After the commit, which is the worst, a mirror at a point of the seed's choice, and between two sinks."""
    wanted, mirrored = feed(server, job.source, range(800)), range(800)
    feed_records(here, mirror.source, mirrored)
    commit_readers(here, mirror, 150)
    killed(replace(job, point=AFTER_COMMIT, batch=0))
    # The second driver finishes what the first has left, and is killed in the mirror.
    killed(job, replace(mirror, point=random.Random(SEED).choice(DRIVER_POINTS), batch=1))
    check_equal(server, job.out, wanted)
    several = with_sinks(new_job(server, tmp_path))
    fed = feed(server, several.source, range(800))
    killed(mirror, replace(several, point=POINTS[0], batch=1))
    check_mirrored(here, server, mirror, mirrored, readers=150)
    finished(several)
    check_sinks(server, several, fed)


@whole_matrix
def test_the_driver_is_killed_between_sinks(server: Server, job: Job) -> None:
    several = with_sinks(job)
    points = random.Random(SEED).sample([*POINTS, *POINTS], 2 * len(POINTS))
    wanted = feed(server, job.source, range(400 * (len(points) + 1)))
    for batch, point in enumerate(points):
        killed(replace(several, point=point, batch=batch))
    finished(several)
    check_sinks(server, several, wanted)


@whole_matrix
def test_the_driver_is_killed_at_all_points(server: Server, job: Job) -> None:
    kill_one_after_the_other(server, job, random.Random(SEED).sample(DRIVER_POINTS, len(DRIVER_POINTS)))


@whole_matrix
def test_the_driver_is_killed_in_a_mirror(here: Server, server: Server, mirror: Job) -> None:
    points = random.Random(SEED).sample(DRIVER_POINTS, len(DRIVER_POINTS))
    mirrored = range(400 * (len(points) + 1))
    feed_records(here, mirror.source, mirrored)
    # Behind what the first batches have: a group waits there for the others.
    commit_readers(here, mirror, 700)
    for batch, point in enumerate(points):
        killed(replace(mirror, point=point, batch=batch))
    finished(mirror)
    check_mirrored(here, server, mirror, mirrored, readers=700)


@whole_matrix
@pytest.mark.peer
def test_the_driver_is_killed_where_transactions_are_of_version_1(tmp_path: Path) -> None:
    require_java()
    with running_server(V3, tmp_path) as server:
        kill_one_after_the_other(server, new_job(server, tmp_path), [AFTER_COMMIT, IN_A_TASK, AFTER_TASKS])


@whole_matrix
def test_a_python_worker_is_killed(server: Server, job: Job) -> None:
    wanted = feed(server, job.source, range(RECORDS))
    finished(replace(job, point=IN_A_TASK, batch=1, action=KILL_WORKER))
    check_equal(server, job.out, wanted)


@whole_matrix
@pytest.mark.parametrize("point", [BEFORE_TASKS, IN_A_TASK, AFTER_TASKS])
def test_the_broker_is_killed_and_comes_back(server: Server, job: Job, point: str) -> None:
    wanted = feed(server, job.source, range(RECORDS))
    with started(replace(job, point=point, batch=1, action=HOLD)) as driver:
        driver.wait_until_held()
        server.restart()
        driver.go_on()
        assert driver.wait() == 0, driver.output()[-4000:]
    check_equal(server, job.out, wanted)


@whole_matrix
@pytest.mark.parametrize("point", [BEFORE_TASKS, IN_A_TASK, AFTER_TASKS, AFTER_COMMIT])
def test_a_driver_that_was_thought_dead_is_fenced(server: Server, job: Job, point: str) -> None:
    wanted = feed(server, job.source, range(RECORDS))
    with started(replace(job, point=point, batch=1, action=HOLD)) as zombie:
        zombie.wait_until_held()
        zombie.signal(signal.SIGSTOP)
        finished(job)
        zombie.go_on()
        zombie.signal(signal.SIGCONT)
        # Fenced by the brokers, or stopped by Spark, which finds the batch of another driver in its checkpoint.
        assert zombie.wait() == 1, zombie.output()[-4000:]
        if point != AFTER_COMMIT:
            assert "another driver uses transactional id" in zombie.output(), zombie.output()[-4000:]
    check_equal(server, job.out, wanted)


@whole_matrix
def test_a_mirror_that_was_thought_dead_is_fenced(here: Server, server: Server, mirror: Job) -> None:
    mirrored = range(RECORDS)
    feed_records(here, mirror.source, mirrored)
    commit_readers(here, mirror, 500)
    with started(replace(mirror, point=AFTER_TASKS, batch=1, action=HOLD)) as zombie:
        zombie.wait_until_held()
        zombie.signal(signal.SIGSTOP)
        finished(mirror)
        zombie.go_on()
        zombie.signal(signal.SIGCONT)
        assert zombie.wait() == 1, zombie.output()[-4000:]
        assert "another driver uses transactional id" in zombie.output(), zombie.output()[-4000:]
    check_mirrored(here, server, mirror, mirrored, readers=500)


@whole_matrix
@pytest.mark.parametrize("point", [IN_A_TASK, AFTER_TASKS])
def test_a_transaction_takes_too_long(server: Server, job: Job, point: str) -> None:
    wanted = feed(server, job.source, range(RECORDS))
    slow = replace(job, point=point, batch=1, action=SLEEP, sleep_s=8, transaction_timeout_ms=4_000)
    refused(slow, "transaction.timeout.ms", "start the query again")
    finished(job)
    check_equal(server, job.out, wanted)


@whole_matrix
def test_the_checkpoint_is_deleted(server: Server, job: Job) -> None:
    wanted = feed(server, job.source, range(RECORDS))
    killed(replace(job, point=AFTER_COMMIT, batch=1))
    shutil.rmtree(job.checkpoint)
    refused(job, "the checkpoint was deleted", "barnabas pipeline reset")
    shutil.rmtree(job.checkpoint)
    offsets = starting_offsets({"bootstrap.servers": server.bootstrap}, job.name)
    finished(replace(job, starting=offsets, take_over=True))
    check_equal(server, job.out, wanted)


@whole_matrix
def test_partitions_are_added(server: Server, job: Job) -> None:
    wanted = feed(server, job.source, range(RECORDS))
    killed(replace(job, point=AFTER_TASKS, batch=1))
    with Admin(bootstrap_servers=server.bootstrap) as admin:
        admin.create_partitions({job.source: 3, job.out: 5})
    wanted += feed(server, job.source, range(RECORDS, RECORDS + 500), partition=2)
    finished(job)
    check_equal(server, job.out, wanted)


@whole_matrix
def test_the_source_is_made_anew(server: Server, job: Job) -> None:
    wanted = feed(server, job.source, range(1_000))
    finished(job)
    with Admin(bootstrap_servers=server.bootstrap) as admin:
        admin.delete_topics([job.source])
    create(server, **{job.source: 2})
    wanted += feed(server, job.source, range(1_000, 4_000))
    refused(job)
    shutil.rmtree(job.checkpoint)
    reset({"bootstrap.servers": server.bootstrap}, transactional_id=job.name, group=job.name)
    finished(job)
    check_equal(server, job.out, wanted)


@whole_matrix
def test_the_topic_that_is_written_is_made_anew(server: Server, job: Job) -> None:
    feed(server, job.source, range(1_000))
    finished(job)
    with Admin(bootstrap_servers=server.bootstrap) as admin:
        admin.delete_topics([job.out])
    create(server, **{job.out: 3})
    wanted = feed(server, job.source, range(1_000, 2_000))
    killed(replace(job, point=AFTER_COMMIT, batch=3))
    finished(job)
    check_equal(server, job.out, wanted)


@whole_matrix
def test_the_driver_is_killed_and_the_sink_is_a_database(server: Server, job: Job, postgres: str) -> None:
    points = random.Random(SEED).sample(DATABASE_POINTS, len(DATABASE_POINTS))
    wanted = feed(server, job.source, range(400 * (len(points) + 1)))
    to_table = replace(job, url=postgres)
    for batch, point in enumerate(points):
        killed(replace(to_table, point=point, batch=batch))
    finished(to_table)
    with connected(parse_url(postgres)) as connection:
        rows = rows_of(connection, f"SELECT value FROM {job.name.replace('-', '_')}")
    assert sorted(value for (value,) in rows) == sorted(wanted)
