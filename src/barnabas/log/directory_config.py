"""Settings of topics, read off their files where nobody is there to tell them.

A log directory does not hold the settings of its topics: they are in the metadata of the cluster. Opening a directory
without a broker needs one of them all the same: an index that has to be rebuilt gets an entry each
`index.interval.bytes`, and should get those that it had. Two entries are always more than the interval apart, and the
batch before an entry lies within the interval, as long as the writer was not restarted in between. So what the indexes
of a topic have in common bounds the interval from both sides, closely enough to rebuild the others alike.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from barnabas.config.log_config import LogConfig
from barnabas.log import names
from barnabas.log.file_system import READ, FileSystem, NoSuchFile
from barnabas.log.offset_index import ENTRY
from barnabas.log.segment_scan import scan
from barnabas.records.header import CorruptRecord

SEGMENTS_MAX: Final = 32


def infer_log_configs(
    fs: FileSystem, topics: Mapping[str, Sequence[str]], defaults: LogConfig
) -> dict[str, LogConfig]:
    """For each topic, given by its partition directories, the defaults with an interval that explains its indexes.

    What one topic leaves open others may decide: as few different intervals are assumed as explain them all.
    """
    configs = dict.fromkeys(topics, defaults)
    open_ranges = []
    for topic, directories in topics.items():
        start, end = _interval_range(fs, directories)
        if not start <= defaults.index_interval_bytes < end:
            open_ranges.append((end, start, topic))
    # To hit all ranges with the fewest points: the range that ends first needs one, as near its end as possible, and
    # that one serves all ranges that begin before.
    open_ranges.sort()
    while open_ranges:
        end = open_ranges[0][0]
        together = [item for item in open_ranges if item[1] < end]
        interval = max(start for _, start, _ in together)
        for _, _, topic in together:
            configs[topic] = replace(defaults, index_interval_bytes=interval)
        open_ranges = [item for item in open_ranges if item[1] >= end]
    return configs


def _interval_range(fs: FileSystem, directories: Iterable[str]) -> tuple[int, int]:
    """The smallest interval that is possible, and the smallest above it that is not."""
    short_gaps: set[int] = set()
    end = 1 << 31
    for directory in directories:
        for short_gap, long_gap in _gaps(fs, directory):
            short_gaps.add(short_gap)
            end = min(end, long_gap)
    # A restart makes gaps longer than the interval, so those that contradict it prove nothing.
    return max((gap for gap in short_gaps if gap < end), default=0), end


def _gaps(fs: FileSystem, directory: str) -> Iterable[tuple[int, int]]:
    """For each index entry how far from the one before the last batch without an entry lay, and how far it lies."""
    found = (names.parse_segment_file(name) for name in fs.list_dir(directory))
    segments = [name for name in found if name and name.kind == names.LOG_SUFFIX and not name.state]
    for segment in segments[-SEGMENTS_MAX:]:
        stem = os.path.join(directory, names.segment_file(segment.base_offset, ""))
        try:
            data = fs.read_file(stem + names.OFFSET_INDEX_SUFFIX)
        except NoSuchFile:
            continue
        starts = _batch_positions(fs, stem + names.LOG_SUFFIX)
        before = 0
        for _, position in ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY.size]):
            row = bisect_left(starts, position)
            if position <= before or row == len(starts) or starts[row] != position:
                # The zeros of a preallocated file, or damage.
                break
            yield starts[row - 1] - before, position - before
            before = position


def _batch_positions(fs: FileSystem, path: str) -> list[int]:
    file = fs.open(path, READ)
    positions = []
    try:
        for position, _, _, _ in scan(file, path, 0, file.size_bytes(), False):
            positions.append(position)
    except CorruptRecord:
        pass
    return positions
