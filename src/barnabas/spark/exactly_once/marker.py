"""The marker of a query: it shows which batches are committed.

The transaction of a batch commits the end offsets of the batch to the query's own group, with the marker as their
metadata:

    {"number":8,"query":"0a6e…","batch":7,"plan":"5f3ab001"}

Records, offsets and marker are therefore committed together or not at all, and the next driver knows whether a batch is
committed.

Spark runs a batch again if it has planned it (`<checkpoint>/offsets/<batch>`) and not noted its end. Then the marker
names exactly this batch, by the query's id, the batch's id and a checksum of the plan, and the sink skips it. In all
other cases, except the next batch of the same query, checkpoint and topics do not match. To continue would lose records
or write them twice, so the sink raises an error.

All partitions of a transaction have the same marker. Partitions that a query no longer reads keep an older one: the
highest number is the last. It increases by one from marker to marker, whichever query writes them.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from barnabas.errors import InvalidConfig
from barnabas.spark.topics.offsets import Offsets, parse

OFFSET_LOG_VERSIONS: Final = ("v1", "v2")
FIELDS: Final = {"number": int, "query": str, "batch": int, "plan": str}


class MarkerMismatch(InvalidConfig):
    """The checkpoint of a query and the contents of the topics do not match."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    number: int
    query_id: str
    batch_id: int
    plan: str

    def to_metadata(self) -> str:
        return json.dumps(
            {"number": self.number, "query": self.query_id, "batch": self.batch_id, "plan": self.plan},
            separators=(",", ":"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Spark's plan of a batch: the end offsets of its topics, None if it does not read topics only, and a checksum.

    There are no offsets while there are no topics, for example between the deletion of a topic and its creation.
    """

    offsets: Offsets | None
    checksum: str


def marker_of(metadata: str) -> Marker | None:
    """None for metadata that others have written."""
    try:
        found = json.loads(metadata)
    except ValueError:
        return None
    if not isinstance(found, dict) or any(type(found.get(name)) is not kind for name, kind in FIELDS.items()):
        return None
    return Marker(
        number=found["number"], query_id=found["query"], batch_id=found["batch"], plan=found["plan"]
    )


def last_marker(metadata: Iterable[str]) -> Marker | None:
    markers = [marker for each in metadata if (marker := marker_of(each)) is not None]
    return max(markers, key=lambda marker: marker.number, default=None)


def next_marker(last: Marker | None, query_id: str, batch_id: int, plan: str) -> Marker:
    number = 1 if last is None else last.number + 1
    return Marker(number=number, query_id=query_id, batch_id=batch_id, plan=plan)


def is_batch_in(
    last: Marker | None, query_id: str, batch_id: int, plan: str, *, group: str, take_over: bool
) -> bool:
    """Whether the batch has been committed; MarkerMismatch if that is unknown.

    With `take_over` the query continues from any marker, except for a batch of its own that is committed.
    """
    remedy = (
        f"to start from the beginning, delete the checkpoint and the group (`barnabas pipeline reset`): written records"
        f" stay; to continue from the offsets of group {group!r}, start with a new checkpoint there and take_over=True"
    )
    is_own = last is not None and last.query_id == query_id
    if last is not None and is_own and last.batch_id == batch_id and last.plan == plan:
        return True
    if take_over:
        return False
    if last is None:
        if batch_id == 0:
            return False
        raise MarkerMismatch(
            f"group {group!r} has no marker, and the checkpoint is at batch {batch_id}: it has expired"
            f" (offsets.retention.minutes), its topic was deleted, or others commit offsets to the group, so it is"
            f" unknown whether the previous batch is committed; {remedy}"
        )
    if not is_own:
        raise MarkerMismatch(
            f"group {group!r} has the marker of query {last.query_id} at batch {last.batch_id}, and this is query"
            f" {query_id} at batch {batch_id}: the checkpoint was deleted, or another query uses the group, so"
            f" committed records would be written again; {remedy}"
        )
    if last.batch_id == batch_id:
        raise MarkerMismatch(
            f"batch {batch_id} of query {query_id} is committed by the marker of group {group!r}, but was planned again"
            f" since: the checkpoint was changed or restored from a copy; {remedy}"
        )
    if last.batch_id != batch_id - 1:
        raise MarkerMismatch(
            f"the marker of group {group!r} is at batch {last.batch_id} and the checkpoint at batch {batch_id}: the"
            f" checkpoint was restored from a copy, or other sinks wrote what is between; {remedy}"
        )
    return False


def parse_plan(text: str) -> Plan:
    """The contents of a file of the offset log: a version, a line about the batch, one line per source."""
    lines = text.splitlines()
    if len(lines) < 2 or lines[0].strip() not in OFFSET_LOG_VERSIONS:
        raise InvalidConfig(
            f"the offset log of the checkpoint begins with {text[:20]!r}, and not with a version that is known"
            f" ({', '.join(OFFSET_LOG_VERSIONS)})"
        )
    offsets: Offsets = {}
    for line in lines[2:]:
        found = _topic_offsets(line)
        if found is None:
            return Plan(offsets=None, checksum=_checksum(text))
        for partition, offset in found.items():
            # Two sources may read one topic: the group has read what both have.
            offsets[partition] = min(offset, offsets.get(partition, offset))
    return Plan(offsets=offsets, checksum=_checksum(text))


def _topic_offsets(line: str) -> Offsets | None:
    """The offsets of one source, empty if it has none yet; None if it does not read topics."""
    if line.strip() == "-":
        return {}
    try:
        return parse(line[max(line.find("{"), 0) :])
    except InvalidConfig:
        return None


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"
