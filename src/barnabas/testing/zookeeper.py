"""A ZooKeeper for a test, or to try a cluster out: one server, in a Java process of its own.

Its jars come from the first of these: the folder in BARNABAS_ZOOKEEPER_JARS; `lib` of ZOOKEEPER_HOME; `libs` of
KAFKA_HOME; Debian's package; Maven, which downloads them once.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from barnabas.testing.ports import HOST, free_port

VERSION: Final = "3.8.4"
# ZooKeeper's artifact, and what its server needs and does not name as needed.
ARTIFACTS: Final = (
    f"org.apache.zookeeper:zookeeper:{VERSION}",
    "io.dropwizard.metrics:metrics-core:4.2.30",
    "org.xerial.snappy:snappy-java:1.1.10.7",
)
JARS_VARIABLE: Final = "BARNABAS_ZOOKEEPER_JARS"
DEBIAN_JARS: Final = Path("/usr/share/java")
MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
# A session lasts at least two ticks.
TICK_MS: Final = 500

# These bound a wait on a busy machine; they are not expected times.
START_TIMEOUT_S: Final = 90.0
STOP_TIMEOUT_S: Final = 30.0
DOWNLOAD_TIMEOUT_S: Final = 600.0
_POLL_S: Final = 0.02
_SHOWN_CHARACTERS: Final = 4_000

# Ends the server when standard input ends: that is when the process that started it ends, in whatever way.
_SUPERVISED: Final = """
exec 3<&0
"$@" <&- 3<&- &
server=$!
(cat <&3 >/dev/null; kill -9 $server) 2>/dev/null &
exec 3<&-
wait $server
"""

_POM: Final = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>barnabas</groupId><artifactId>zookeeper</artifactId><version>1</version>
  <dependencies>{}</dependencies>
</project>
"""


class ZooKeeperUnavailable(RuntimeError):
    """There is no ZooKeeper to start; the message says what is missing."""


class ZooKeeper:
    """A running server; use it in a `with`, or call `start` and `close`. It keeps its port and data over restarts."""

    def __init__(self, *, port: int | None = None, jars: Path | None = None) -> None:
        self._given_jars = jars
        self.port = port or free_port()
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def address(self) -> str:
        """The value for `zookeeper.connect` of a broker."""
        return f"{HOST}:{self.port}"

    def start(self) -> None:
        """Returns when the server takes sessions. Raises ZooKeeperUnavailable."""
        assert self._process is None, "ZooKeeper is running"
        jars = self._given_jars or find_jars()
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="barnabas-zookeeper-"))
        settings = self._folder / "zookeeper.properties"
        settings.write_text(
            f"dataDir={self._folder / 'data'}\nclientPort={self.port}\nclientPortAddress={HOST}\n"
            f"tickTime={TICK_MS}\nmaxSessionTimeout=60000\nadmin.enableServer=false\nmaxClientCnxns=0\n"
        )
        java = ("java", "-Xmx128M", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", MAIN, str(settings))
        with self._log_path.open("ab") as output:
            self._process = subprocess.Popen(
                ["sh", "-c", _SUPERVISED, "sh", *java],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
            )
        try:
            self._wait_until_serving()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends the server at once, like a crash; what it has confirmed is on the disk."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(STOP_TIMEOUT_S)
        self._process = None

    def close(self) -> None:
        self.stop()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def log(self) -> str:
        return self._log_path.read_text(errors="replace")

    @property
    def _log_path(self) -> Path:
        assert self._folder is not None, "ZooKeeper has not been started"
        return self._folder / "zookeeper.log"

    def _wait_until_serving(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while not takes_sessions(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ZooKeeperUnavailable(f"ZooKeeper did not start:\n{self.log()[-_SHOWN_CHARACTERS:]}")
            time.sleep(_POLL_S)


def takes_sessions(port: int) -> bool:
    """Whether the server takes sessions. It listens earlier, and may then never answer who connects."""
    try:
        with socket.create_connection((HOST, port), timeout=1) as connection:
            connection.sendall(b"srvr")
            answer = b""
            while received := connection.recv(4_096):
                answer += received
            return b"\nMode: " in answer
    except OSError:
        return False


def find_jars() -> Path:
    """A folder with the jars of a ZooKeeper server. Raises ZooKeeperUnavailable."""
    if shutil.which("java") is None:
        raise ZooKeeperUnavailable("ZooKeeper needs Java 11 or newer, and there is no java on the PATH")
    for folder in _folders():
        if any(folder.glob("zookeeper-*.jar")) or (folder / "zookeeper.jar").exists():
            return folder
    return _downloaded()


def _folders() -> Iterator[Path]:
    for variable, below in ((JARS_VARIABLE, ""), ("ZOOKEEPER_HOME", "lib"), ("KAFKA_HOME", "libs")):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / below
    yield DEBIAN_JARS


def _downloaded() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "barnabas"
    folder = cache / f"zookeeper-{VERSION}"
    if folder.exists():
        return folder
    if shutil.which("mvn") is None:
        raise ZooKeeperUnavailable(
            f"no ZooKeeper was found: set {JARS_VARIABLE}, ZOOKEEPER_HOME or KAFKA_HOME, or install Maven, which"
            " downloads it"
        )
    cache.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix="zookeeper-", dir=cache))
    try:
        _download(partial)
        with contextlib.suppress(OSError):
            # Another process may have been faster.
            (partial / "jars").rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _download(folder: Path) -> None:
    pom = folder / "pom.xml"
    pom.write_text(_POM.format("".join(map(_dependency, ARTIFACTS))))
    command = ["mvn", "-q", "-B", "-f", str(pom), f"-DoutputDirectory={folder / 'jars'}"]
    done = subprocess.run(
        [*command, "dependency:copy-dependencies"],
        capture_output=True,
        text=True,
        timeout=DOWNLOAD_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if "ERROR" in line] or done.stdout.splitlines()
        raise ZooKeeperUnavailable(f"Maven cannot download ZooKeeper {VERSION}: {' '.join(lines[:1])}")


def _dependency(artifact: str) -> str:
    group, name, version = artifact.split(":")
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        "</dependency>"
    )
