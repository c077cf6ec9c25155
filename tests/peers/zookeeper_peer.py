"""Real ZooKeeper servers from Maven's jars: one, or an ensemble, each server in a process of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from barnabas.testing import free_port
from barnabas.testing.zookeeper import takes_sessions
from tests.peers.kafka_peer import START_TIMEOUT_S, JavaProcess, resolved

V3_8: Final = "3.8.4"
V3_9: Final = "3.9.3"
METRICS: Final = "io.dropwizard.metrics:metrics-core:4.2.30"
SNAPPY: Final = "org.xerial.snappy:snappy-java:1.1.10.7"
# Short, so that sessions may be short: a session lasts at least two ticks.
TICK_MS: Final = 500


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
    ) -> None:
        self._version = version
        self._folder = folder
        self._number = number
        self._members = members
        self._settings = settings or {}
        self.port = free_port()
        self._process: JavaProcess | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        data = self._folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(f"{self._number}\n")
        settings = self._folder / "zookeeper.properties"
        settings.write_text(
            f"dataDir={data}\nclientPort={self.port}\nclientPortAddress=127.0.0.1\ntickTime={TICK_MS}\n"
            "initLimit=20\nsyncLimit=10\nadmin.enableServer=false\nmaxClientCnxns=0\n"
            "4lw.commands.whitelist=*\nmaxSessionTimeout=60000\n"
            + "".join(f"server.{number}={member}\n" for number, member in enumerate(self._members, 1))
            + "".join(f"{name}={value}\n" for name, value in self._settings.items())
        )
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = ["java", "-Xmx128M", "-XX:TieredStopAtLevel=1", "-cp", f"{jars(self._version)}/*"]
        self._process = JavaProcess(
            f"zookeeper-{self._number}", [*command, main, str(settings)], self._folder
        )

    def wait_until_ready(self) -> None:
        assert self._process is not None
        self._process.wait_until(lambda: takes_sessions(self.port), START_TIMEOUT_S)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None


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
def ensemble(version: str, folder: Path) -> Iterator[list[ZooKeeperServer]]:
    members = [f"127.0.0.1:{free_port()}:{free_port()}" for _ in range(3)]
    servers = [
        ZooKeeperServer(version, folder / str(number), number=number, members=members) for number in (1, 2, 3)
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
