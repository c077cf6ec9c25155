"""A log directory: one of the `log.dirs` of a broker, with its partitions.

    .lock                               locked as long as a broker uses the directory
    meta.properties                     the owner of the directory
    .kafka_cleanshutdown                exists between a clean shutdown and the next start
    recovery-point-offset-checkpoint    the offset up to which each partition is on the disk
    log-start-offset-checkpoint         the start offset of each partition, if it is not its first segment
    replication-offset-checkpoint       high watermarks
    cleaner-offset-checkpoint           the offset up to which each partition has been compacted
    log-start-…, cleaner-….copy         the same once more: they cannot be restored from anything else
    barnabas-partitions                 the partitions that have a log here (register.py)
    topic-partition/                    a partition's log

A directory whose disk has failed is offline from then on, and affects only its own partitions.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from barnabas.errors import KafkaStorageError
from barnabas.log import names
from barnabas.log.checkpoints import (
    BadCheckpoint,
    MetaProperties,
    read_checked_offsets,
    read_meta_properties,
    write_meta_properties,
    write_offsets,
)
from barnabas.log.file_system import CREATE, File, FileSystem, StorageFailure, storage_failure
from barnabas.log.register import PartitionRegister
from barnabas.model import Offset, TopicPartition
from barnabas.value import replace

logger = logging.getLogger(__name__)


# Without the first, deleted records would come back; without the second, a compacted log would seem to have holes.
COPIED: Final = (names.LOG_START_OFFSET_CHECKPOINT, names.CLEANER_OFFSET_CHECKPOINT)


class DirectoryInUse(KafkaStorageError):
    """Another broker, or another manager in this one, has locked the directory."""


# The system's locks keep other processes out, but not this one.
_locked_here: Final[set[str]] = set()
_locked_here_guard: Final = threading.Lock()


class DirectoryLock:
    """The lock of a directory, as Kafka takes it: neither can use a directory of the other's."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._path = os.path.join(directory, names.LOCK)
        self._key = os.path.realpath(self._path)
        self._file: File | None = None
        with _locked_here_guard:
            if self._key in _locked_here:
                raise self._in_use()
            file = fs.open(self._path, CREATE)
            try:
                fcntl.lockf(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                raise self._in_use() from None
            except OSError as error:
                raise storage_failure("lock", self._path, error.errno) from error
            _locked_here.add(self._key)
            self._file = file

    def release(self) -> None:
        """Closing the file unlocks it."""
        with _locked_here_guard:
            if self._file is not None:
                self._file = None
                _locked_here.discard(self._key)

    def _in_use(self) -> DirectoryInUse:
        return DirectoryInUse(
            f"{os.path.dirname(self._path)} is in use: another broker holds {self._path}."
            " Stop it, or give each broker log directories of its own"
        )


class LogDirectory:
    """One directory. It is opened once; every later storage failure in it goes through `fail`."""

    def __init__(self, fs: FileSystem, path: str, on_failure: Callable[[LogDirectory], None]) -> None:
        self.fs = fs
        self.path = path
        self.is_offline = False
        # Why it is offline.
        self.failure = ""
        self._on_failure = on_failure
        self._lock: DirectoryLock | None = None
        self._failure_guard = threading.Lock()
        self.meta: MetaProperties | None = None
        self.register = PartitionRegister(fs, self.file(names.PARTITION_REGISTER))
        # Held from the moment at which offsets are looked up to that at which they are written: newer ones win.
        self.checkpointing = threading.Lock()
        self.is_foreign = False
        """Whether another broker than ours used it last, which writes no checksums."""
        self._checkpoints: dict[str, Mapping[TopicPartition, int]] = {}

    def open(self, *, locks: bool = True) -> None:
        """Creates the directory if it does not exist, locks it, and reads its owner."""
        self.fs.make_dirs(self.path)
        if locks:
            self._lock = DirectoryLock(self.fs, self.path)
        try:
            self.meta = read_meta_properties(self.fs, self.file(names.META_PROPERTIES))
        except BadCheckpoint as error:
            logger.error("%s is ignored: %s", self.file(names.META_PROPERTIES), error)

    def close(self) -> None:
        self.register.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def file(self, name: str) -> str:
        return os.path.join(self.path, name)

    def claim(self, cluster_id: str, broker_id: int, directories: Sequence[str]) -> None:
        """Writes the owner of the directory, and the other directories in use."""
        meta = MetaProperties() if self.meta is None else self.meta
        meta = replace(
            meta,
            cluster_id=cluster_id,
            broker_id=broker_id,
            log_dirs=tuple(directories) if len(directories) > 1 else (),
        )
        if meta != self.meta:
            write_meta_properties(self.fs, self.file(names.META_PROPERTIES), meta)
            self.meta = meta

    def read_checkpoint(self, name: str) -> dict[TopicPartition, Offset]:
        """Offsets by partition. Damaged entries are ignored: they can be found again, or have a copy."""
        found = self._read_offsets(name)
        if found is None and name in COPIED:
            found = self._read_offsets(name + names.COPY_SUFFIX)
        return {} if found is None else found

    def _read_offsets(self, name: str) -> dict[TopicPartition, Offset] | None:
        path = self.file(name)
        try:
            found = read_checked_offsets(self.fs, path)
        except BadCheckpoint as error:
            logger.error("%s is ignored: %s", path, error)
            return None
        if found is None:
            return None
        if not found.is_checked and not self.is_foreign and self._has_copies():
            logger.error("%s is ignored: it has lost its checksum", path)
            return None
        return found.offsets

    def _has_copies(self) -> bool:
        """Whether a Barnabas broker has written the checkpoints."""
        return self.fs.exists(self.file(names.LOG_START_OFFSET_CHECKPOINT + names.COPY_SUFFIX))

    def has_foreign_checkpoint(self) -> bool:
        """Whether another broker than ours has written a checkpoint since ours used the directory.

        After a crash nothing else tells: the lists, copies and the register that ours left are out of date then.
        """
        for name in (names.REPLICATION_OFFSET_CHECKPOINT, names.RECOVERY_POINT_CHECKPOINT):
            try:
                found = read_checked_offsets(self.fs, self.file(name))
            except BadCheckpoint:
                continue
            if found is not None and found.is_foreign:
                return True
        return False

    def note_foreign(self) -> None:
        """Another broker has used the directory: its checkpoints count, and ours are out of date.

        So is our register: the other one may have removed logs.
        """
        self.is_foreign = True
        self.fs.remove(self.file(names.PARTITION_REGISTER), missing_ok=True)
        for name in COPIED:
            self.fs.remove(self.file(name + names.COPY_SUFFIX), missing_ok=True)

    def write_checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Does not write unchanged content again. The mapping must not change afterwards."""
        if self._checkpoints.get(name) == offsets:
            return
        if name in COPIED:
            write_offsets(self.fs, self.file(name + names.COPY_SUFFIX), offsets)
        write_offsets(self.fs, self.file(name), offsets)
        self._checkpoints[name] = offsets

    def note(
        self, change: Callable[[Iterable[TopicPartition]], None], partitions: Iterable[TopicPartition]
    ) -> None:
        """Adds to the register, or removes from it; a disk that does not take it has failed."""
        try:
            change(partitions)
        except StorageFailure as failure:
            self.fail(failure)

    def fail(self, failure: KafkaStorageError) -> None:
        """Takes the directory offline, once."""
        with self._failure_guard:
            if self.is_offline:
                return
            self.is_offline = True
            self.failure = str(failure)
        logger.error("log directory %s is offline: %s", self.path, failure)
        self.close()
        self._on_failure(self)

    def __repr__(self) -> str:
        return f"LogDirectory({self.path!r}{', offline' if self.is_offline else ''})"
