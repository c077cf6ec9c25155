"""Real ZooKeeper servers from Maven's jars: one, or an ensemble, each server in a process of its own."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from barnabas.testing import free_port
from tests.peers.kafka_peer import START_TIMEOUT_S, JavaProcess, resolved

V3_8: Final = "3.8.4"
V3_9: Final = "3.9.3"
METRICS: Final = "io.dropwizard.metrics:metrics-core:4.2.30"
SNAPPY: Final = "org.xerial.snappy:snappy-java:1.1.10.7"
# Short, so that sessions may be short: a session lasts at least two ticks.
TICK_MS: Final = 500
ANSWER_TIMEOUT_S: Final = 10


def jars(version: str) -> Path:
    return resolved(f"zookeeper-{version}", (f"org.apache.zookeeper:zookeeper:{version}", METRICS, SNAPPY))


class ZooKeeperServer:
    """One server. It keeps its port and its data over a restart."""

    def __init__(
        self,
        version: str,
        folder: Path,
        *,
        number: int = 1,
        members: Sequence[str] = (),
        settings: Mapping[str, object] | None = None,
        host: str = "127.0.0.1",
        prefix: Sequence[str] = (),
    ) -> None:
        """`prefix` is a program, with its arguments, that runs the server elsewhere, where `host` is its address."""
        self._version = version
        self._folder = folder
        self._number = number
        self._members = members
        self._settings = settings or {}
        self.host = host
        self._prefix = prefix
        self.port = free_port()
        self._process: JavaProcess | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def start(self) -> None:
        data = self._folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(f"{self._number}\n")
        settings = self._folder / "zookeeper.properties"
        settings.write_text(
            f"dataDir={data}\nclientPort={self.port}\nclientPortAddress={self.host}\ntickTime={TICK_MS}\n"
            "initLimit=20\nsyncLimit=10\nadmin.enableServer=false\nmaxClientCnxns=0\n"
            "4lw.commands.whitelist=*\nmaxSessionTimeout=60000\n"
            + "".join(f"server.{number}={member}\n" for number, member in enumerate(self._members, 1))
            + "".join(f"{name}={value}\n" for name, value in self._settings.items())
        )
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = ["java", "-Xmx128M", "-XX:TieredStopAtLevel=1", "-cp", f"{jars(self._version)}/*"]
        self._process = JavaProcess(
            f"zookeeper-{self._number}", [*self._prefix, *command, main, str(settings)], self._folder
        )

    def wait_until_ready(self) -> None:
        assert self._process is not None
        self._process.wait_until(lambda: bool(self.mode()), START_TIMEOUT_S)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None

    def mode(self) -> str:
        """Leader, follower or standalone; nothing while the server does not serve."""
        try:
            with socket.create_connection((self.host, self.port), timeout=ANSWER_TIMEOUT_S) as connection:
                connection.sendall(b"srvr")
                with connection.makefile() as answer:
                    told = [line for line in answer if line.startswith("Mode: ")]
        except OSError:
            return ""
        return told[0].removeprefix("Mode: ").strip() if told else ""


class ZooKeeperEnsemble:
    """Several servers with one leader."""

    def __init__(self, servers: Sequence[ZooKeeperServer]) -> None:
        self.servers = servers

    @property
    def address(self) -> str:
        return ",".join(server.address for server in self.servers)

    def start(self) -> None:
        for server in self.servers:
            server.start()

    def wait_until_ready(self) -> None:
        for server in self.servers:
            server.wait_until_ready()

    def stop(self) -> None:
        for server in self.servers:
            server.stop()

    def leader(self) -> ZooKeeperServer | None:
        """The server that leads now, if one does."""
        return next((server for server in self.servers if server.mode() == "leader"), None)


@contextlib.contextmanager
def zookeeper(
    version: str, folder: Path, settings: Mapping[str, object] | None = None
) -> Iterator[ZooKeeperServer]:
    server = ZooKeeperServer(version, folder, settings=settings)
    try:
        server.start()
        server.wait_until_ready()
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def ensemble(
    version: str, folder: Path, *, host: str = "127.0.0.1", prefix: Sequence[str] = ()
) -> Iterator[list[ZooKeeperServer]]:
    members = [f"{host}:{free_port()}:{free_port()}" for _ in range(3)]
    servers = [
        ZooKeeperServer(
            version, folder / str(number), number=number, members=members, host=host, prefix=prefix
        )
        for number in (1, 2, 3)
    ]
    try:
        for server in servers:
            server.start()
        for server in servers:
            server.wait_until_ready()
        yield servers
    finally:
        for server in servers:
            server.stop()
