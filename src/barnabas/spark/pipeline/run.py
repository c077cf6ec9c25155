"""Runs a pipeline: starts its queries, monitors them, and stops them between batches.

Most pipelines are one query. If the sink is a topic, dead letters are rows of the same query, so that they are in the
same transaction. With any other sink they are a separate query, with its own checkpoint and group.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas.client.admin.admin import Admin
from barnabas.errors import InvalidConfig, KafkaError
from barnabas.model import TopicPartition
from barnabas.spark.failures import told
from barnabas.spark.pipeline.checkpoint import DEAD_LETTERS, SINK_LOG, is_fresh
from barnabas.spark.pipeline.frames import FrameBuilder, Frames, with_letters
from barnabas.spark.pipeline.group import CLIENT_ID, end_offsets, starting_offsets
from barnabas.spark.pipeline.model import AVAILABLE_NOW, FileSink, Pipeline, TopicSink, TopicSource
from barnabas.spark.pipeline.progress import BatchReport, end_offsets_of, lag_of, report_of
from barnabas.spark.pipeline.sinks import BatchSink, commits_source_offsets, open_sink, topic_sink
from barnabas.spark.pipeline.tables import duration_ms
from barnabas.spark.session import query_id_of
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
    """A query to start. `sink` is None where Spark's own writes files."""

    name: str
    frame: DataFrame
    sink: BatchSink | None
    checkpoint: str
    commits_progress: bool
    scans: int = 1


@dataclass(slots=True)
class _Running:
    planned: Planned
    query: StreamingQuery
    last_batch_id: int = -1
    last_timestamp: str = ""


class PipelineRun:
    """The queries of a pipeline in a session."""

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
        assert self._pipeline.checkpoint is not None
        starting = starting_offsets(self._pipeline) if is_fresh(self._pipeline.checkpoint) else {}
        return FrameBuilder(self._spark, self._pipeline, self._folder, starting).build()

    def planned(self, frames: Frames) -> list[Planned]:
        pipeline = self._pipeline
        assert pipeline.checkpoint is not None
        frame = frames.result
        letters = frames.letters
        united = (
            letters is not None
            and isinstance(pipeline.sink, TopicSink)
            and pipeline.output_mode != "complete"
        )
        if letters is not None and united:
            assert isinstance(pipeline.sink, TopicSink)
            frame = with_letters(frame, letters, pipeline.sink.topic)
        is_files = isinstance(pipeline.sink, FileSink)
        planned = [
            Planned(
                name=pipeline.name,
                frame=frame,
                sink=None
                if is_files
                else open_sink(pipeline, pipeline.checkpoint, take_over=self._takes_over()),
                checkpoint=pipeline.checkpoint,
                commits_progress=not commits_source_offsets(pipeline),
                scans=2 if united or frames.is_read_twice else 1,
            )
        ]
        if letters is not None and not united:
            assert pipeline.dead_letters is not None
            name = f"{pipeline.name}.{DEAD_LETTERS}"
            checkpoint = f"{pipeline.checkpoint}/{DEAD_LETTERS}"
            planned.append(
                Planned(
                    name=name,
                    frame=letters,
                    sink=topic_sink(
                        pipeline,
                        TopicSink(topic=pipeline.dead_letters.topic, kafka=pipeline.letters_kafka),
                        group=name,
                        checkpoint=checkpoint,
                    ),
                    checkpoint=checkpoint,
                    commits_progress=pipeline.guarantee == "at-least-once",
                )
            )
        return planned

    def _takes_over(self) -> bool:
        assert self._pipeline.checkpoint is not None
        goes_on = any(each.starting == "committed" for each in self._pipeline.topic_sources.values())
        return goes_on and is_fresh(self._pipeline.checkpoint)

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
        sink = self._pipeline.sink
        if planned.sink is None:
            assert isinstance(sink, FileSink)
            self._require_own_folder(sink, planned.checkpoint)
            writer = writer.outputMode(self._pipeline.output_mode).format(sink.file_format)
            if sink.partition_by:
                writer = writer.partitionBy(*sink.partition_by)
            return writer.options(**sink.options).start(sink.path)
        is_main = planned.name == self._pipeline.name
        return (
            _to_sink(writer, planned.sink)
            .outputMode(self._pipeline.output_mode if is_main else "append")
            .start()
        )

    def _require_own_folder(self, sink: FileSink, checkpoint: str) -> None:
        """Rejects a new query on a folder with a history: Spark would silently omit its first batches."""
        if _exists(self._spark, f"{sink.path}/{SINK_LOG}") and not _exists(
            self._spark, f"{checkpoint}/offsets"
        ):
            raise InvalidConfig(
                f"sink.path: {sink.path} has batches of another query, and Spark would leave out those of this one,"
                f" whose checkpoint {checkpoint} is new: choose another folder, or remove {SINK_LOG} there (barnabas"
                " pipeline reset does)"
            )

    def _write_once(self, planned: Planned) -> None:
        """A pipeline with tables only: there is one batch, and no stream that could continue."""
        sink = self._pipeline.sink
        if planned.sink is not None:
            planned.sink.write_batch(planned.frame, 0, str(uuid.uuid4()))
            return
        assert isinstance(sink, FileSink)
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
            if each.planned.commits_progress:
                self._commit(each.planned.name, offsets)
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


def _exists(spark: SparkSession, location: str) -> bool:
    """Whether such a file or folder exists, in any file system of Spark."""
    jvm: Any = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(location)
    return bool(path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()).exists(path))


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
