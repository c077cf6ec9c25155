"""A pipeline's consumer group: it has no members, and shows how far the pipeline has read to every tool that shows lag.

A reset of a pipeline leaves the starting offsets in its group, with the metadata RESET, where the first run with
a new checkpoint finds them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.results import CommittedOffset, IsolationLevel
from barnabas.errors import GroupIdNotFound, InvalidConfig
from barnabas.model import TopicPartition
from barnabas.spark.pipeline.model import Pipeline, TopicSource
from barnabas.spark.topics.offsets import EARLIEST, LATEST, admin_settings, render
from barnabas.views.lag import lag_of
from barnabas.views.offsets import available_offsets

RESET: Final = "reset"
CLIENT_ID: Final = "barnabas-pipeline"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """How far a pipeline is behind in a partition; lag is None where nothing has been committed."""

    source: str
    partition: TopicPartition
    first_offset: int
    committed_offset: int | None
    end_offset: int
    metadata: str

    @property
    def lag(self) -> int | None:
        return lag_of(self.committed_offset, self.end_offset)


@contextmanager
def admin_of(settings: Mapping[str, str]) -> Iterator[Admin]:
    with Admin({"client.id": CLIENT_ID, **admin_settings(settings)}) as admin:
        yield admin


def source_partitions(admin: Admin, source: TopicSource) -> list[TopicPartition]:
    """The partitions that a source reads; a topic that is named and does not exist is an error."""

    if source.pattern is None:
        names = list(source.topics)
    else:
        names = [each.name for each in admin.list_topics() if re.fullmatch(source.pattern, each.name)]
    if not names:
        return []
    described = admin.describe_topics(names)
    return sorted(
        TopicPartition(name, each.partition) for name in names for each in described[name].partitions
    )


def committed_offsets(admin: Admin, group: str) -> dict[TopicPartition, CommittedOffset]:
    try:
        return admin.list_group_offsets(group)
    except GroupIdNotFound:
        return {}


def lags(pipeline: Pipeline, group: str) -> list[PartitionLag]:
    """How far a group of the pipeline is behind in each partition that the pipeline reads as a stream."""
    found = []
    for name, source in pipeline.topic_sources.items():
        if source.as_table:
            continue
        with admin_of(source.kafka) as admin:
            partitions = source_partitions(admin, source)
            committed = committed_offsets(admin, group)
            first = admin.list_offsets(dict.fromkeys(partitions, EARLIEST)) if partitions else {}
            ends = end_offsets(admin, partitions, source)
            for partition in partitions:
                known = committed.get(partition)
                found.append(
                    PartitionLag(
                        source=name,
                        partition=partition,
                        first_offset=first[partition].offset or 0,
                        committed_offset=None if known is None else known.offset,
                        end_offset=ends.get(partition, 0),
                        metadata="" if known is None else known.metadata,
                    )
                )
    return found


def end_offsets(
    admin: Admin, partitions: Iterable[TopicPartition], source: TopicSource
) -> dict[TopicPartition, int]:
    """The ends of partitions for this isolation level, without partitions that have no leader at the moment."""
    is_committed = source.isolation == "read_committed"
    isolation = IsolationLevel.READ_COMMITTED if is_committed else IsolationLevel.READ_UNCOMMITTED
    return available_offsets(admin, dict.fromkeys(partitions, LATEST), isolation=isolation)


def starting_offsets(pipeline: Pipeline, groups: Sequence[str]) -> dict[str, str]:
    """The start of sources that continue from the offsets of the groups of a query, for the first run with a new
    checkpoint.

    The groups of sinks that share a query must agree: from any other place, one sink would get records again, or never.
    """
    starting = {}
    for name, source in pipeline.topic_sources.items():
        if source.as_table:
            continue
        with admin_of(source.kafka) as admin:
            found = [
                {
                    partition: each.offset
                    for partition, each in committed_offsets(admin, group).items()
                    if source.starting == "committed" or each.metadata == RESET
                }
                for group in groups
            ]
            committed = found[0]
            if any(each != committed for each in found):
                raise InvalidConfig(
                    f"sources.{name}: the groups {', '.join(groups)} are at different offsets, and their sinks share a"
                    " query: set them to the same offsets (barnabas pipeline reset FILE --to-time, or barnabas groups"
                    ' reset), or start without starting = "committed"'
                )
            if not committed:
                continue
            partitions = source_partitions(admin, source)
        starting[name] = render({each: committed.get(each, EARLIEST) for each in partitions})
    return starting
