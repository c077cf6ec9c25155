"""Keeps two supervisors apart, and lets one wait for what is left of another.

The supervisor locks a file in the first log directory for as long as it runs, and removes it when everything has ended
in order. A file that is there and not locked says that a supervisor was killed: its brokers may still be ending. Locks
of this kind are not inherited by the brokers, and end with the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Sequence
from typing import Final

from barnabas.errors import KafkaStorageError
from barnabas.log import names
from barnabas.log.directory import DirectoryInUse

log = logging.getLogger("barnabas.server")

HOST_LOCK: Final = "barnabas-host.lock"
# A killed supervisor's brokers flush their logs before they end.
LEFTOVER_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.05


class HostLock:
    def __init__(self, directory: str) -> None:
        """Raises DirectoryInUse if another supervisor runs there, KafkaStorageError if the disk refuses."""
        self._path = os.path.join(directory, HOST_LOCK)
        try:
            os.makedirs(directory, exist_ok=True)
            # Whether the last supervisor has ended without removing it.
            self.is_leftover = self.is_left_in(directory)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise KafkaStorageError(
                f"cannot write to {directory}: {error.strerror}. Make it writable, or choose another with --override"
                " log.dirs=DIRECTORY"
            ) from error
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise DirectoryInUse(
                f"{directory} is in use: another `barnabas start --brokers` holds {self._path}. Stop it, or choose"
                " another directory with --override log.dirs=DIRECTORY"
            ) from None

    @staticmethod
    def is_left_in(directory: str) -> bool:
        """Whether a supervisor runs there, or has ended without removing its lock."""
        return os.path.exists(os.path.join(directory, HOST_LOCK))

    def release(self) -> None:
        """For the end of a supervisor that leaves nothing behind."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        os.close(self._file)


def wait_for_leftovers(directories: Sequence[str], timeout_s: float = LEFTOVER_TIMEOUT_S) -> None:
    """Until no process holds one of the log directories. Raises DirectoryInUse."""
    deadline_s = time.monotonic() + timeout_s
    has_told = False
    for directory in directories:
        while _is_held(directory):
            if time.monotonic() > deadline_s:
                raise DirectoryInUse(
                    f"{directory} is still in use after {timeout_s:.0f} s, by a broker of a supervisor that was killed:"
                    " end that process and start again"
                )
            if not has_told:
                has_told = True
                log.warning(
                    "%s is in use by a broker of a supervisor that was killed. Waiting up to %.0f s for its end",
                    directory,
                    timeout_s,
                )
            time.sleep(_POLL_S)


def _is_held(directory: str) -> bool:
    # The store locks the directory itself, and a broker locks a file in it, as Kafka does.
    tried = (
        (directory, os.O_RDONLY, fcntl.flock),
        (os.path.join(directory, names.LOCK), os.O_RDWR, fcntl.lockf),
    )
    for path, flags, lock in tried:
        try:
            file = os.open(path, flags | os.O_CLOEXEC)
        except OSError:
            # What is not there is not held. What cannot be opened is reported by its broker.
            continue
        try:
            lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(file)
    return False
