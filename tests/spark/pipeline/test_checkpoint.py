"""Checkpoints as Spark 4.2 writes them, and the metrics of its progress."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from barnabas.errors import CorruptMessage, InvalidConfig
from barnabas.model import TopicPartition
from barnabas.spark.pipeline.checkpoint import (
    is_fresh,
    local_path,
    read_checkpoint,
    remove_checkpoint,
)
from barnabas.spark.pipeline.progress import PipelineMetrics, end_offsets_of, lag_of, report_of

HEAD = '{"batchWatermarkMs":1794783380000,"batchTimestampMs":1794783390970,"conf":{"a":"b"}}'


def write_checkpoint(folder: Path, *, planned: int, committed: int, offsets: list[str]) -> None:
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"a0a38f93"}')
    for number in range(planned + 1):
        (folder / "offsets" / str(number)).write_text("\n".join(["v1", HEAD, *offsets]))
        (folder / "offsets" / f".{number}.crc").write_bytes(b"crc")
    for number in range(committed + 1):
        (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_a_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    assert read_checkpoint(str(folder)) is None
    assert is_fresh(str(folder))
    write_checkpoint(folder, planned=11, committed=10, offsets=['{"orders":{"0":23}}', "-"])
    found = read_checkpoint(folder.as_uri())
    assert found is not None
    assert (found.query_id, found.planned_batch_id, found.committed_batch_id) == ("a0a38f93", 11, 10)
    assert (found.planned_at_ms, found.watermark_ms) == (1794783390970, 1794783380000)
    assert found.offsets == ({"orders": {"0": 23}}, None)
    assert not is_fresh(str(folder))
    remove_checkpoint(str(folder))
    remove_checkpoint(str(folder))
    assert is_fresh(str(folder))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("metadata", "nope"),
        ("metadata", "[]"),
        ("offsets/0", ""),
        ("offsets/0", "v9\n{}"),
        ("offsets/0", "v1\n"),
        ("offsets/0", "v1\n[]"),
        ("offsets/0", "v1\n{}\n{nope"),
    ],
)
def test_broken_files_are_named(tmp_path: Path, name: str, text: str) -> None:
    write_checkpoint(tmp_path / "here", planned=0, committed=0, offsets=[])
    (tmp_path / "here" / name).write_text(text)
    with pytest.raises(CorruptMessage, match=name):
        read_checkpoint(str(tmp_path / "here"))


def test_other_machines_are_not_looked_into() -> None:
    assert local_path("file:///a%20b") == Path("/a b")
    with pytest.raises(InvalidConfig, match="hdfs://host/x is not on this machine"):
        local_path("hdfs://host/x")
    assert not is_fresh("hdfs://host/x")


def progress(**changes: Any) -> dict[str, Any]:
    return {
        "batchId": 3,
        "timestamp": "2026-11-15T22:56:40.668Z",
        "batchDuration": 2000,
        "numInputRows": 500,
        "eventTime": {"watermark": "2026-11-15T22:00:00.000Z"},
        "stateOperators": [{"numRowsTotal": 7, "memoryUsedBytes": 3_000}, {"numRowsTotal": 5}],
        "sources": [
            {"endOffset": json.dumps({"orders": {"0": 10, "1": 20}})},
            {"endOffset": json.dumps({"logOffset": 2})},
            {"endOffset": "7"},
            {"endOffset": None},
        ],
        **changes,
    }


def test_reports() -> None:
    offsets = end_offsets_of(progress())
    assert offsets == {TopicPartition("orders", 0): 10, TopicPartition("orders", 1): 20}
    lag = lag_of(offsets, {TopicPartition("orders", 0): 15, TopicPartition("orders", 1): 19})
    assert lag == 5
    report = report_of(progress(), pipeline="p", query="q", scans=2, lag=lag)
    assert (report.rows, report.rows_per_second, report.state_rows) == (250, 125.0, 12)
    assert report.state_bytes == 3_000
    assert report.watermark == "2026-11-15T22:00:00.000Z"
    bare = report_of(
        {"batchId": 0, "timestamp": "x", "eventTime": {"watermark": "1970-01-01T00:00:00.000Z"}},
        pipeline="p",
        query="q",
        scans=1,
        lag=None,
    )
    assert (bare.rows, bare.rows_per_second, bare.watermark) == (0, 0.0, None)

    metrics = PipelineMetrics()
    metrics.note(report)
    metrics.note(report_of(progress(batchId=4), pipeline="p", query="q", scans=1, lag=None))
    rendered = metrics.registry.render()
    assert 'barnabas_pipeline_batches_total{pipeline="p",query="q"} 2\n' in rendered
    assert 'barnabas_pipeline_rows_total{pipeline="p",query="q"} 750\n' in rendered
    assert 'barnabas_pipeline_state_rows{pipeline="p",query="q"} 12\n' in rendered
    assert "barnabas_pipeline_lag_records{" not in rendered
    assert 'barnabas_pipeline_batch_duration_seconds_count{pipeline="p",query="q"} 2\n' in rendered
