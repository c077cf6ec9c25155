"""The bytes of a journal, which holds the embedded store on the disk.

    BARNABAS STORE 2\\n              the format
    frame, frame, …                 the first says how many frames of the snapshot follow it; the others are commits

    frame   crc      uint32         CRC-32C of all that follows in the frame
            length   uint32         of the payload
            zxid     int64          of the last change in the frame
            payload  JSON           [[path, data, czxid, mzxid, pzxid, ctime, mtime, version, children made, owner], …]

A node that was deleted is its path alone. Data is text, a character a byte. Every byte of a journal is covered by a
checksum or compared with what it has to be, so that no damage goes unnoticed but a cut between two frames: that is why
there are two copies (journal.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from barnabas.coordination.store.contract import StoreUnavailable, parent_of
from barnabas.coordination.store.transaction import ROOT, Node
from barnabas.primitives.crc32c import crc32c
from barnabas.primitives.unhurried import unhurried

MAGIC: Final = b"BARNABAS STORE "
FORMAT_VERSION: Final = 2
PREAMBLE: Final = MAGIC + b"%d\n" % FORMAT_VERSION
CRC: Final = Struct(">I")
HEADER: Final = Struct(">IIq")
assert HEADER.size == 16
# Frames of a snapshot are small, so that a thread that writes or reads one lets the event loop run.
NODES_A_FRAME: Final = 500

_encode: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class StoreDamaged(StoreUnavailable):
    """No copy of the store can be trusted to have all that was stored."""


class Copy(NamedTuple):
    """The content of one file. `end` is the end of its intact part; a problem describes the rest, if any."""

    path: str
    data: bytes
    # Where the payload of each intact frame begins and ends.
    payloads: list[tuple[int, int]]
    zxid: int
    end: int
    snapshot_end: int
    problem: str

    @property
    def is_whole(self) -> bool:
        return not self.problem

    @property
    def has_snapshot(self) -> bool:
        return self.snapshot_end > 0

    def nodes(self) -> dict[str, Node]:
        """The tree after the last intact commit. Children are counted."""
        nodes: dict[str, Node] = {}
        for start, end in self.payloads[1:]:
            for entry in unhurried(json.loads(self.data[start:end]), NODES_A_FRAME):
                path, *fields = entry
                if fields:
                    nodes[path] = Node._make((fields[0].encode("latin-1"), *fields[1:], 0))
                else:
                    nodes.pop(path, None)
        return with_children_counted(nodes, self.path)


def read_copy(path: str, data: bytes) -> Copy:
    """Checks every byte."""
    payloads: list[tuple[int, int]] = []
    zxid, position, snapshot_frames, snapshot_end = 0, len(PREAMBLE), 0, 0
    problem = _preamble_problem(data)
    while not problem and position < len(data):
        start = position + HEADER.size
        if start > len(data):
            problem = f"its last {len(data) - position} of {len(data)} bytes are no whole change"
            break
        crc, length, frame_zxid = HEADER.unpack_from(data, position)
        end = start + length
        if end > len(data) or crc32c(memoryview(data)[position + CRC.size : end]) != crc:
            problem = (
                f"its bytes from {position} on, of {len(data)}, do not have the checksum that they should"
            )
            break
        if not payloads:
            (snapshot_frames,) = json.loads(data[start:end])
        payloads.append((start, end))
        zxid, position = frame_zxid, end
        if len(payloads) == snapshot_frames + 1:
            snapshot_end = position
    if not problem and not snapshot_end:
        problem = "its beginning is not complete"
    return Copy(path, data, payloads, zxid, position, snapshot_end, problem)


def is_damaged_inside(copy: Copy) -> bool:
    """Whether an intact frame follows the damage. A crash in mid-commit leaves none: it tears the last frame."""
    data = copy.data
    for position in range(copy.end + 1, len(data) - HEADER.size + 1):
        crc, length, _ = HEADER.unpack_from(data, position)
        end = position + HEADER.size + length
        if end <= len(data) and crc32c(memoryview(data)[position + CRC.size : end]) == crc:
            return True
    return False


def _preamble_problem(data: bytes) -> str:
    if data.startswith(PREAMBLE):
        return ""
    version = data[len(MAGIC) :].split(b"\n", 1)[0][:10]
    if data.startswith(MAGIC) and version.isdigit():
        return f"it has format {version.decode()}, and this release knows {FORMAT_VERSION}"
    return "it does not begin with the header of a store" if data else "it is empty"


def frame(zxid: int, payload: bytes) -> bytes:
    covered = HEADER.pack(0, len(payload), zxid)[CRC.size :] + payload
    return CRC.pack(crc32c(covered)) + covered


def changes_frame(zxid: int, changes: Iterable[tuple[str, Node | None]]) -> bytes:
    entries = ",".join(
        _encode((path,) if node is None else (path, node.data.decode("latin-1"), *node[1:-1]))
        for path, node in unhurried(changes)
    )
    return frame(zxid, b"[%b]" % entries.encode("ascii"))


def snapshot(nodes: dict[str, Node], zxid: int) -> bytes:
    """A whole journal without commits."""
    frames = list(_snapshot_frames(nodes, zxid))
    return b"".join((PREAMBLE, frame(zxid, b"[%d]" % len(frames)), *frames))


def _snapshot_frames(nodes: dict[str, Node], zxid: int) -> Iterator[bytes]:
    items = list(nodes.items())
    for start in range(0, len(items), NODES_A_FRAME):
        yield changes_frame(zxid, items[start : start + NODES_A_FRAME])


def with_children_counted(nodes: dict[str, Node], source: str) -> dict[str, Node]:
    nodes.setdefault("/", ROOT)
    counts: dict[str, int] = {}
    for path in nodes:
        if path == "/":
            continue
        parent = parent_of(path) if path.startswith("/") else ""
        if parent not in nodes:
            raise StoreDamaged(f"{source} is damaged: {path!r} has no parent")
        counts[parent] = counts.get(parent, 0) + 1
    for path, count in counts.items():
        nodes[path] = nodes[path]._replace(num_children=count)
    return nodes
