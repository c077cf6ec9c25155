"""A broker for a test: a separate process on a free port, with a directory that is removed afterwards.

    with barnabas.testing.Broker(topics={"orders": 3}, log_retention_ms=1000) as broker:
        producer = barnabas.Producer(bootstrap_servers=broker.bootstrap)

The broker is `barnabas start`, as users run it. A pair of sockets connects it to this process. Over this pair it
reports that it is ready, and its port. When this process ends, in whatever way, the broker ends too.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from barnabas.testing.clients import Clients
from barnabas.testing.ports import HOST, free_port

if TYPE_CHECKING:
    from barnabas.client.admin.admin import Admin

LISTENER: Final = "PLAINTEXT"

# These bound a wait on a busy machine; they are not expected times.
START_TIMEOUT_S: Final = 90.0
STOP_TIMEOUT_S: Final = 90.0
_PORT_ATTEMPTS: Final = 5
_PORT_TAKEN: Final = "another process listens there"
_SHOWN_CHARACTERS: Final = 4_000
_ANSWER_BYTES_MAX: Final = 4_096

# A test broker waits for no other members, keeps records whatever their timestamps are, and needs few internal
# partitions.
SETTINGS: Final[Mapping[str, str]] = {
    "group.initial.rebalance.delay.ms": "0",
    "log.initial.task.delay.ms": "3600000",
    "log.retention.ms": "-1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


class BrokerFailed(RuntimeError):
    """The broker did not start or ended by itself; the message has the last lines that it wrote."""


class Broker(Clients):
    """A running broker; use it in a `with`, or call `start` and `close`.

    Settings are Kafka's, with underscores for dots: `num_partitions=3`. With a `directory` the data stays there.
    """

    def __init__(
        self,
        *,
        topics: Iterable[str] | Mapping[str, int] = (),
        directory: str | os.PathLike[str] | None = None,
        port: int | None = None,
        **settings: object,
    ) -> None:
        self._topics = topic_counts(topics)
        self._given_directory = None if directory is None else Path(directory)
        self._given_port = port
        self._port = port or 0
        self._settings = _broker_settings(settings)
        self._folder: Path | None = None
        self._log_position = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._supervision: socket.socket | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def port(self) -> int:
        """The same over restarts."""
        assert self._port, "the broker has not been started"
        return self._port

    @property
    def bootstrap(self) -> str:
        """The value for `bootstrap_servers` of a client."""
        return f"{HOST}:{self.port}"

    @property
    def directory(self) -> Path:
        """Where the partitions lie."""
        if self._given_directory is not None:
            return self._given_directory
        assert self._folder is not None, "the broker has not been started"
        return self._folder / "data"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Returns when the broker answers and has the topics that were asked for."""
        assert self._process is None, "the broker is running"
        is_first = self._folder is None
        if is_first:
            self._folder = Path(tempfile.mkdtemp(prefix="barnabas-"))
        try:
            self._start_on_a_port(is_first=is_first)
            if is_first and self._topics:
                self.create_topics(self._topics)
        except BaseException:
            if is_first:
                self.close()
            raise

    def _start_on_a_port(self, *, is_first: bool) -> None:
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            if is_first and self._given_port is None:
                self._port = free_port()
            try:
                self._start()
            except BrokerFailed as error:
                # Another process may have taken the port since it was found to be free.
                may_retry = is_first and self._given_port is None and _PORT_TAKEN in str(error)
                if not may_retry or attempt == _PORT_ATTEMPTS:
                    raise
            else:
                return

    def _start(self) -> None:
        self._log_position = self._log_path.stat().st_size if self._log_path.exists() else 0
        ours, theirs = socket.socketpair()
        with theirs, self._log_path.open("ab") as output:
            self._supervision = ours
            self._process = subprocess.Popen(
                self._command(theirs.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
            )
        ours.settimeout(START_TIMEOUT_S)
        try:
            answer = ours.recv(_ANSWER_BYTES_MAX)
        except TimeoutError:
            answer = b""
        if not answer:
            self.kill()
            raise BrokerFailed(f"the broker did not start:\n{self.log()[-_SHOWN_CHARACTERS:]}")
        self._port = json.loads(answer)["ports"].get(LISTENER, self._port)

    def _command(self, supervisor_fd: int) -> list[str]:
        settings = {
            **SETTINGS,
            "listeners": f"{LISTENER}://{HOST}:{self._port}",
            "log.dirs": str(self.directory),
            **self._settings,
        }
        return [
            *(sys.executable, "-m", "barnabas", "start", "--supervisor-fd", str(supervisor_fd)),
            *(word for name, value in settings.items() for word in ("--override", f"{name}={value}")),
        ]

    def stop(self) -> None:
        """Stops the broker in order; `start` runs it again on the same port and data."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            exit_code = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFailed(f"the broker did not stop within {STOP_TIMEOUT_S:g} s") from None
        self._forget_process()
        if exit_code != 0:
            raise BrokerFailed(f"the broker ended with {exit_code}:\n{self.log()[-_SHOWN_CHARACTERS:]}")

    def kill(self) -> None:
        """Kills the broker at once, like a crash."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget_process()

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        """Stops the broker and removes its data, unless the caller gave the directory."""
        try:
            # The data is removed, so it need not be left in order.
            self.kill() if self._given_directory is None else self.stop()
        finally:
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None

    def _forget_process(self) -> None:
        self._process = None
        if self._supervision is not None:
            self._supervision.close()
            self._supervision = None

    @property
    def _log_path(self) -> Path:
        assert self._folder is not None, "the broker has not been started"
        return self._folder / "broker.log"

    def log(self) -> str:
        """The output of the broker since its last start."""
        with contextlib.suppress(FileNotFoundError), self._log_path.open("rb") as written:
            written.seek(self._log_position)
            return written.read().decode(errors="replace")
        return ""

    def reset(self) -> None:
        """Deletes all topics and groups that clients have created; the broker's internal topics exist again, empty."""
        with self.admin() as admin:
            groups = [group.group_id for group in admin.list_groups()]
            if groups:
                _delete_groups(admin, groups)
            topics = [topic.name for topic in admin.list_topics()]
            if topics:
                admin.delete_topics(topics)
            if self._topics:
                admin.create_topics(self._topics)


def topic_counts(topics: Iterable[str] | Mapping[str, int]) -> dict[str, int]:
    """Numbers of partitions by topic: one, if only names are given."""
    if isinstance(topics, Mapping):
        return dict(topics)
    # A text is an iterable of texts too, and no test wants a topic a letter.
    return dict.fromkeys([topics] if isinstance(topics, str) else topics, 1)


def _broker_settings(settings: Mapping[str, object]) -> dict[str, str]:
    from barnabas.config.broker_settings import broker_settings, nearest_name
    from barnabas.config.definition import UnknownSetting

    named = {name.replace("_", "."): _text(value) for name, value in settings.items()}
    for name in named.keys() - broker_settings().keys():
        nearest = nearest_name(name)
        hint = "" if nearest is None else f"; did you mean {nearest.replace('.', '_')}?"
        raise UnknownSetting(f"there is no setting {name.replace('.', '_')} of a broker{hint}")
    return named


def _text(value: object) -> str:
    """A setting's value as a file has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(_text(item) for item in value)
    return str(value)


def _delete_groups(admin: Admin, groups: list[str]) -> None:
    """Members that a test has left in a group do not prevent its deletion."""
    from barnabas.errors import GroupIdNotFound, NonEmptyGroup

    for group in groups:
        with contextlib.suppress(GroupIdNotFound):
            try:
                admin.delete_groups([group])
            except NonEmptyGroup:
                admin.remove_members(group)
                admin.delete_groups([group])
