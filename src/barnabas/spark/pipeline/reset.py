"""Removes the state of a pipeline, its checkpoint and its groups' offsets, so that the next run starts from the
beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from barnabas.client.admin.results import CommittedOffset
from barnabas.errors import NonEmptyGroup
from barnabas.model import TopicPartition
from barnabas.spark.pipeline.checkpoint import SINK_LOG, local_path, remove_checkpoint, remove_folder
from barnabas.spark.pipeline.connect import BOOTSTRAP, clusters, require_connected
from barnabas.spark.pipeline.flows import groups_of, letters_name
from barnabas.spark.pipeline.group import RESET, admin_of, committed_offsets, end_offsets, source_partitions
from barnabas.spark.pipeline.model import FileSink, Pipeline
from barnabas.spark.pipeline.tables import located
from barnabas.spark.topics.offsets import LATEST


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedReset:
    """The state that a reset would remove, and the start of the next run if the user has given one."""

    checkpoint: str
    checkpoint_exists: bool
    sink_logs: tuple[Path, ...]
    """The logs of Spark's file sinks: with them the sinks would omit the batches of new queries."""
    groups: tuple[str, ...]
    committed: Mapping[TopicPartition, int]
    offsets: Mapping[TopicPartition, int]


def plan_reset(pipeline: Pipeline, checkpoint: str | None, place: int | None) -> PlannedReset:
    """`place` is what a broker is asked for offsets with: -2, -1, or a time in milliseconds; None is the file's."""
    location = located(checkpoint, Path()) if checkpoint else pipeline.checkpoint
    assert location is not None
    require_connected(pipeline)
    committed: dict[TopicPartition, int] = {}
    offsets: dict[TopicPartition, int] = {}
    groups: set[str] = set()
    names = (*groups_of(pipeline), letters_name(pipeline))
    for kafka in _clusters(pipeline):
        with admin_of(kafka) as admin:
            groups |= {each.group_id for each in admin.list_groups() if each.group_id in names}
            for group in groups_of(pipeline):
                for each, found in committed_offsets(admin, group).items():
                    # Of several sinks, the one that is the furthest behind counts.
                    committed[each] = min(found.offset, committed.get(each, found.offset))
    for source in pipeline.topic_sources.values():
        if place is None or source.as_table:
            continue
        with admin_of(source.kafka) as admin:
            partitions = source_partitions(admin, source)
            ends = end_offsets(admin, partitions, source)
            if place == LATEST:
                offsets |= ends
            elif partitions:
                places = admin.list_offsets(dict.fromkeys(partitions, place))
                # Behind the last record there is no offset of a time.
                offsets |= {
                    each: ends[each] if (at := places[each].offset) is None else at for each in partitions
                }
    logs = [
        local_path(sink.path) / SINK_LOG
        for sink in pipeline.sinks_by_key.values()
        if isinstance(sink, FileSink)
    ]
    return PlannedReset(
        checkpoint=location,
        checkpoint_exists=local_path(location).exists(),
        sink_logs=tuple(log for log in logs if log.exists()),
        groups=tuple(sorted(groups)),
        committed=committed,
        offsets=offsets,
    )


def execute_reset(pipeline: Pipeline, planned: PlannedReset) -> None:
    """Removes the checkpoint first: a new run expects a group without a checkpoint, but not the reverse."""
    remove_checkpoint(planned.checkpoint)
    for log in planned.sink_logs:
        remove_folder(log)
    for kafka in _clusters(pipeline):
        with admin_of(kafka) as admin:
            known = {each.group_id for each in admin.list_groups()}
            gone = [each for each in planned.groups if each in known]
            try:
                if gone:
                    admin.delete_groups(gone)
            except NonEmptyGroup:
                raise NonEmptyGroup(
                    f"group {', '.join(gone)} has members, and the pipeline never is one: does another program use its"
                    " name?"
                ) from None
    for source in pipeline.topic_sources.values():
        theirs = {
            each: CommittedOffset(offset=offset, metadata=RESET)
            for each, offset in planned.offsets.items()
            if not source.as_table and (source.pattern is not None or each.topic in source.topics)
        }
        if theirs:
            with admin_of(source.kafka) as admin:
                for group in groups_of(pipeline):
                    admin.alter_group_offsets(group, theirs)


def _clusters(pipeline: Pipeline) -> list[Mapping[str, str]]:
    """The clusters that keep offsets for the pipeline: those it reads, and those whose transactions have them."""
    return list({kafka[BOOTSTRAP]: kafka for _, kafka in clusters(pipeline)}.values())
