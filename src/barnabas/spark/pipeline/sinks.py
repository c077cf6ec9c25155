"""The sinks of a pipeline: an object that writes a batch, exactly once or at least once.

Spark's own sink writes files. It is exactly once by a log beside them, and needs no such object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from barnabas.spark.pipeline.flows import Output
from barnabas.spark.pipeline.model import (
    DatabaseSink,
    DeltaSink,
    FileSink,
    MirrorSink,
    Pipeline,
    Sink,
    TopicSink,
    TopicSource,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BOOTSTRAP: Final = "bootstrap.servers"


class BatchSink(Protocol):
    def write_batch(self, frame: DataFrame, batch_id: int, query_id: str) -> None: ...


def commits_source_offsets(pipeline: Pipeline, sink: Sink) -> bool:
    """Whether the sink's transactions commit the offsets of its group: they can in one cluster only."""
    if not isinstance(sink, TopicSink) or pipeline.guarantee != "exactly-once":
        return False
    read = {each.kafka[BOOTSTRAP] for each in pipeline.topic_sources.values() if not each.as_table}
    return read == {sink.kafka[BOOTSTRAP]}


def guarantee_of(pipeline: Pipeline, sink: Sink) -> str:
    """The guarantee of the sink, in a sentence."""
    if isinstance(sink, TopicSink | MirrorSink):
        if pipeline.guarantee == "exactly-once":
            return "exactly once: a transaction a batch, with the note that it is in"
        return "at least once: a batch that is repeated is written again"
    return _GUARANTEES[type(sink)]


_GUARANTEES: dict[type[Sink], str] = {
    FileSink: "exactly once for readers that follow Spark's log of the folder",
    DeltaSink: "exactly once: the batch's number is in the table's log",
    DatabaseSink: "exactly once: the batch's number is in the same transaction",
}


def open_sink(pipeline: Pipeline, output: Output, checkpoint: str, *, take_over: bool) -> BatchSink:
    """`take_over`: the query is new and continues from the offsets that another query has left in the group."""
    sink = output.sink
    if isinstance(sink, TopicSink):
        return topic_sink(
            pipeline,
            sink,
            group=output.group,
            checkpoint=checkpoint,
            commits_source_offsets=commits_source_offsets(pipeline, sink),
            take_over=take_over,
        )
    if isinstance(sink, DeltaSink):
        from barnabas.spark import delta

        return delta.DeltaSink(
            sink.path,
            mode=sink.mode,
            keys=sink.keys,
            partition_by=sink.partition_by,
            storage_options=sink.storage_options,
        )
    if isinstance(sink, DatabaseSink):
        from barnabas.spark import databases

        return databases.DatabaseSink(sink.url, sink.table, mode=sink.mode, keys=sink.keys)
    assert isinstance(sink, MirrorSink)
    return _mirror_sink(pipeline, sink, checkpoint, take_over=take_over)


def topic_sink(
    pipeline: Pipeline,
    sink: TopicSink,
    *,
    group: str,
    checkpoint: str,
    commits_source_offsets: bool = True,
    take_over: bool = False,
) -> BatchSink:
    """For rows of a topic, and for dead letters where the rows themselves go elsewhere."""
    if pipeline.guarantee == "at-least-once" or not pipeline.is_streaming:
        from barnabas.spark.topics.sink import TopicSink as AtLeastOnce

        return AtLeastOnce(sink.kafka, topic=sink.topic)
    from barnabas.spark.exactly_once.sink import TransactionalTopicSink

    return TransactionalTopicSink(
        sink.kafka,
        transactional_id=group,
        group=group,
        checkpoint=checkpoint,
        topic=sink.topic,
        transaction_timeout_ms=sink.transaction_timeout,
        commits_source_offsets=commits_source_offsets,
        take_over=take_over,
    )


def _mirror_sink(pipeline: Pipeline, sink: MirrorSink, checkpoint: str, *, take_over: bool) -> BatchSink:
    from barnabas.client.admin.results import BROKER_DEFAULT
    from barnabas.spark import mirror

    source = next(iter(pipeline.sources.values()))
    assert isinstance(source, TopicSource)
    return mirror.MirrorSink(
        source.kafka,
        sink.kafka,
        checkpoint=checkpoint,
        name=pipeline.name,
        rename=sink.rename,
        groups=sink.groups,
        exactly_once=pipeline.guarantee == "exactly-once",
        replication_factor=sink.replication_factor or BROKER_DEFAULT,
        transaction_timeout_ms=sink.transaction_timeout,
        take_over=take_over,
    )
