"""A broker for a test: a separate process on a free port, with a directory that is removed afterwards.

    with barnabas.testing.Broker(topics={"orders": 3}, log_retention_ms=1000) as broker:
        producer = barnabas.Producer(bootstrap_servers=broker.bootstrap)

The broker is `barnabas start`, as users run it. A pair of sockets connects it to this process. Over this pair it
reports that it is ready, and its port. When this process ends, in whatever way, the broker ends too.

`Broker(brokers=3)` is three brokers on one host, `barnabas start --brokers 3`.
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
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from barnabas.testing.clients import Clients
from barnabas.testing.ports import HOST, free_port, free_ports
from barnabas.testing.security import new_security

if TYPE_CHECKING:
    from barnabas.client.admin.admin import Admin
    from barnabas.client.admin.results import CreatedTopic, TopicListing

LISTENER: Final = "PLAINTEXT"

# These bound a wait on a busy machine; they are not expected times.
START_TIMEOUT_S: Final = 90.0
STOP_TIMEOUT_S: Final = 90.0
LEADERS_TIMEOUT_S: Final = 10.0
_PORT_ATTEMPTS: Final = 5
_PORT_TAKEN: Final = "another process listens there"
_SHOWN_CHARACTERS: Final = 4_000
_ANSWER_BYTES_MAX: Final = 4_096
_POLL_S: Final = 0.01

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

    `security` is a security protocol, such as "sasl_ssl": the broker gets certificates of its own, and `users`, by name
    and password, log in with SCRAM or PLAIN. Clients of this object log in as the first of them; `client_settings` has
    the settings for other clients.
    """

    def __init__(
        self,
        *,
        topics: Iterable[str] | Mapping[str, int] = (),
        directory: str | os.PathLike[str] | None = None,
        port: int | None = None,
        brokers: int = 1,
        security: str = "plaintext",
        users: Mapping[str, str] | None = None,
        **settings: object,
    ) -> None:
        """`port` is that of the first of several brokers; the others have the next ones. With 0 the system chooses."""
        assert brokers > 0, "there is at least one broker"
        self._brokers = brokers
        self._topics = topic_counts(topics)
        self._security = new_security(security, users)
        self._given_directory = None if directory is None else Path(directory)
        self._given_port = port
        # What the command gets, and what the brokers have, in the order of their ids.
        self._port = port or 0
        self._ports = tuple(range(port, port + brokers)) if port else ()
        self._settings = _broker_settings(settings)
        self._folder: Path | None = None
        self._log_position = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._supervision: socket.socket | None = None
        self._reports = b""
        self._report: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def port(self) -> int:
        """That of the first broker. It is the same over restarts, unless several brokers have `port=0`."""
        return self.ports[0]

    @property
    def ports(self) -> tuple[int, ...]:
        """Those of all brokers, in the order of their ids."""
        if self._has_free_ports and self._supervision is not None:
            # A broker whose port another process has taken comes back at another one.
            self._read_reports()
        assert self._ports, "the broker has not been started"
        return self._ports

    @property
    def _has_free_ports(self) -> bool:
        return self._brokers > 1 and self._given_port == 0

    @property
    def bootstrap(self) -> str:
        """The value for `bootstrap_servers` of a client."""
        return ",".join(f"{HOST}:{port}" for port in self.ports)

    @property
    def security_settings(self) -> Mapping[str, str]:
        return {} if self._security is None else self._security.client_settings()

    @property
    def _listener(self) -> str:
        return LISTENER if self._security is None else self._security.protocol

    def _security_settings(self) -> Mapping[str, str]:
        if self._security is None:
            return {}
        assert self._folder is not None
        return self._security.broker_settings(self._folder, self._settings)

    @property
    def directory(self) -> Path:
        """Where the partitions lie. Of several brokers, all but the first have theirs in `barnabas-brokers` there."""
        if self._given_directory is not None:
            return self._given_directory
        assert self._folder is not None, "the broker has not been started"
        return self._folder / "data"

    @property
    def pid(self) -> int:
        """The process that was started. Of several brokers it is the supervisor."""
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    @property
    def pids(self) -> dict[int, int]:
        """The processes of several brokers by their ids, without those that are being started again."""
        self._read_reports()
        return {each["id"]: each["pid"] for each in self._report["brokers"]}

    @property
    def store_pid(self) -> int:
        """The process that has the store of several brokers."""
        self._read_reports()
        store_pid: int = self._report["store_pid"]
        return store_pid

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
                self._port = free_port() if self._brokers == 1 else free_ports(self._brokers)
                self._ports = tuple(range(self._port, self._port + self._brokers))
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
        self._reports, self._report = b"", {}
        with contextlib.suppress(TimeoutError):
            while not self._report and (received := ours.recv(_ANSWER_BYTES_MAX)):
                self._take_reports(received)
        if not self._report:
            self.kill()
            raise BrokerFailed(f"the broker did not start:\n{self.log()[-_SHOWN_CHARACTERS:]}")
        if self._brokers > 1:
            # A partition whose disk has failed has no leader, and a test may be about that.
            self._ports_that_lag(LEADERS_TIMEOUT_S)

    def _ports_that_lag(self, timeout_s: float, **topics: Any) -> list[int]:
        from barnabas.testing.metadata import ports_that_lag

        return ports_that_lag(self.ports, self.security_settings, timeout_s, **topics)

    def _take_reports(self, received: bytes) -> None:
        """The last whole line counts."""
        *lines, self._reports = (self._reports + received).split(b"\n")
        if lines:
            self._report = json.loads(lines[-1])
            self._take_ports()

    def _take_ports(self) -> None:
        """The listeners of a test may have other names; then its ports stay those that were given."""
        if self._brokers == 1:
            self._port = self._report["ports"].get(self._listener, self._port)
            self._ports = (self._port,)
        elif self._has_free_ports and len(self._report["brokers"]) == self._brokers:
            brokers = sorted(self._report["brokers"], key=lambda each: int(each["id"]))
            self._ports = tuple(each["ports"].get(self._listener, 0) for each in brokers)

    def _read_reports(self) -> None:
        assert self._supervision is not None, "the broker is not running"
        assert self._brokers > 1, "there is one broker"
        self._supervision.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while received := self._supervision.recv(_ANSWER_BYTES_MAX):
                self._take_reports(received)

    def _command(self, supervisor_fd: int) -> list[str]:
        settings = {
            **SETTINGS,
            "listeners": f"{self._listener}://{HOST}:{self._port}",
            "log.dirs": str(self.directory),
            **self._security_settings(),
            **self._settings,
        }
        users = [] if self._security is None else self._security.new_users()
        return [
            *(sys.executable, "-m", "barnabas", "start", "--supervisor-fd", str(supervisor_fd)),
            *(word for user in users for word in ("--add-scram", user)),
            *(("--brokers", str(self._brokers)) if self._brokers > 1 else ()),
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
        """Kills the broker at once, like a crash; or all brokers, their store and their supervisor."""
        if self._process is not None:
            if self._report.get("brokers"):
                self._kill_others()
            self._process.kill()
            self._process.wait()
            if self._brokers > 1 and self._supervision is not None:
                # All processes have the other end: the last to end closes it.
                self._supervision.settimeout(STOP_TIMEOUT_S)
                while self._supervision.recv(_ANSWER_BYTES_MAX):
                    pass
            self._forget_process()

    def kill_supervisor(self) -> None:
        """Kills the supervisor of several brokers alone. The brokers notice it and stop in order, on their own."""
        assert self._process is not None, "the broker is not running"
        assert self._brokers > 1, "there is one broker"
        self._process.kill()
        self._process.wait()
        self._forget_process()

    def _kill_others(self) -> None:
        # A supervisor that is stopped neither starts a broker again nor lets its number go to another process.
        os.kill(self.pid, signal.SIGSTOP)
        for pid in (*self.pids.values(), self.store_pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def restart(self) -> None:
        """Stops the broker and starts it again, on the same port and data."""
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
        if self._folder is None:
            return ""
        with contextlib.suppress(FileNotFoundError), self._log_path.open("rb") as written:
            written.seek(self._log_position)
            return written.read().decode(errors="replace")
        return ""

    def create_topics(self, topics: Iterable[str] | Mapping[str, int]) -> None:
        """Names, or names with numbers of partitions. Every broker knows them when this returns."""
        counts = topic_counts(topics)
        with self.admin() as admin:
            created = admin.create_topics(counts if isinstance(topics, Mapping) else list(counts))
        self._await_everywhere(created)

    def _await_everywhere(
        self, created: Mapping[str, CreatedTopic], deleted: Sequence[TopicListing] = ()
    ) -> None:
        if self._brokers == 1:
            return
        lagging = self._ports_that_lag(
            START_TIMEOUT_S,
            created={name: topic.topic_id for name, topic in created.items()},
            deleted=[topic.topic_id for topic in deleted if topic.topic_id is not None],
        )
        if lagging:
            raise BrokerFailed(f"the brokers at {lagging} do not know the new topics")

    def reset(self) -> None:
        """Deletes all topics and groups that clients have created; the broker's internal topics exist again, empty."""
        with self.admin() as admin:
            groups = [group.group_id for group in admin.list_groups()]
            if groups:
                _delete_groups(admin, groups)
            topics = admin.list_topics()
            if topics:
                admin.delete_topics([topic.name for topic in topics])
            created = _create_again(admin, self._topics) if self._topics else {}
        self._await_everywhere(created, topics)


def topic_counts(topics: Iterable[str] | Mapping[str, int]) -> dict[str, int]:
    """Numbers of partitions by topic: one, if only names are given."""
    if isinstance(topics, Mapping):
        return dict(topics)
    # A text is an iterable of texts too, and no test wants a topic a letter.
    return dict.fromkeys([topics] if isinstance(topics, str) else topics, 1)


def _broker_settings(settings: Mapping[str, object]) -> dict[str, str]:
    from barnabas.config.broker_config import AUTHORIZER_SETTINGS
    from barnabas.config.broker_settings import broker_settings, nearest_name
    from barnabas.config.definition import UnknownSetting

    named = {name.replace("_", "."): _text(value) for name, value in settings.items()}
    for name in named.keys() - broker_settings().keys() - AUTHORIZER_SETTINGS:
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


def _create_again(admin: Admin, topics: Mapping[str, int]) -> dict[str, CreatedTopic]:
    """Several brokers delete a topic of the same name for a moment longer than the request takes."""
    from barnabas.errors import TopicAlreadyExists

    deadline_s = time.monotonic() + START_TIMEOUT_S
    created: dict[str, CreatedTopic] = {}
    for name, partitions in topics.items():
        while name not in created:
            try:
                created |= admin.create_topics({name: partitions})
            except TopicAlreadyExists:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(_POLL_S)
    return created


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
