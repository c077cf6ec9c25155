"""The progress of a running query, as Spark reports it, in a few metrics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from barnabas.errors import InvalidConfig
from barnabas.metrics.registry import Registry
from barnabas.model import TopicPartition
from barnabas.spark.topics.offsets import Offsets, parse


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """A batch that is done."""

    pipeline: str
    query: str
    batch_id: int
    timestamp: str
    rows: int
    batch_ms: int
    rows_per_second: float
    lag: int | None
    """Records that topics have and the pipeline has not read, after this batch; None if no source is a topic."""
    state_rows: int
    watermark: str | None
    state_bytes: int = 0
    """What the state of stateful steps takes in memory, as Spark reports it."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def end_offsets_of(progress: Mapping[str, Any]) -> Offsets:
    """Where the batch ends in topics; sources of other kinds have offsets of other kinds."""
    found: Offsets = {}
    for source in progress.get("sources", ()):
        offsets = source.get("endOffset")
        try:
            form = json.loads(offsets) if isinstance(offsets, str) else offsets
            if isinstance(form, dict):
                found |= parse(form)
        except (ValueError, InvalidConfig):
            continue
    return found


def lag_of(offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    return sum(max(0, end - offsets[partition]) for partition, end in ends.items() if partition in offsets)


def report_of(
    progress: Mapping[str, Any], *, pipeline: str, query: str, scans: int, lag: int | None
) -> BatchReport:
    """`scans` is how often each row is read in a batch: twice if good and bad rows go separate ways."""
    rows = max(0, int(progress.get("numInputRows") or 0)) // scans
    batch_ms = int(progress.get("batchDuration") or 0)
    watermark = (progress.get("eventTime") or {}).get("watermark")
    return BatchReport(
        pipeline=pipeline,
        query=query,
        batch_id=int(progress["batchId"]),
        timestamp=str(progress["timestamp"]),
        rows=rows,
        batch_ms=batch_ms,
        rows_per_second=round(rows * 1000 / batch_ms, 1) if batch_ms else 0.0,
        lag=lag,
        state_rows=sum(int(each.get("numRowsTotal") or 0) for each in progress.get("stateOperators", ())),
        state_bytes=sum(int(each.get("memoryUsedBytes") or 0) for each in progress.get("stateOperators", ())),
        watermark=watermark if watermark and not watermark.startswith("1970-01-01T00:00:00.000") else None,
    )


class PipelineMetrics:
    """The metrics for Prometheus."""

    def __init__(self) -> None:
        self.registry = Registry()
        labels = ("pipeline", "query")
        self._batches = self.registry.counter(
            "barnabas_pipeline_batches_total", "Batches that are done.", *labels
        )
        self._rows = self.registry.counter("barnabas_pipeline_rows_total", "Rows that were read.", *labels)
        self._duration = self.registry.histogram(
            "barnabas_pipeline_batch_duration_seconds", "How long a batch took.", *labels
        )
        self._last: dict[tuple[str, str], BatchReport] = {}
        self.registry.gauge(
            "barnabas_pipeline_lag_records", "Records of topics that are still to be read.", self._lags
        )
        self.registry.gauge(
            "barnabas_pipeline_state_rows", "Rows that stateful steps keep.", self._state_rows
        )

    def note(self, report: BatchReport) -> None:
        labels = (report.pipeline, report.query)
        self._batches.labels(*labels).value += 1
        self._rows.labels(*labels).value += report.rows
        self._duration.labels(*labels).observe(report.batch_ms / 1000)
        self._last[labels] = report

    def _lags(self) -> list[tuple[dict[str, str], float]]:
        return [
            ({"pipeline": pipeline, "query": query}, report.lag)
            for (pipeline, query), report in self._last.items()
            if report.lag is not None
        ]

    def _state_rows(self) -> list[tuple[dict[str, str], float]]:
        return [
            ({"pipeline": pipeline, "query": query}, report.state_rows)
            for (pipeline, query), report in self._last.items()
        ]
