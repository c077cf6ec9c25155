"""One batch to several sinks. Spark reads and computes it once, and keeps its rows until the last sink has them.

A query notes its sinks in its checkpoint:

    barnabas-sinks.json    {"sinks": ["lake", "alerts"]}

A sink that joins a query later would silently lack the batches before, so such a query does not start.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from barnabas.errors import InvalidConfig
from barnabas.spark.pipeline.flows import Flow, Output
from barnabas.spark.pipeline.frames import output_rows
from barnabas.spark.pipeline.sinks import BatchSink
from barnabas.spark.storage import exists, read_text, write_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SINKS_FILE: Final = "barnabas-sinks.json"


class FanOut:
    """Writes each batch to all sinks, in their order; each of them knows by itself which batches it has."""

    def __init__(self, sinks: Sequence[tuple[Output, BatchSink]]) -> None:
        self._sinks = tuple(sinks)

    def write_batch(self, frame: DataFrame, batch_id: int, query_id: str) -> None:
        if len(self._sinks) == 1:
            self._write(*self._sinks[0], frame, batch_id, query_id)
            return
        frame.persist()
        try:
            for output, sink in self._sinks:
                self._write(output, sink, output_rows(frame, output), batch_id, query_id)
        finally:
            frame.unpersist()

    def _write(self, output: Output, sink: BatchSink, rows: DataFrame, batch_id: int, query_id: str) -> None:
        # Two sinks may write to one table: each counts its own batches.
        sink.write_batch(rows, batch_id, f"{query_id}.{output.key}")

    def close(self) -> None:
        for _, sink in self._sinks:
            close = getattr(sink, "close", None)
            if close is not None:
                close()


def require_known_sinks(spark: SparkSession, flow: Flow) -> None:
    """Rejects a sink that was not there when the query did its first batches; notes the sinks of a new query."""
    path = f"{flow.checkpoint}/{SINKS_FILE}"
    keys = [output.key for output in flow.outputs]
    text = read_text(spark, path)
    if text is not None and exists(spark, f"{flow.checkpoint}/offsets"):
        known: Any = json.loads(text)
        for key in keys:
            if key not in known["sinks"]:
                raise InvalidConfig(
                    f"{key}: query {flow.name} has done batches that this sink would lack: give the sink a step of its"
                    f" own to start from the beginning (from = a new step with SELECT * FROM {flow.rows}), or start"
                    " all sinks from the beginning with barnabas pipeline reset"
                )
    write_text(spark, path, json.dumps({"sinks": keys}))
