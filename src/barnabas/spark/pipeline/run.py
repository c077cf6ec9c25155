"""Runs a pipeline: starts its queries, monitors them, and stops them between batches.

Most pipelines are one query; `flows.py` says which queries a pipeline with several sinks has. If the one sink is a
topic, dead letters are rows of the same query, so that they are in the same transaction. Otherwise they are a separate
query, with its own checkpoint and group.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas.client.admin.admin import Admin
from barnabas.errors import InvalidConfig, KafkaError
from barnabas.model import TopicPartition
from barnabas.spark.failures import told
from barnabas.spark.pipeline.checkpoint import DEAD_LETTERS, SINK_LOG, is_fresh
from barnabas.spark.pipeline.fan_out import FanOut, require_known_sinks
from barnabas.spark.pipeline.flows import FLOW_FOLDERS, Flow, flows_of, letters_name
from barnabas.spark.pipeline.frames import FlowFrame, FrameBuilder, Frames, with_letters
from barnabas.spark.pipeline.group import CLIENT_ID, end_offsets, starting_offsets
from barnabas.spark.pipeline.model import AVAILABLE_NOW, FileSink, Pipeline, TopicSink, TopicSource
from barnabas.spark.pipeline.progress import BatchReport, end_offsets_of, lag_of, report_of
from barnabas.spark.pipeline.rules import has_state
from barnabas.spark.pipeline.sinks import BatchSink, commits_source_offsets, open_sink, topic_sink
from barnabas.spark.pipeline.tables import duration_ms
from barnabas.spark.session import query_id_of
from barnabas.spark.storage import exists
from barnabas.spark.topics.offsets import Offsets, admin_settings, commit_progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

POLL_S: Final = 0.2
STOP_TIMEOUT_S: Final = 120.0
# Lag and the group's progress are not essential: nothing waits for them if brokers do not answer.
ASIDE_SETTINGS: Final = {"default.api.timeout.ms": "5000", "request.timeout.ms": "5000"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A query to start. Its sink writes batches, unless it is a sink of files, which Spark's own writes."""

    name: str
    frame: DataFrame
    sink: BatchSink | FileSink
    checkpoint: str
    output_mode: str
    groups: tuple[str, ...]
    """The groups that its progress is committed to, besides those of transactions."""
    scans: int = 1
    flow: Flow | None = None
    """Which sinks it writes to; None for dead letters."""


@dataclass(slots=True)
class _Running:
    planned: Planned
    query: StreamingQuery
    last_batch_id: int = -1
    last_timestamp: str = ""


class PipelineRun:
    """The queries of a pipeline in a session."""

    fan_out_class: type[FanOut] = FanOut

    def __init__(
        self, spark: SparkSession, pipeline: Pipeline, folder: Path, *, available_now: bool = False
    ) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._folder = folder
        self._available_now = available_now or pipeline.trigger == AVAILABLE_NOW
        self._running: list[_Running] = []
        self._lag = LagMeter(pipeline)

    def frames(self) -> Frames:
        """The DataFrames; errors in them have been reported already."""
        made: list[Frames] = []
        starts: list[dict[str, str]] = []
        chosen: list[FlowFrame] = []
        for index, flow in enumerate(flows_of(self._pipeline)):
            fresh = is_fresh(flow.checkpoint)
            starting = (
                starting_offsets(self._pipeline, [each.group for each in flow.outputs]) if fresh else {}
            )
            # A query with a history does not look at the start: all that have one, and most that have none, share.
            if not made or (fresh and starting not in starts):
                starts.append(starting)
                made.append(FrameBuilder(self._spark, self._pipeline, self._folder, starting).build())
            chosen.append(made[starts.index(starting) if fresh else 0].flows[index])
        return replace(made[0], flows=tuple(chosen))

    def planned(self, frames: Frames) -> list[Planned]:
        pipeline = self._pipeline
        letters = frames.letters
        united = (
            letters is not None
            and isinstance(pipeline.sink, TopicSink)
            and pipeline.output_mode != "complete"
        )
        planned = [self._planned_flow(each, letters if united else None) for each in frames.flows]
        if letters is not None and not united:
            planned.append(self._planned_letters(letters))
        return planned

    def _planned_flow(self, made: FlowFrame, letters: DataFrame | None) -> Planned:
        """The query of some sinks; letters go to the same topic's transaction."""
        pipeline, flow, frame = self._pipeline, made.flow, made.frame
        first = flow.outputs[0].sink
        if letters is not None:
            assert isinstance(first, TopicSink)
            frame = with_letters(frame, letters, first.topic)
        take_over = self._takes_over(flow)
        sink: BatchSink | FileSink
        if isinstance(first, FileSink):
            sink = first
        elif pipeline.sink is not None:
            sink = open_sink(pipeline, flow.outputs[0], flow.checkpoint, take_over=take_over)
        else:
            sink = self.fan_out_class(
                [
                    (output, open_sink(pipeline, output, flow.checkpoint, take_over=take_over))
                    for output in flow.outputs
                ]
            )
        return Planned(
            name=flow.name,
            frame=frame,
            sink=sink,
            checkpoint=flow.checkpoint,
            output_mode=pipeline.output_mode if pipeline.sink or has_state(frame) else "append",
            groups=tuple(
                output.group for output in flow.outputs if not commits_source_offsets(pipeline, output.sink)
            ),
            scans=2 if letters is not None or made.is_read_twice else 1,
            flow=flow,
        )

    def _planned_letters(self, letters: DataFrame) -> Planned:
        pipeline = self._pipeline
        assert pipeline.dead_letters is not None
        name = letters_name(pipeline)
        checkpoint = f"{pipeline.checkpoint}/{DEAD_LETTERS}"
        topic = TopicSink(topic=pipeline.dead_letters.topic, kafka=pipeline.letters_kafka)
        return Planned(
            name=name,
            frame=letters,
            sink=topic_sink(pipeline, topic, group=name, checkpoint=checkpoint),
            checkpoint=checkpoint,
            output_mode="append",
            groups=(name,) if pipeline.guarantee == "at-least-once" else (),
        )

    def _takes_over(self, flow: Flow) -> bool:
        goes_on = any(each.starting == "committed" for each in self._pipeline.topic_sources.values())
        return goes_on and is_fresh(flow.checkpoint)

    def start(self) -> None:
        try:
            planned = self.planned(self.frames())
            for each in planned:
                if self._pipeline.is_streaming:
                    self._running.append(_Running(each, self._start(each)))
                else:
                    self._write_once(each)
        except KafkaError:
            self.stop()
            raise
        except Exception as error:
            self.stop()
            raise told(error) from error

    def _start(self, planned: Planned) -> StreamingQuery:
        writer = planned.frame.writeStream.queryName(planned.name)
        writer = writer.option("checkpointLocation", planned.checkpoint)
        if self._available_now:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{duration_ms(self._pipeline.trigger)} milliseconds")
        writer = writer.outputMode(planned.output_mode)
        sink = planned.sink
        if planned.flow is not None:
            self._require_own_checkpoint()
            if self._pipeline.sink is None:
                require_known_sinks(self._spark, planned.flow)
        if isinstance(sink, FileSink):
            assert planned.flow is not None
            self._require_own_folder(sink, planned.flow)
            writer = writer.format(sink.file_format)
            if sink.partition_by:
                writer = writer.partitionBy(*sink.partition_by)
            return writer.options(**sink.options).start(sink.path)
        return _to_sink(writer, sink).start()

    def _require_own_checkpoint(self) -> None:
        """Rejects a checkpoint of the other kind: the queries would start from the beginning and write all again."""
        checkpoint = self._pipeline.checkpoint
        was, folders = ("[sink]", ("offsets",)) if self._pipeline.sinks else ("[sinks]", FLOW_FOLDERS)
        if any(exists(self._spark, f"{checkpoint}/{folder}") for folder in folders):
            raise InvalidConfig(
                f"checkpoint: {checkpoint} is from a time when the pipeline had {was}, and its progress does not"
                " count for these sinks: start from the beginning with barnabas pipeline reset, or choose another"
                " checkpoint"
            )

    def _require_own_folder(self, sink: FileSink, flow: Flow) -> None:
        """Rejects a new query on a folder with a history: Spark would silently omit its first batches."""
        checkpoint = flow.checkpoint
        if exists(self._spark, f"{sink.path}/{SINK_LOG}") and not exists(
            self._spark, f"{checkpoint}/offsets"
        ):
            raise InvalidConfig(
                f"{flow.outputs[0].key}.path: {sink.path} has batches of another query, and Spark would leave out those"
                f" of this one, whose checkpoint {checkpoint} is new: choose another folder, or remove {SINK_LOG} there"
                " (barnabas pipeline reset does)"
            )

    def _write_once(self, planned: Planned) -> None:
        """A pipeline with tables only: there is one batch, and no stream that could continue."""
        sink = planned.sink
        if not isinstance(sink, FileSink):
            sink.write_batch(planned.frame, 0, str(uuid.uuid4()))
            return
        writer = planned.frame.write.mode("append").format(sink.file_format).options(**sink.options)
        if sink.partition_by:
            writer = writer.partitionBy(*sink.partition_by)
        writer.save(sink.path)

    @property
    def is_active(self) -> bool:
        """Runs until one query has ended or failed; then the others must not continue."""
        active = [each.query.isActive for each in self._running]
        return any(active) if self._available_now and not self._failed() else bool(active) and all(active)

    def _failed(self) -> bool:
        return any(not each.query.isActive and each.query.exception() is not None for each in self._running)

    def reports(self) -> list[BatchReport]:
        """The batches that have been done since the last call; their progress is committed to the group."""
        found = []
        for each in self._running:
            progresses = list(_new_progress(each))
            if not progresses:
                continue
            each.last_batch_id = int(progresses[-1]["batchId"])
            offsets = end_offsets_of(progresses[-1])
            for group in each.planned.groups:
                self._commit(group, offsets)
            lag = self._lag.lag(offsets)
            found += [
                report_of(
                    progress,
                    pipeline=self._pipeline.name,
                    query=each.planned.name,
                    scans=each.planned.scans,
                    lag=lag,
                )
                for progress in progresses
            ]
        return found

    def _commit(self, group: str, offsets: Offsets) -> None:
        for source in self._pipeline.topic_sources.values():
            theirs = {
                each: offset
                for each, offset in offsets.items()
                if not source.as_table and _reads(source, each)
            }
            # The checkpoint has the progress: if the group cannot be updated now, the next batch updates it.
            with suppress(KafkaError):
                commit_progress({**source.kafka, **ASIDE_SETTINGS}, group, theirs)

    def error(self) -> KafkaError | None:
        """The error of a failed query."""
        for each in self._running:
            failure = None if each.query.isActive else each.query.exception()
            if failure is not None:
                return told(failure)
        return None

    def finish_batches(
        self, timeout_s: float = STOP_TIMEOUT_S, is_urgent: Callable[[], bool] = lambda: False
    ) -> None:
        """Waits until no batch is under way, or those that were have been done, or there is no time for that."""
        deadline_s = time.monotonic() + timeout_s
        waiting = {id(each): _batch_of(each.query) for each in self._running}
        while time.monotonic() < deadline_s and not is_urgent():
            under_way = [
                each
                for each in self._running
                if each.query.isActive
                and each.query.status["isTriggerActive"]
                and _batch_of(each.query) == waiting[id(each)]
            ]
            if not under_way:
                return
            time.sleep(POLL_S / 4)

    def stop(self) -> None:
        """Ends the queries, in the middle of a batch if there is one: the next run repeats it."""
        for each in self._running:
            if each.query.isActive:
                each.query.stop()
            close = getattr(each.planned.sink, "close", None)
            if close is not None:
                close()
        self._lag.close()


def _to_sink(writer: DataStreamWriter, sink: BatchSink) -> DataStreamWriter:
    def write(frame: DataFrame, batch_id: int) -> None:
        sink.write_batch(frame, batch_id, query_id_of(frame))

    return writer.foreachBatch(write)


def _batch_of(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(_as_dict(progress)["batchId"])


def _new_progress(running: _Running) -> Iterator[dict[str, Any]]:
    last = running.query.lastProgress
    if last is None or (timestamp := str(_as_dict(last)["timestamp"])) == running.last_timestamp:
        return
    running.last_timestamp = timestamp
    for progress in running.query.recentProgress:
        found = _as_dict(progress)
        # Spark also reports triggers without data, with the number of the next batch.
        if int(found["batchId"]) > running.last_batch_id and "addBatch" in found.get("durationMs", {}):
            yield found


def _as_dict(progress: Any) -> dict[str, Any]:
    return progress if isinstance(progress, dict) else dict(progress.asDict())


def _reads(source: TopicSource, partition: TopicPartition) -> bool:
    return source.pattern is not None or partition.topic in source.topics


class LagMeter:
    """Asks the clusters how far their topics go."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._sources = [each for each in pipeline.topic_sources.values() if not each.as_table]
        self._admins: dict[int, Admin] = {}

    def lag(self, offsets: Offsets) -> int | None:
        """None if no topic is read, or the cluster does not answer."""
        if not self._sources or not offsets:
            return None
        ends: Offsets = {}
        for index, source in enumerate(self._sources):
            theirs = [each for each in offsets if _reads(source, each)]
            try:
                if index not in self._admins:
                    settings = admin_settings({**source.kafka, **ASIDE_SETTINGS})
                    self._admins[index] = Admin({"client.id": CLIENT_ID, **settings})
                ends |= end_offsets(self._admins[index], theirs, source)
            except KafkaError:
                return None
        return lag_of(offsets, ends)

    def close(self) -> None:
        for admin in self._admins.values():
            admin.close()
        self._admins.clear()
