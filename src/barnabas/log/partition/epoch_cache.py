"""The leader epochs of a partition and the offset at which each began, as in `leader-epoch-checkpoint`.

A replica that comes back asks the leader where its own last epoch ended, and truncates to there: the cache answers.
Epochs and offsets increase together. A new epoch is on disk before its first record is. The removal of an epoch by a
truncation is written later, because the loading of a log removes it again. As long as nothing of the log was ever
flushed, the file is not synced: after a crash the epochs come from the records, which are all read. The same holds if
the file is damaged (epoch_recovery.py).

One thread at a time changes the cache, under the partition log's lock; any thread writes the file.
"""

from __future__ import annotations

import logging
import os
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import NamedTuple

from barnabas.log.checkpoints import BadCheckpoint, format_epochs, parse_epochs
from barnabas.log.file_system import WRITE, FileSystem, NoSuchFile
from barnabas.log.side_files import FileDigest, SideFiles, digest_of
from barnabas.model import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, Offset

logger = logging.getLogger(__name__)


class EpochEntry(NamedTuple):
    epoch: LeaderEpoch
    start_offset: Offset


class EpochEndOffset(NamedTuple):
    """Where an epoch ends; the epoch is the largest known that is not above the one asked for."""

    epoch: LeaderEpoch
    end_offset: Offset


class EpochCache:
    __slots__ = (
        "_digest",
        "_epochs",
        "_fs",
        "_is_behind",
        "_is_synced",
        "_lock",
        "_on_disk",
        "_path",
        "_schedule",
        "_start_offsets",
        "is_damaged",
        "latest_epoch",
        "latest_start_offset",
    )

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        schedule: Callable[[str, Callable[[], None]], None],
        *,
        is_synced: bool = True,
        side_files: SideFiles | None = None,
        is_new: bool = False,
    ) -> None:
        """Reads the checkpoint at the path, if there is one. After a clean stop it is what the list of side files says.

        After a crash it may be anything. `schedule` has something done soon, in any thread.
        """
        self._fs = fs
        self._path = path
        self._schedule = schedule
        self._lock = threading.Lock()
        self._epochs: list[int] = []
        self._start_offsets: list[int] = []
        self.latest_epoch: int = NO_LEADER_EPOCH
        self.latest_start_offset: int = NO_OFFSET
        self._is_synced = is_synced
        self._digest: FileDigest | None = None
        self.is_damaged = False
        """Whether the file was not what it should be: the epochs must be found in the records."""
        if not is_new:
            self._read(side_files)
        self._on_disk: list[EpochEntry] | None = None if self.is_damaged else self.entries()
        self._is_behind: bool = False

    def __len__(self) -> int:
        return len(self._epochs)

    def _read(self, side_files: SideFiles | None) -> None:
        name = os.path.basename(self._path)
        try:
            data = self._fs.read_file(self._path)
        except NoSuchFile:
            self.is_damaged = side_files is not None and name in side_files
            return
        self._digest = digest_of(data)
        try:
            if side_files is not None and side_files.get(name) != self._digest:
                raise BadCheckpoint(f"{self._path} is not what it was when the log was closed")
            for epoch, start_offset in parse_epochs(data, self._path):
                self._insert(epoch, start_offset)
        except BadCheckpoint as error:
            logger.warning("the leader epochs are taken from the records: %s", error)
            self.is_damaged = True

    def replace_all(self, entries: Iterable[EpochEntry]) -> None:
        """Takes over what the records say."""
        with self._lock:
            self._keep(0)
            for epoch, start_offset in entries:
                self._insert(epoch, start_offset)
            self._store()
            self.is_damaged = False

    def digest(self) -> FileDigest | None:
        """The content of the file; None if there is none. Writes a pending removal by a truncation now.

        Epochs that were dropped when the log was loaded stay in the file: the next loading drops them again.
        """
        with self._lock:
            if self._on_disk is None or not self._is_behind:
                self._store()
            return self._digest

    def entries(self) -> list[EpochEntry]:
        return [
            EpochEntry(LeaderEpoch(epoch), Offset(start_offset))
            for epoch, start_offset in zip(self._epochs, self._start_offsets, strict=True)
        ]

    def copied(self) -> list[EpochEntry]:
        """The entries, for a thread that does not hold the log's lock."""
        with self._lock:
            return self.entries()

    def assign(self, epoch: int, start_offset: int) -> None:
        """Notes that records of the epoch begin at the offset, if that is new."""
        if epoch == self.latest_epoch and start_offset >= self.latest_start_offset and not self._is_behind:
            return
        with self._lock:
            self._insert(epoch, start_offset)
            self._store()

    def earliest(self) -> EpochEntry | None:
        if not self._epochs:
            return None
        return EpochEntry(LeaderEpoch(self._epochs[0]), Offset(self._start_offsets[0]))

    def epoch_for_offset(self, offset: int) -> LeaderEpoch | None:
        index = bisect_right(self._start_offsets, offset) - 1
        return None if index < 0 else LeaderEpoch(self._epochs[index])

    def previous_epoch(self, epoch: int) -> LeaderEpoch | None:
        index = bisect_left(self._epochs, epoch) - 1
        return None if index < 0 else LeaderEpoch(self._epochs[index])

    def end_offset_for(self, requested_epoch: int, log_end_offset: int) -> EpochEndOffset | None:
        """The end of the requested epoch; None if the cache does not know it."""
        if requested_epoch == NO_LEADER_EPOCH:
            return None
        if requested_epoch == self.latest_epoch:
            return EpochEndOffset(LeaderEpoch(requested_epoch), Offset(log_end_offset))
        higher = bisect_right(self._epochs, requested_epoch)
        if higher == len(self._epochs):
            return None
        # Of an epoch below all that are known the records are gone: the first offset that is left is where it ended.
        epoch = requested_epoch if higher == 0 else self._epochs[higher - 1]
        return EpochEndOffset(LeaderEpoch(epoch), Offset(self._start_offsets[higher]))

    def truncate_from_end(self, end_offset: int) -> None:
        """Removes the epochs that begin at or after the offset."""
        kept = bisect_left(self._start_offsets, end_offset)
        if kept < len(self._epochs):
            with self._lock:
                self._keep(kept)
            self._schedule("write-leader-epochs", self._write)

    def forget_from_end(self, end_offset: int) -> None:
        """The same while a log is loaded. The file follows with the first record: nearly always it is right as it is.

        An epoch that began at the end of the log is about to begin there again, or the next loading forgets it too.
        """
        kept = bisect_left(self._start_offsets, end_offset)
        if kept < len(self._epochs):
            self._keep(kept)
            self._is_behind = True

    def truncate_from_start(self, start_offset: int) -> None:
        """Removes the epochs that end at or before the offset; the one that holds it begins there from now on."""
        removed = bisect_right(self._start_offsets, start_offset)
        if removed == 0 or (removed == 1 and self._start_offsets[0] == start_offset):
            return
        with self._lock:
            del self._epochs[: removed - 1]
            del self._start_offsets[: removed - 1]
            self._start_offsets[0] = start_offset
            self._keep(len(self._epochs))
        self._schedule("write-leader-epochs", self._write)

    def clear(self) -> None:
        if self._epochs:
            with self._lock:
                self._keep(0)
                self._store()

    def sync(self) -> None:
        """Syncs the file to the disk, now and after every change from now on."""
        with self._lock:
            self._is_synced = True
            self._store()
            try:
                self._fs.open(self._path, WRITE).sync()
            except NoSuchFile:
                logger.debug("%s: there are no epochs yet", self._path)

    def move_to(self, path: str) -> None:
        """Notes that the directory of the checkpoint has been renamed."""
        with self._lock:
            self._path = path

    def _insert(self, epoch: int, start_offset: int) -> None:
        assert epoch >= 0
        assert start_offset >= 0
        if epoch == self.latest_epoch and start_offset >= self.latest_start_offset:
            return
        # Entries that the new one contradicts were written by a leader whose records did not last.
        kept = min(bisect_left(self._epochs, epoch), bisect_left(self._start_offsets, start_offset))
        removed = self.entries()[kept:]
        if len(removed) > 1 or (removed and removed[0].start_offset != start_offset):
            logger.warning("epoch %d from offset %d replaces the entries %s", epoch, start_offset, removed)
        self._keep(kept)
        self._epochs.append(epoch)
        self._start_offsets.append(start_offset)
        self.latest_epoch = epoch
        self.latest_start_offset = start_offset

    def _keep(self, count: int) -> None:
        del self._epochs[count:]
        del self._start_offsets[count:]
        self.latest_epoch = self._epochs[-1] if count else NO_LEADER_EPOCH
        self.latest_start_offset = self._start_offsets[-1] if count else NO_OFFSET

    def _write(self) -> None:
        with self._lock:
            try:
                self._store()
            except NoSuchFile:
                logger.debug("%s: its directory is gone", self._path)

    def _store(self) -> None:
        entries = self.entries()
        if entries != self._on_disk:
            data = format_epochs(entries)
            self._fs.write_atomically(self._path, data, syncs=self._is_synced)
            self._on_disk = entries
            self._digest = digest_of(data)
        self._is_behind = False
