"""The interface between the log and the disk.

The log reads and writes only through these two protocols, so that tests can substitute a disk that fails, fills up, or
crashes and loses unsynced data. Paths are strings: there are hundreds of thousands of them.

A file's descriptor is closed when the last reference to the file is dropped; see primitives/file_slice.py. An error of
the operating system becomes a StorageFailure, with the operation, the path and the errno: the owner of the directory
takes it offline.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from barnabas.errors import KafkaStorageError
from barnabas.primitives.second_chance import SecondChance

if TYPE_CHECKING:
    import shutil

READ: Final = os.O_RDONLY
WRITE: Final = os.O_RDWR
CREATE: Final = os.O_RDWR | os.O_CREAT

TEMPORARY_SUFFIX: Final = ".tmp"
PRIVATE_PERMISSIONS: Final = 0o600

BOOT_ID_PATH: Final = "/proc/sys/kernel/random/boot_id"
UNKNOWN_BOOT: Final = "unknown"

OPEN_FILES_MAX: Final = 16_384
INDEX_MEMORY_BYTES: Final = 32 << 20
# How often the removal of a directory is begun while others remove files in it.
REMOVALS_MAX: Final = 1_000

Data = bytes | bytearray | memoryview

# fdatasync writes content and size, and may leave the times behind; macOS has none.
_sync_all: Final[Callable[[int], None]] = os.fsync
_sync_data: Final[Callable[[int], None]] = getattr(os, "fdatasync", os.fsync)


class StorageFailure(KafkaStorageError):
    """The disk did not carry out an operation."""

    def __init__(self, operation: str, path: str, error_number: int) -> None:
        super().__init__(f"cannot {operation} {path}: {os.strerror(error_number)}")
        self.operation = operation
        self.path = path
        self.error_number = error_number


class NoSuchFile(StorageFailure):
    """The path names nothing."""


def storage_failure(operation: str, path: str, error_number: int | None) -> StorageFailure:
    if error_number in (errno.ENOENT, errno.ENOTDIR):
        return NoSuchFile(operation, path, error_number)
    return StorageFailure(operation, path, errno.EIO if error_number is None else error_number)


class File(Protocol):
    """An open file. Reads and writes name their position, so that any number of threads may read it."""

    def pread(self, size_bytes: int, position: int) -> bytes:
        """The bytes at the position, fewer only where the file ends before."""

    def pwrite(self, data: Data, position: int) -> None:
        """Writes all data; after a failure any part of it may have been written."""

    def pwritev(self, parts: Sequence[Data], position: int) -> None:
        """The same for data in parts."""

    def truncate(self, size_bytes: int) -> None:
        """Cuts the file off, or extends it with zeros."""

    def sync(self) -> None:
        """Returns once content and size are on the disk."""

    def size_bytes(self) -> int: ...

    def fileno(self) -> int:
        """The descriptor, good as long as a reference to the file is held; see primitives/file_slice.py."""


class FileSystem(Protocol):
    """Its two pools bound what the segments on it hold: descriptors, and index entries in memory."""

    open_files: SecondChance
    index_memory: SecondChance

    def open(self, path: str, mode: int) -> File:
        """Opens in mode READ, WRITE (the file must exist) or CREATE (creates a missing file)."""

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def list_dir(self, path: str) -> list[str]:
        """The names in a directory, sorted."""

    def make_dirs(self, path: str, *, syncs: bool = True) -> bool:
        """Makes the directory and those above it that are missing, and syncs what it made, or only those above.

        Returns whether the directory was missing.
        """

    def rename(self, old_path: str, new_path: str) -> None:
        """Renames a file or directory at once; a file that has the new name is replaced."""

    def remove(self, path: str, *, missing_ok: bool = False) -> None: ...

    def remove_tree(self, path: str) -> None:
        """Removes a directory with all its content; a missing directory is no error."""

    def sync_dir(self, path: str) -> None:
        """Returns when the directory's entries (creations, renames, removals) are on the disk."""

    def read_file(self, path: str) -> bytes: ...

    def write_atomically(
        self, path: str, data: Data, *, syncs: bool = True, is_private: bool = False
    ) -> None:
        """After a crash the path holds the old content or the new, never a part; on return the new is on the disk.

        Without syncs that is so after a crash of the process, but not of the machine. Only the user of this process
        may read a private file.
        """

    def make_private(self, path: str) -> None:
        """Lets only the user of this process read the file from now on."""

    def size_of(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None: ...

    def free_bytes(self, path: str) -> int: ...

    def total_bytes(self, path: str) -> int: ...

    def boot_id(self) -> str:
        """Names the current run of the machine. Unsynced data of another run may be lost; without spaces."""


class DiskFile:
    __slots__ = ("_descriptor", "_path")

    def __init__(self, path: str, mode: int, permissions: int = 0o644) -> None:
        self._descriptor = -1
        self._path = path
        try:
            self._descriptor = os.open(path, mode, permissions)
        except OSError as error:
            raise storage_failure("open", path, error.errno) from error

    def __del__(self) -> None:
        if self._descriptor >= 0:
            descriptor = self._descriptor
            self._descriptor = -1
            os.close(descriptor)

    def pread(self, size_bytes: int, position: int) -> bytes:
        try:
            data = os.pread(self._descriptor, size_bytes, position)
            if len(data) == size_bytes:
                return data
            # Linux reads at most 2 GiB less a page at once, and a signal may cut a read short.
            parts = [data]
            missing_bytes = size_bytes - len(data)
            while data and missing_bytes:
                data = os.pread(self._descriptor, missing_bytes, position + size_bytes - missing_bytes)
                parts.append(data)
                missing_bytes -= len(data)
        except OSError as error:
            raise storage_failure("read", self._path, error.errno) from error
        return b"".join(parts)

    def pwrite(self, data: Data, position: int) -> None:
        size_bytes = len(data)
        try:
            written_bytes = os.pwrite(self._descriptor, data, position)
            # A disk that is nearly full takes a part, and refuses the rest.
            while written_bytes < size_bytes:
                with memoryview(data) as view, view[written_bytes:] as rest:
                    written_bytes += os.pwrite(self._descriptor, rest, position + written_bytes)
        except OSError as error:
            raise storage_failure("write", self._path, error.errno) from error

    def pwritev(self, parts: Sequence[Data], position: int) -> None:
        try:
            written_bytes = os.pwritev(self._descriptor, parts, position)
        except OSError as error:
            raise storage_failure("write", self._path, error.errno) from error
        if written_bytes < sum(map(len, parts)):
            self.pwrite(b"".join(parts)[written_bytes:], position + written_bytes)

    def truncate(self, size_bytes: int) -> None:
        try:
            os.ftruncate(self._descriptor, size_bytes)
        except OSError as error:
            raise storage_failure("truncate", self._path, error.errno) from error

    def sync(self) -> None:
        self.sync_by(_sync_data)

    def sync_by(self, sync: Callable[[int], None]) -> None:
        try:
            sync(self._descriptor)
        except OSError as error:
            raise storage_failure("sync", self._path, error.errno) from error

    def size_bytes(self) -> int:
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise storage_failure("stat", self._path, error.errno) from error

    def fileno(self) -> int:
        return self._descriptor

    def __repr__(self) -> str:
        return f"DiskFile({self._path!r})"


class DiskFileSystem:
    __slots__ = ("index_memory", "open_files")

    def __init__(
        self, *, open_files_max: int | None = None, index_memory_bytes: int = INDEX_MEMORY_BYTES
    ) -> None:
        if open_files_max is None:
            # The other half is for connections.
            soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            open_files_max = OPEN_FILES_MAX if soft_limit < 0 else min(OPEN_FILES_MAX, soft_limit // 2)
        self.open_files = SecondChance(open_files_max)
        self.index_memory = SecondChance(index_memory_bytes)

    def open(self, path: str, mode: int) -> DiskFile:
        return DiskFile(path, mode)

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise storage_failure("stat", path, error.errno) from error
        return True

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def list_dir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except OSError as error:
            raise storage_failure("list", path, error.errno) from error

    def make_dirs(self, path: str, *, syncs: bool = True) -> bool:
        missing: list[str] = []
        ancestor = os.path.abspath(path)
        while not os.path.isdir(ancestor):
            missing.append(ancestor)
            ancestor = os.path.dirname(ancestor)
        try:
            for directory in reversed(missing):
                try:
                    os.mkdir(directory)
                except FileExistsError:
                    # Another broker of this host may have made it in the meantime.
                    if not os.path.isdir(directory):
                        raise
        except OSError as error:
            raise storage_failure("make directory", path, error.errno) from error
        for directory in reversed(missing if syncs else missing[1:]):
            self.sync_dir(os.path.dirname(directory))
        return bool(missing)

    def rename(self, old_path: str, new_path: str) -> None:
        try:
            os.replace(old_path, new_path)
        except OSError as error:
            raise storage_failure(f"rename to {new_path}", old_path, error.errno) from error

    def remove(self, path: str, *, missing_ok: bool = False) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError as error:
            if not missing_ok:
                raise storage_failure("remove", path, error.errno) from error
        except OSError as error:
            raise storage_failure("remove", path, error.errno) from error

    def remove_tree(self, path: str) -> None:
        import shutil

        for _ in range(REMOVALS_MAX):
            try:
                shutil.rmtree(path)
                return
            except FileNotFoundError:
                # There is nothing, or another thread has just removed one of the files.
                if not os.path.isdir(path):
                    return
            except OSError as error:
                raise storage_failure("remove", path, error.errno) from error
        raise storage_failure("remove", path, errno.ENOTEMPTY)

    def sync_dir(self, path: str) -> None:
        DiskFile(path, READ).sync_by(_sync_all)

    def read_file(self, path: str) -> bytes:
        file = DiskFile(path, READ)
        return file.pread(file.size_bytes(), 0)

    def make_private(self, path: str) -> None:
        if self._stat(path).st_mode & 0o077:
            try:
                os.chmod(path, PRIVATE_PERMISSIONS)
            except OSError as error:
                raise storage_failure("change the permissions of", path, error.errno) from error

    def write_atomically(
        self, path: str, data: Data, *, syncs: bool = True, is_private: bool = False
    ) -> None:
        temporary_path = path + TEMPORARY_SUFFIX
        if is_private:
            # One that a crash has left may have other permissions.
            self.remove(temporary_path, missing_ok=True)
            file = DiskFile(temporary_path, CREATE | os.O_TRUNC, PRIVATE_PERMISSIONS)
        else:
            file = DiskFile(temporary_path, CREATE | os.O_TRUNC)
        file.pwrite(data, 0)
        if syncs:
            file.sync()
        self.rename(temporary_path, path)
        if syncs:
            self.sync_dir(os.path.dirname(path) or ".")

    def size_of(self, path: str) -> int:
        return self._stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return self._stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        try:
            os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))
        except OSError as error:
            raise storage_failure("set the time of", path, error.errno) from error

    def free_bytes(self, path: str) -> int:
        return self._disk_usage(path).free

    def total_bytes(self, path: str) -> int:
        return self._disk_usage(path).total

    def boot_id(self) -> str:
        try:
            with open(BOOT_ID_PATH) as file:
                return file.read().strip()
        except OSError:
            # Not Linux. All runs of the machine count as one.
            return UNKNOWN_BOOT

    def _stat(self, path: str) -> os.stat_result:
        try:
            return os.stat(path)
        except OSError as error:
            raise storage_failure("stat", path, error.errno) from error

    def _disk_usage(self, path: str) -> shutil._ntuple_diskusage:
        import shutil

        try:
            return shutil.disk_usage(path)
        except OSError as error:
            raise storage_failure("measure the disk of", path, error.errno) from error
