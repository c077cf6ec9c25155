"""The state of a broker's log directories before it opens them: their owner, and whether they can be used.

A directory that was in use before and is empty now is most likely a disk that is not mounted: it stays offline, like
one whose disk has failed, until the user mounts it or accepts the loss. The other directories show that it was in use.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Sequence
from typing import Final

from barnabas.errors import InvalidConfig, KafkaStorageError
from barnabas.log import names
from barnabas.log.checkpoints import (
    BadCheckpoint,
    MetaProperties,
    read_clean_shutdown,
    read_meta_properties,
)
from barnabas.log.file_system import CREATE, FileSystem, StorageFailure

logger = logging.getLogger(__name__)

PROBE: Final = ".barnabas-probe"
PROBE_BYTES: Final = 4096


class FoundDirectories:
    """The result for all directories together."""

    def __init__(self) -> None:
        self.broker_id: int | None = None
        self.cluster_id: str | None = None
        # Whether all of them were left in order.
        self.is_clean = True
        # Those that were in use before and are empty now.
        self.emptied: list[str] = []
        # Other directories that were in use before, beside these.
        self.unnamed_directories: list[str] = []


def find_directories(fs: FileSystem, directories: Sequence[str]) -> FoundDirectories:
    """Looks at the directories and changes nothing. Raises InvalidConfig if they are of different brokers."""
    found = FoundDirectories()
    metas: dict[str, MetaProperties] = {}
    in_use = set()
    for directory in directories:
        try:
            meta = _read_meta(fs, directory)
            has_data = _has_partitions(fs, directory)
            is_clean = read_clean_shutdown(fs, os.path.join(directory, names.CLEAN_SHUTDOWN)) is not None
        except StorageFailure as failure:
            logger.error("%s cannot be read: %s", directory, failure)
            # The message at its opening is enough.
            in_use.add(directory)
            continue
        if meta is not None:
            metas[directory] = meta
        elif has_data and not fs.exists(os.path.join(directory, names.META_PROPERTIES)):
            logger.warning(
                "%s has partitions but no %s: it is written again", directory, names.META_PROPERTIES
            )
        if meta is not None or has_data:
            in_use.add(directory)
            found.is_clean = found.is_clean and is_clean
    _agree(found, metas)
    siblings = {path for meta in metas.values() for path in meta.log_dirs}
    found.emptied = [each for each in directories if each in siblings and each not in in_use]
    found.unnamed_directories = sorted(siblings.difference(directories))
    return found


def emptied(directory: str) -> KafkaStorageError:
    return KafkaStorageError(
        f"{directory} was in use before and is empty now. If its disk is not mounted, mount it and start again. If its"
        f" records are lost for good, start once with --override barnabas.accept.loss={directory}"
    )


def _agree(found: FoundDirectories, metas: dict[str, MetaProperties]) -> None:
    brokers = {path: meta.broker_id for path, meta in metas.items() if meta.broker_id is not None}
    clusters = {path: meta.cluster_id for path, meta in metas.items() if meta.cluster_id is not None}
    for what, values in (("broker ids", brokers), ("cluster ids", clusters)):
        if len(set(values.values())) > 1:
            listed = ", ".join(f"{value} in {path}" for path, value in values.items())
            raise InvalidConfig(
                f"the log directories have different {what} in their {names.META_PROPERTIES}: {listed}. They belong to"
                " different brokers, or one file is damaged: then remove that file, and it is written again"
            )
    found.broker_id = next(iter(brokers.values()), None)
    found.cluster_id = next(iter(clusters.values()), None)


def _read_meta(fs: FileSystem, directory: str) -> MetaProperties | None:
    path = os.path.join(directory, names.META_PROPERTIES)
    try:
        return read_meta_properties(fs, path)
    except BadCheckpoint as error:
        logger.error("%s is damaged, and is written again: %s", path, error)
        return None


def _has_partitions(fs: FileSystem, directory: str) -> bool:
    if not fs.is_dir(directory):
        return False
    for name in fs.list_dir(directory):
        try:
            names.parse_partition_dir(name)
        except names.BadDirectoryName:
            continue
        if fs.is_dir(os.path.join(directory, name)):
            return True
    return False


def probe(fs: FileSystem, directory: str) -> None:
    """Raises StorageFailure if nothing can be written there."""
    path = os.path.join(directory, PROBE)
    fs.open(path, CREATE).pwrite(bytes(PROBE_BYTES), 0)
    fs.remove(path)


def explained(fs: FileSystem, directory: str, failure: StorageFailure) -> KafkaStorageError:
    """The failure with what a person can do about it."""
    match failure.error_number:
        case errno.EACCES | errno.EPERM | errno.EROFS:
            advice = f"Make it writable for user {_user()}, or choose another"
        case errno.ENOSPC | errno.EDQUOT:
            advice = f"Make room there ({_free(fs, directory)}) and start again, or choose another"
        case errno.ENOTDIR | errno.EEXIST:
            advice = "A file is in the way. Remove it, or choose another directory"
        case errno.ENOENT:
            advice = "It cannot be created there. Choose another directory"
        case errno.EMFILE | errno.ENFILE:
            return KafkaStorageError(f"{failure}. Allow more open files (ulimit -n) and start again")
        case _:
            advice = "Look after the disk, or choose another"
    return KafkaStorageError(f"{failure}. {advice} with --override log.dirs=DIRECTORY")


def _user() -> str:
    try:
        import getpass

        return getpass.getuser()
    except (KeyError, OSError):
        # In a container the user may have no name.
        return str(os.geteuid())


def _free(fs: FileSystem, directory: str) -> str:
    try:
        return f"{fs.free_bytes(directory):,} of {fs.total_bytes(directory):,} bytes are free"
    except StorageFailure:
        return "the disk is full"
