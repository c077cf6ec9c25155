"""What others see of a pipeline: the file that a run writes, and what is made of it. Needs no Spark."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

from barnabas.spark.pipeline import journal as journals
from barnabas.spark.pipeline.journal import BATCHES_MAX, FILE_NAME, Journal, read_journal
from barnabas.spark.pipeline.listing import listed, pipeline_files
from barnabas.spark.pipeline.progress import BatchReport
from barnabas.spark.pipeline.watch import WatchedPipelines
from barnabas.testing import Broker

FILE = """
name = "revenue"
checkpoint = "{folder}/checkpoint"
kafka = {{ "bootstrap.servers" = "{bootstrap}" }}

[sources.orders]
type = "topic"
topics = "orders"
format = {{ kind = "json", schema = "id BIGINT, cents BIGINT" }}

[sources.products]
type = "database"
url = "postgresql://ann:secret@db/shop"
table = "products"
as_table = true

[[transforms]]
name = "joined"
sql = "SELECT * FROM orders JOIN products USING (id)"

[[transforms]]
name = "sums"
sql = "SELECT sum(cents) AS value FROM joined"

[sink]
type = "topic"
topic = "revenue"

[dead_letters]
topic = "orders-bad"
"""


def report(batch_id: int) -> BatchReport:
    return BatchReport(
        pipeline="revenue",
        query="revenue",
        batch_id=batch_id,
        timestamp="2026-01-31T12:00:00.000Z",
        rows=10,
        batch_ms=500,
        rows_per_second=20.0,
        lag=3,
        state_rows=7,
        watermark=None,
    )


def test_a_journal_is_bounded_and_keeps_the_error(tmp_path: Path) -> None:
    folder = str(tmp_path / "new" / "checkpoint")
    with Journal(folder) as journal:
        found = read_journal(folder)
        assert found is not None
        assert found["state"] == "running"
        for number in range(2 * BATCHES_MAX):
            journal.note(report(number))
        journal.__exit__(None, RuntimeError("no more disk" * 10_000), None)
        failed = read_journal(folder)
    found = read_journal(folder)
    assert failed is not None
    assert found is not None
    assert (failed["state"], found["state"]) == ("failed", "stopped")
    assert failed["error"].startswith("no more disk")
    assert len(failed["error"]) == journals.ERROR_CHARACTERS_MAX
    assert [each["batch_id"] for each in found["queries"]["revenue"]] == [
        *range(BATCHES_MAX, 2 * BATCHES_MAX)
    ]
    assert os.listdir(folder) == [FILE_NAME]


def test_a_journal_that_cannot_be_written_or_read(tmp_path: Path) -> None:
    with Journal("s3://bucket/checkpoint") as journal:
        journal.note(report(1))
    (tmp_path / "file").write_text("not a folder")
    with Journal(str(tmp_path / "file")) as journal:
        journal.note(report(1))
    assert read_journal("s3://bucket/checkpoint") is None
    for content in ("", "{", "[]", "{}", '{"queries": 7}'):
        (tmp_path / FILE_NAME).write_text(content)
        assert read_journal(str(tmp_path)) is None


def test_the_state_of_pipelines(tmp_path: Path) -> None:
    with Broker(topics={"orders": 2, "revenue": 1, "orders-bad": 1}) as broker:
        file = tmp_path / "revenue.toml"
        file.write_text(FILE.format(folder=tmp_path, bootstrap=broker.bootstrap))
        (tmp_path / "broken.toml").write_text("name = 7\n[sources]")
        watched = WatchedPipelines([tmp_path])
        broken, before = watched.list()
        assert (broken["name"], broken["state"]) == ("broken", "invalid")
        assert "name" in broken["error"]
        assert before["state"] == "unknown"

        with Journal(str(tmp_path / "checkpoint")) as journal:
            journal.note(report(4))
            row = watched.list()[1]
            assert (row["state"], row["batch_id"], row["rows_per_second"], row["lag"]) == (
                "running",
                4,
                20.0,
                3,
            )
        found = watched.show("revenue")
        assert found is not None
        assert found["state"] == "stopped"
        assert found["letters_topic"] == "orders-bad"
        assert found["problem"] is None
        assert {(each["topic"], each["partition"]) for each in found["partitions"]} == {
            ("orders", 0),
            ("orders", 1),
        }
        edges = {(each["from"], each["to"]) for each in found["graph"]["edges"]}
        assert edges == {
            ("orders", "joined"),
            ("products", "joined"),
            ("joined", "sums"),
            ("sums", "sink"),
            ("orders", "dead letters"),
        }
        assert "secret" not in json.dumps(found)
        assert watched.show("nothing") is None
    gone = watched.show("revenue")
    assert gone is not None
    assert gone["problem"]


def test_several_sinks(tmp_path: Path) -> None:
    """Each sink is a node, and the query that is the furthest behind counts."""
    sink, letters = '[sink]\ntype = "topic"\ntopic = "revenue"\n', "[dead_letters]"
    several = """
        [sinks.sums]
        type = "topic"
        topic = "revenue"
        [sinks.joined]
        type = "delta"
        path = "lake"
        from = "joined"
    """
    file = tmp_path / "revenue.toml"
    text = FILE.format(folder=tmp_path, bootstrap="127.0.0.1:1")
    assert sink in text
    file.write_text(text.replace(sink, several).replace(letters, f"\n{letters}"))
    journal = Journal(str(tmp_path / "checkpoint"))
    for query, lag in (("revenue.sums", 3), ("revenue.joined", 7), ("revenue.dead-letters", 9)):
        journal.note(replace(report(4), query=query, lag=lag))
    found = WatchedPipelines([tmp_path]).show("revenue")
    assert found is not None
    assert (found["query"], found["lag"]) == ("revenue.joined", 7)
    assert found["groups"] == ["revenue.sums", "revenue.joined"]
    sinks = {
        each["name"]: (each["text"], each["topics"])
        for each in found["graph"]["nodes"]
        if each["kind"] == "sink"
    }
    assert sinks == {
        "sink sums": ("topic revenue", ["revenue"]),
        "sink joined": (f"delta {tmp_path / 'lake'} (append)", []),
    }
    edges = {(each["from"], each["to"]) for each in found["graph"]["edges"]}
    assert {("sums", "sink sums"), ("joined", "sink joined"), ("orders", "dead letters")} <= edges
    (listed_row,) = listed([tmp_path])
    assert listed_row.writes == f"topic revenue, delta {tmp_path / 'lake'} (append)"
    assert listed_row.state == "has not run yet"


def test_other_files_of_a_folder_are_no_pipelines(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "other"')
    (tmp_path / "folder.toml").mkdir()
    assert WatchedPipelines([tmp_path]).list() == []
    assert pipeline_files([tmp_path]) == []


def test_a_pipeline_that_was_killed_does_not_count_as_running(tmp_path: Path) -> None:
    file = tmp_path / "revenue.toml"
    file.write_text(FILE.format(folder=tmp_path, bootstrap="127.0.0.1:1"))
    journal = Journal(str(tmp_path / "checkpoint"))
    journal.note(report(1))
    path = tmp_path / "checkpoint" / FILE_NAME
    content = json.loads(path.read_text())
    assert WatchedPipelines([file]).list()[0]["state"] == "running"
    path.write_text(json.dumps({**content, "updated_ms": content["updated_ms"] - 3_600_000}))
    row = WatchedPipelines([file]).list()[0]
    assert row["state"] == "failed"
    assert "killed" in row["error"]
