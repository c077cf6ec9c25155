"""Putting new segments in the place of old ones, so that a crash at any step leaves either the old or the new.

    .cleaned   being written: worth nothing yet
    .swap      whole and on the disk: it counts, and what it replaces does not
    .deleted   replaced

The new segments become `.swap` from the last to the first, then the old ones `.deleted`, then the new ones get their
names. A `.cleaned` file makes void every `.swap` file behind it: only when the first of the new segments is `.swap` are
all of them in force. Each step is on the disk before the next begins; loader.py reads the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.log.file_system import FileSystem
from barnabas.log.names import DELETED_SUFFIX, SWAP_SUFFIX
from barnabas.log.segment.segment import Segment


def swap_in(
    fs: FileSystem,
    directory: str,
    new: Sequence[Segment],
    old: Sequence[Segment],
    on_in_force: Callable[[], None],
) -> None:
    """Both in order of base offsets; `on_in_force` is called at the moment from which on readers must use the new."""
    for segment in new:
        segment.flush()
    fs.sync_dir(directory)
    for segment in reversed(new):
        segment.change_state(SWAP_SUFFIX)
        fs.sync_dir(directory)
    on_in_force()
    for segment in old:
        segment.change_state(DELETED_SUFFIX)
    fs.sync_dir(directory)
    for segment in new:
        segment.change_state("")
    fs.sync_dir(directory)


def split_overflowed(segment: Segment, create_cleaned: Callable[[int], Segment]) -> list[Segment]:
    """Copies the batches of a segment whose offsets are too far apart for its indexes into as many as it takes."""
    parts: list[Segment] = []
    for _, header, data, at in segment.whole_batches():
        if not parts or not parts[-1].can_append_offset(header.last_offset) or parts[-1].index_is_full:
            # The first one keeps the name, so that it takes the place of the old segment.
            parts.append(create_cleaned(header.base_offset if parts else segment.base_offset))
        parts[-1].append(data[at : at + header.size_bytes], [header])
    for part in parts:
        part.become_inactive()
    return parts
