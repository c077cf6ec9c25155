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
from barnabas.spark.pipeline.checkpoint import (
    DEAD_LETTERS,
    SINK_LOG,
    local_path,
    remove_checkpoint,
    remove_folder,
)
from barnabas.spark.pipeline.connect import BOOTSTRAP, clusters, require_connected
from barnabas.spark.pipeline.group import RESET, admin_of, committed_offsets, end_offsets, source_partitions
from barnabas.spark.pipeline.model import FileSink, Pipeline
from barnabas.spark.pipeline.tables import located
from barnabas.spark.topics.offsets import LATEST


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedReset:
    """The state that a reset would remove, and the start of the next run if the user has given one."""

    checkpoint: str
    checkpoint_exists: bool
    sink_log: Path | None
    """The log of Spark's file sink, if there is one: with it the sink would omit the batches of a new query."""
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
    names = (pipeline.name, f"{pipeline.name}.{DEAD_LETTERS}")
    for kafka in _clusters(pipeline):
        with admin_of(kafka) as admin:
            groups |= {each.group_id for each in admin.list_groups() if each.group_id in names}
            committed |= {
                each: found.offset for each, found in committed_offsets(admin, pipeline.name).items()
            }
    for source in pipeline.topic_sources.values():
        if place is None or source.as_table:
            continue
        with admin_of(source.kafka) as admin:
            partitions = source_partitions(admin, source)
            ends = end_offsets(admin, partitions, source)
            if place == LATEST:
                offsets |= ends
            elif partitions:
                found = admin.list_offsets(dict.fromkeys(partitions, place))
                # Behind the last record there is no offset of a time.
                offsets |= {
                    each: ends[each] if (at := found[each].offset) is None else at for each in partitions
                }
    log = local_path(pipeline.sink.path) / SINK_LOG if isinstance(pipeline.sink, FileSink) else None
    return PlannedReset(
        checkpoint=location,
        checkpoint_exists=local_path(location).exists(),
        sink_log=log if log is not None and log.exists() else None,
        groups=tuple(sorted(groups)),
        committed=committed,
        offsets=offsets,
    )


def execute_reset(pipeline: Pipeline, planned: PlannedReset) -> None:
    """Removes the checkpoint first: a new run expects a group without a checkpoint, but not the reverse."""
    remove_checkpoint(planned.checkpoint)
    if planned.sink_log is not None:
        remove_folder(planned.sink_log)
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
                admin.alter_group_offsets(pipeline.name, theirs)


def _clusters(pipeline: Pipeline) -> list[Mapping[str, str]]:
    """The clusters that keep offsets for the pipeline: those it reads, and those whose transactions have them."""
    return list({kafka[BOOTSTRAP]: kafka for _, kafka in clusters(pipeline)}.values())
