"""The leader epochs of a log from its batches, for a leader-epoch-checkpoint that is lost or damaged.

The list of side files has a copy of the epochs, which may be older, but also has epochs whose records were compacted
away. The batches contain the later ones.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import pairwise

from barnabas.log.partition.epoch_cache import EpochCache, EpochEntry
from barnabas.log.partition.loader import LoadedLog
from barnabas.log.segment.segments import Segments
from barnabas.model import LeaderEpoch, Offset
from barnabas.records.header import BatchHeader
from barnabas.records.layout import MAGIC_V2

logger = logging.getLogger(__name__)


def check_epochs(
    epochs: EpochCache, where: str, listed: Sequence[tuple[int, int]], loaded: LoadedLog
) -> None:
    """Makes the epochs of a log those of its records. Reads all headers only if they differ."""
    segments, start_offset, end_offset = loaded.segments, loaded.log_start_offset, loaded.log_end_offset
    known = _within(listed, start_offset, end_offset)
    current = epochs.entries()
    is_whole = not epochs.is_damaged and current[: len(known)] == known
    if is_whole and epochs_fit(segments, current, start_offset, end_offset):
        return
    found = known + epochs_of(segments, known[-1] if known else None, start_offset)
    if not epochs_fit(segments, found, start_offset, end_offset):
        found = epochs_of(segments, None, start_offset)
    logger.warning("the leader epochs of %s are taken from its records: %s", where, found)
    epochs.replace_all(found)


def _within(epochs: Sequence[tuple[int, int]], start_offset: int, end_offset: int) -> list[EpochEntry]:
    """The epochs of a log that begins and ends there. An epoch without any offset is none of them."""
    found = [
        EpochEntry(LeaderEpoch(epoch), Offset(max(first_offset, start_offset)))
        for epoch, first_offset in epochs
        if max(first_offset, start_offset) < end_offset
    ]
    gone = sum(after.start_offset <= start_offset for _, after in pairwise(found))
    return found[gone:]


def epochs_of(segments: Segments, after: EpochEntry | None, log_start_offset: int) -> list[EpochEntry]:
    """Each epoch with its first offset, from the batches; those after the given one, if there is one.

    If the first records of a log were compacted away, the epoch of the remaining ones is used for them.
    """
    found: list[EpochEntry] = []
    has_old_formats = False
    latest_epoch, offset = (-1, log_start_offset) if after is None else after
    for segment in segments.holding(offset, 1 << 63):
        for _, header in segment.batches():
            epoch = header.partition_leader_epoch
            if header.magic < MAGIC_V2:
                found.clear()
                has_old_formats = True
            elif header.last_offset >= log_start_offset and epoch > latest_epoch:
                is_first = after is None and not found and not has_old_formats
                start_offset = log_start_offset if is_first else header.base_offset
                found.append(EpochEntry(LeaderEpoch(epoch), Offset(start_offset)))
                latest_epoch = epoch
        segment.release()
    return found


def epochs_fit(
    segments: Segments, epochs: Sequence[EpochEntry], log_start_offset: int, log_end_offset: int
) -> bool:
    """Whether the first and the last batch of each epoch say the same, and no batch comes before the first epoch."""
    first = _batch_at(segments, log_start_offset)
    first_offset = epochs[0].start_offset if epochs else log_end_offset
    if first is not None and first.last_offset < first_offset and _epoch_of(first) >= 0:
        return False
    for index, entry in enumerate(epochs):
        end_offset = epochs[index + 1].start_offset if index + 1 < len(epochs) else log_end_offset
        for offset in (max(entry.start_offset, log_start_offset), end_offset - 1):
            header = _batch_at(segments, offset) if offset >= log_start_offset else None
            # In a compacted log the batches of an epoch may be gone.
            if (
                header is not None
                and header.base_offset < end_offset
                and _epoch_of(header) not in (-1, entry.epoch)
            ):
                return False
    return True


def _epoch_of(header: BatchHeader) -> int:
    return header.partition_leader_epoch if header.magic >= MAGIC_V2 else -1


def _batch_at(segments: Segments, offset: int) -> BatchHeader | None:
    """The batch that holds the offset, or the next one."""
    for segment in segments.all[max(segments.floor_index(offset), 0) :]:
        found = segment.locate(offset)
        if found is not None:
            for _, header in segment.batches(found.position):
                return header
    return None
