"""Settings of topics, derived from their files when no broker is available.

A log directory does not contain the settings of its topics: they are in the metadata of the cluster. Opening a
directory without a broker still needs one of them: a rebuilt index gets an entry every `index.interval.bytes`, and
should get the entries that it had. Two entries are always more than the interval apart, and the batch before an entry
is within the interval, as long as the writer was not restarted in between. The indexes of a topic therefore bound the
interval from both sides, closely enough to rebuild the others in the same way.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from barnabas.config.log_config import LogConfig
from barnabas.log import names
from barnabas.log.file_system import READ, FileSystem, NoSuchFile
from barnabas.log.segment.offset_index import ENTRY
from barnabas.log.segment.scan import scan
from barnabas.records.header import CorruptRecord
from barnabas.value import replace

SEGMENTS_MAX: Final = 32
RESTARTS_MAX: Final = 3
INTERVAL_END: Final = 1 << 31


def infer_log_configs(
    fs: FileSystem, topics: Mapping[str, Sequence[str]], defaults: LogConfig
) -> dict[str, LogConfig]:
    """For each topic, given by its partition directories, the defaults with an interval that explains its indexes.

    Other topics may decide what one topic leaves open: the fewest different intervals that explain all of them are
    assumed.
    """
    configs = dict.fromkeys(topics, defaults)
    open_ranges = []
    for topic, directories in topics.items():
        short_gaps, end = _evidence(fs, directories)
        default = defaults.index_interval_bytes
        # A restart begins a new gap, so that a batch without an entry may lie farther off than the interval. That
        # happens a few times in a partition; a different interval shows more often.
        contradictions = sum(gap > default for gap in short_gaps)
        if default >= end or contradictions > RESTARTS_MAX * len(directories):
            start = max((gap for gap in short_gaps if gap < end), default=0)
            open_ranges.append((end, start, topic))
    # To hit all ranges with the fewest points: the range that ends first needs one, as near its end as possible, and
    # that one serves all ranges that begin before.
    open_ranges.sort()
    while open_ranges:
        end = open_ranges[0][0]
        together = [item for item in open_ranges if item[1] < end]
        interval = _likeliest(max(start for _, start, _ in together), end)
        for _, _, topic in together:
            configs[topic] = replace(defaults, index_interval_bytes=interval)
        open_ranges = [item for item in open_ranges if item[1] >= end]
    return configs


def _likeliest(start: int, end: int) -> int:
    """The interval that a person would choose among those possible."""
    power_of_two = 1 << max(start - 1, 0).bit_length()
    for candidate in (power_of_two, -(-start // 1000) * 1000, -(-start // 100) * 100):
        if candidate < end:
            return candidate
    return start


def _evidence(fs: FileSystem, directories: Iterable[str]) -> tuple[list[int], int]:
    """How far off batches without an entry lay, and the smallest interval that is impossible."""
    short_gaps: list[int] = []
    end = INTERVAL_END
    for directory in directories:
        for short_gap, long_gap in _gaps(fs, directory):
            short_gaps.append(short_gap)
            end = min(end, long_gap)
    return short_gaps, end


def _gaps(fs: FileSystem, directory: str) -> Iterator[tuple[int, int]]:
    """For each index entry how far behind the one before it the last batch without one lay, and how far it lies."""
    found = (names.parse_segment_file(name) for name in fs.list_dir(directory))
    segments = [name for name in found if name and name.kind == names.LOG_SUFFIX and not name.state]
    for segment in segments[-SEGMENTS_MAX:]:
        stem = os.path.join(directory, names.segment_file(segment.base_offset, ""))
        try:
            data = fs.read_file(stem + names.OFFSET_INDEX_SUFFIX)
        except NoSuchFile:
            continue
        yield from _index_gaps(data.rstrip(b"\0"), _batch_positions(fs, stem + names.LOG_SUFFIX))


def _index_gaps(data: bytes, starts: list[int]) -> Iterator[tuple[int, int]]:
    before = 0
    padded = data.ljust(-(-len(data) // ENTRY.size) * ENTRY.size, b"\0")
    for _, position in ENTRY.iter_unpack(padded):
        row = bisect_left(starts, position)
        if position <= before or row == len(starts) or starts[row] != position:
            # A damaged index says nothing about the rest of its segment.
            return
        yield starts[row - 1] - before, position - before
        before = position
    if starts:
        yield starts[-1] - before, INTERVAL_END


def _batch_positions(fs: FileSystem, path: str) -> list[int]:
    file = fs.open(path, READ)
    positions = []
    try:
        for position, _, _, _ in scan(file, path, 0, file.size_bytes(), False):
            positions.append(position)
    except CorruptRecord:
        pass
    return positions
