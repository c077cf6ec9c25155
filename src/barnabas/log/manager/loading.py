"""Opening all logs of one log directory.

After a clean shutdown this is a matter of listing directories, and one thread is as fast as many. After a crash several
logs are recovered at a time: reading files and computing checksums run in parallel, decoding does not.
"""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Final, Protocol

from barnabas.errors import KafkaError
from barnabas.log import names
from barnabas.log.checkpoints import read_clean_shutdown
from barnabas.log.directory import LogDirectory
from barnabas.log.file_system import StorageFailure
from barnabas.log.names import METADATA_TOPIC
from barnabas.log.partition.environment import PriorState
from barnabas.log.partition.loader import OnSegmentRecovered
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.model import TopicPartition
from barnabas.value import Value

logger = logging.getLogger(__name__)

# As many logs are named in one line.
NAMED_MAX: Final = 10
# Files of a broker with tiered storage beside the partitions.
REMOTE_INDEX_CACHE: Final = "remote-log-index-cache"


class LoadProgress(Value, kw_only=True):
    """How far the opening of a directory is; `remaining_segments` are those of logs under recovery."""

    directory: str
    is_clean: bool
    total_logs: int
    loaded_logs: int
    remaining_segments: int


OnProgress = Callable[[LoadProgress], None]


class OpenLog(Protocol):
    def __call__(
        self,
        directory: LogDirectory,
        name: str,
        prior: PriorState,
        *,
        on_segment_recovered: OnSegmentRecovered,
    ) -> PartitionLog: ...


class LoadedDirectory:
    def __init__(self) -> None:
        self.current: list[PartitionLog] = []
        self.future: list[PartitionLog] = []
        # Paths of partitions that are to be removed.
        self.deleted: list[str] = []
        # Partitions whose log is beyond help, and where it lies.
        self.unopened: dict[TopicPartition, str] = {}
        # Partitions whose log was here and is not, or has no segment any more, and where that was.
        self.lost: dict[TopicPartition, str] = {}
        self.is_complete = True


def load_directory(
    directory: LogDirectory,
    open_log: OpenLog,
    threads: int,
    on_progress: OnProgress,
    *,
    misses_logs: bool = True,
) -> LoadedDirectory:
    """Opens every log.

    Raises StorageFailure if the disk fails; logs the name of a log that cannot be opened and skips it.
    """
    fs = directory.fs
    clean_shutdown_path = directory.file(names.CLEAN_SHUTDOWN)
    stop = read_clean_shutdown(fs, clean_shutdown_path)
    is_clean = stop is not None
    lists_side_files = not directory.has_foreign_checkpoint() if stop is None else stop.lists_side_files
    if not lists_side_files:
        logger.info("%s: another broker than Barnabas has used the logs last", directory.path)
        directory.note_foreign()
    if fs.exists(clean_shutdown_path):
        # A crash from here on is a crash, even before anything has been written.
        fs.remove(clean_shutdown_path)
        fs.sync_dir(directory.path)
    loaded = LoadedDirectory()
    found = _partition_dirs(directory, loaded)
    if found:
        left_by = "a clean stop" if is_clean else "a crash"
        logger.info("%s: opening %d logs after %s", directory.path, len(found), left_by)
    loading = _Loading(directory, open_log, is_clean, lists_side_files, len(found), on_progress, loaded)
    registered = directory.register.load(loading.recovery_points) if misses_logs else set()
    present = {parsed.partition for _, parsed in found if not parsed.mark}
    for partition in registered - present:
        loaded.lost[partition] = directory.file(names.partition_dir(partition))
    loading.expected = registered
    gone = directory.register.unflushed - present
    if gone:
        logger.warning(
            "%s: %d logs of which nothing was flushed are gone since the machine was restarted: %s",
            directory.path,
            len(gone),
            ", ".join(map(str, sorted(gone)[:NAMED_MAX])),
        )
    with _without_collections():
        loading.load_all(found, 1 if is_clean else threads)
    if misses_logs:
        directory.register.add(present)
        directory.register.note_missing(loaded.lost)
    return loaded


@contextmanager
def _without_collections() -> Iterator[None]:
    """Objects created while logs are opened stay: a search through them for garbage would cost a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _partition_dirs(
    directory: LogDirectory, loaded: LoadedDirectory
) -> list[tuple[str, names.PartitionDirName]]:
    found = []
    for name in directory.fs.list_dir(directory.path):
        path = directory.file(name)
        if not directory.fs.is_dir(path):
            continue
        try:
            parsed = names.parse_partition_dir(name)
        except names.BadDirectoryName as error:
            if name not in (REMOTE_INDEX_CACHE, names.HOST_BROKERS):
                logger.warning("%s is left alone: %s", path, error)
            continue
        if parsed.mark == names.DELETE_DIR_SUFFIX:
            loaded.deleted.append(path)
        elif parsed.mark == names.STRAY_DIR_SUFFIX:
            logger.warning("%s belongs to no known partition and is left alone", path)
        elif parsed.partition.topic != METADATA_TOPIC:
            found.append((name, parsed))
    return found


class _Loading:
    def __init__(
        self,
        directory: LogDirectory,
        open_log: OpenLog,
        is_clean: bool,
        lists_side_files: bool,
        total_logs: int,
        on_progress: OnProgress,
        loaded: LoadedDirectory,
    ) -> None:
        self._directory = directory
        self._open_log = open_log
        self._is_clean = is_clean
        self._lists_side_files = lists_side_files
        self._total_logs = total_logs
        self._on_progress = on_progress
        self._loaded = loaded
        self._loaded_logs = 0
        self._remaining_segments: dict[str, int] = {}
        self._lock = threading.Lock()
        # Partitions that have had a log here: it has a segment at least.
        self.expected: set[TopicPartition] = set()
        self.recovery_points = directory.read_checkpoint(names.RECOVERY_POINT_CHECKPOINT)
        self._log_start_offsets = directory.read_checkpoint(names.LOG_START_OFFSET_CHECKPOINT)
        self._high_watermarks = directory.read_checkpoint(names.REPLICATION_OFFSET_CHECKPOINT)
        self._cleaned: set[TopicPartition] = set(directory.read_checkpoint(names.CLEANER_OFFSET_CHECKPOINT))

    def load_all(self, found: list[tuple[str, names.PartitionDirName]], threads: int) -> None:
        if threads == 1:
            for name, parsed in found:
                self.load(name, parsed)
            return
        with ThreadPoolExecutor(threads, thread_name_prefix="log-recovery") as pool:
            futures = [pool.submit(self.load, name, parsed) for name, parsed in found]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def load(self, name: str, parsed: names.PartitionDirName) -> None:
        partition = parsed.partition
        log: PartitionLog | None = None
        try:
            if not parsed.mark and partition in self.expected and not self._has_segments(name):
                self._loaded.lost[partition] = self._directory.file(name)
            else:
                log = self._open(name, partition)
        except StorageFailure:
            raise
        except KafkaError as error:
            logger.error("%s cannot be opened and is left alone: %s", self._directory.file(name), error)
            self._loaded.is_complete = False
            if not parsed.mark:
                self._loaded.unopened[partition] = self._directory.file(name)
        with self._lock:
            self._loaded_logs += 1
            self._remaining_segments.pop(name, None)
            if log is not None:
                (self._loaded.future if parsed.mark else self._loaded.current).append(log)
            self._tell()

    def _open(self, name: str, partition: TopicPartition) -> PartitionLog:
        log = self._open_log(
            self._directory,
            name,
            PriorState(
                recovery_point=self.recovery_points.get(partition, 0),
                log_start_offset=self._log_start_offsets.get(partition, 0),
                clean_shutdown=self._is_clean,
                lists_side_files=self._lists_side_files,
                is_gapless=partition not in self._cleaned,
            ),
            on_segment_recovered=partial(self._note_segments, name),
        )
        if partition in self._high_watermarks:
            log.update_high_watermark(self._high_watermarks[partition])
        return log

    def _has_segments(self, name: str) -> bool:
        files = map(names.parse_segment_file, self._directory.fs.list_dir(self._directory.file(name)))
        # All of them are `.deleted` if a crash interrupted a truncation of the whole log: then it is empty, not lost.
        states = ("", names.SWAP_SUFFIX, names.DELETED_SUFFIX)
        return any(file and file.kind == names.LOG_SUFFIX and file.state in states for file in files)

    def _note_segments(self, name: str, remaining: int) -> None:
        with self._lock:
            self._remaining_segments[name] = remaining
            self._tell()

    def _tell(self) -> None:
        self._on_progress(
            LoadProgress(
                directory=self._directory.path,
                is_clean=self._is_clean,
                total_logs=self._total_logs,
                loaded_logs=self._loaded_logs,
                remaining_segments=sum(self._remaining_segments.values()),
            )
        )
