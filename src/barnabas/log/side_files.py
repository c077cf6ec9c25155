"""The list of a log's side files: size and checksum of what is derived from its records, so that damage is noticed.

    1                                                           version
    9ae0daaf                                                    CRC-32C of all lines that follow
    00000000000000000000.index 80 1f4c66d1 952 40112            name, bytes, CRC-32C; the last entry of an index
    00000000000000000000.timeindex 132 77c0ffee 1700000 952
    00000000000000000000.txnindex 34 0a1b2c3d 0 0
    00000000000000000406.index 96 1f4c66d1 ?                    from a list before a crash: not compared since then
    00000000000000000953.index -                                not looked at yet, so nothing is known of its content
    00000000000000000953.snapshot -                             carries its own checksum: only that it is there counts
    leader-epoch-checkpoint 8 5d41402a 0 0
    epoch 0 0                                                   a copy of the leader epochs: epoch and start offset
    epoch 3 1017

`barnabas.side-files` lies beside the segments; Apache Kafka takes no notice of it. When the log is closed it is about
all of its files, and synced, so that after a clean stop it can be relied upon. In between it is written before the
recovery point passes a sealed segment, and is not synced: a list that a power cut has damaged, or left behind, differs
from the files, and what differs is rebuilt from the records.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas.log.file_system import FileSystem, NoSuchFile
from barnabas.primitives.crc32c import crc32c

logger = logging.getLogger(__name__)

VERSION: Final = b"1"
NOT_LISTED: Final = -1
_UNKNOWN: Final = "-"
_NOT_CURRENT: Final = "?"
_EPOCH: Final = "epoch"


class FileDigest(NamedTuple):
    """The digest of a file. The last entry is that of an offset index or a time index, and 0 for any other file.

    Entries with `is_current` were true when the log was last closed. For the others only checksums may be compared.
    """

    size_bytes: int
    checksum: int
    last_key: int = 0
    last_value: int = 0
    is_current: bool = True


SideFiles = dict[str, FileDigest | None]
"""Digests by file name; None for a file that is there and of which no more is known."""


def digest_of(data: bytes) -> FileDigest:
    return FileDigest(len(data), crc32c(data))


class ListedFiles(NamedTuple):
    """A list as it was read, and its checksum."""

    files: SideFiles
    epochs: list[tuple[int, int]]
    checksum: int


class LastStop(NamedTuple):
    """How a log was left, as far as its list of side files vouches for it; without a list, nothing is listed."""

    is_clean: bool
    files: SideFiles | None
    epochs: list[tuple[int, int]]
    checksum: int
    # Whether the directory of the log was made for it just now, and is empty.
    is_new: bool = False


NEVER_OPENED: Final = LastStop(True, None, [], NOT_LISTED, True)


def read_last_stop(fs: FileSystem, path: str, *, is_clean: bool, lists_side_files: bool) -> LastStop:
    """A clean shutdown of Barnabas `lists_side_files`: a log without a list counts as one after a crash.

    The same holds for a log with a list if another broker has used it since, and then the list is void.
    """
    listed = read_side_files(fs, path)
    if is_clean and (listed is not None) != lists_side_files:
        # Of thousands of logs that another broker has used, the directory as a whole is named.
        level = logging.WARNING if lists_side_files else logging.DEBUG
        logger.log(level, "%s is not of the last stop: the log is opened as after a crash", path)
        is_clean = False
    if listed is None or not lists_side_files:
        return LastStop(is_clean, None, [], NOT_LISTED)
    return LastStop(is_clean, listed.files, listed.epochs, listed.checksum if is_clean else NOT_LISTED)


def read_side_files(fs: FileSystem, path: str) -> ListedFiles | None:
    """None where there is no list, or a damaged one, which is removed."""
    try:
        data = fs.read_file(path)
    except NoSuchFile:
        return None
    found = parse_side_files(data)
    if found is None:
        logger.warning("%s is damaged and is removed", path)
        fs.remove(path)
    return found


def format_entries(side_files: SideFiles, epochs: Iterable[tuple[int, int]] = ()) -> bytes:
    """The lines of a list behind its checksum."""
    lines = [f"{name} {_text(digest)}\n" for name, digest in side_files.items()]
    lines += [f"{_EPOCH} {epoch} {start_offset}\n" for epoch, start_offset in epochs]
    return "".join(lines).encode()


def _text(digest: FileDigest | None) -> str:
    if digest is None:
        return _UNKNOWN
    if not digest.is_current:
        return f"{digest.size_bytes} {digest.checksum:08x} {_NOT_CURRENT}"
    return f"{digest.size_bytes} {digest.checksum:08x} {digest.last_key} {digest.last_value}"


def write_side_files(fs: FileSystem, path: str, entries: bytes, *, syncs: bool) -> None:
    fs.write_atomically(path, b"%s\n%08x\n%s" % (VERSION, crc32c(entries), entries), syncs=syncs)


def parse_side_files(data: bytes) -> ListedFiles | None:
    version, _, rest = data.partition(b"\n")
    checksum, _, body = rest.partition(b"\n")
    if version != VERSION or checksum != b"%08x" % crc32c(body):
        return None
    found: SideFiles = {}
    epochs: list[tuple[int, int]] = []
    for line in body.decode().splitlines():
        fields = line.split(" ")
        if fields[0] == _EPOCH:
            epochs.append((int(fields[1]), int(fields[2])))
            continue
        digest: FileDigest | None = None
        if len(fields) == 5:
            digest = FileDigest(int(fields[1]), int(fields[2], 16), int(fields[3]), int(fields[4]))
        elif len(fields) == 4:
            digest = FileDigest(int(fields[1]), int(fields[2], 16), is_current=False)
        found[fields[0]] = digest
    return ListedFiles(found, epochs, int(checksum, 16))
