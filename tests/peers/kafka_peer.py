"""Apache Kafka from Maven's jars: its tools, and a 3.9.1 broker with its ZooKeeper, each in a process of its own.

Jars are copied once into `.cache/peers` of the clone. Whatever stands in the way of a real Kafka (no Java, no Maven, no
way to the artifacts) raises PeerUnavailable with the reason, and the tests skip with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from struct import Struct
from typing import Final

from barnabas.testing import free_port
from barnabas.testing.zookeeper import takes_sessions
from tests.waiting import Deadline

V3: Final = "3.9.1"
V4: Final = "4.3.1"
JAVA_MIN: Final = 17

CACHE: Final = Path(__file__).parents[2] / ".cache" / "peers"
# A JVM on a busy machine of two cores: these bound a wait, they are not what is expected.
RESOLVE_TIMEOUT_S: Final = 600
START_TIMEOUT_S: Final = 240
TOOL_TIMEOUT_S: Final = 240
STOP_TIMEOUT_S: Final = 120

_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>barnabas</groupId>
  <artifactId>peer</artifactId>
  <version>1</version>
  <dependencies>
{}  </dependencies>
</project>
"""


class PeerUnavailable(Exception):
    """There is no real Kafka to be had here, and why."""


def jars(version: str) -> Path:
    """The folder with the jars of a release of Kafka, resolved by Maven at the first call."""
    artifacts = (
        f"org.apache.kafka:kafka_2.13:{version}",
        f"org.apache.kafka:kafka-tools:{version}",
    )
    return resolved(f"kafka-{version}", artifacts)


def resolved(name: str, artifacts: Sequence[str]) -> Path:
    """The folder with the jars of artifacts (group:name:version) and of all that they need."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise PeerUnavailable(f"{program} is not on the PATH; {name} needs Java 17 and Maven")
    told = subprocess.run(
        ["java", "-version"], capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False
    ).stderr
    major = re.search(r'version "(\d+)', told)
    if major is None or int(major[1]) < JAVA_MIN:
        raise PeerUnavailable(f"{name} needs Java {JAVA_MIN} or newer, and here is: {told[:80]!r}")
    folder = CACHE / name
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _resolve(name, artifacts, folder)
    return folder


def _resolve(name: str, artifacts: Sequence[str], folder: Path) -> None:
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    pom = partial / "pom.xml"
    pom.write_text(_POM.format("".join(map(_dependency, artifacts))))
    command = ["mvn", "-q", "-B", "-f", str(pom), f"-DoutputDirectory={partial / 'jars'}"]
    try:
        done = subprocess.run(
            [*command, "dependency:copy-dependencies"],
            capture_output=True,
            text=True,
            timeout=RESOLVE_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PeerUnavailable(f"Maven did not resolve {name} within {RESOLVE_TIMEOUT_S} s") from None
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if "ERROR" in line] or done.stdout.splitlines()
        raise PeerUnavailable(f"Maven cannot resolve {name}: {' '.join(lines[:1])}")
    (partial / "jars").rename(folder)
    shutil.rmtree(partial, ignore_errors=True)


def _dependency(artifact: str) -> str:
    group, name, version = artifact.split(":")
    return (
        f"    <dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version></dependency>\n"
    )


def run_tool(version: str, main_class: str, *arguments: str, stdin: str = "") -> str:
    """What a class of Kafka's prints. The folder name in the class path is read by Java, not by a shell."""
    done = subprocess.run(
        ["java", "-Xmx256M", "-cp", f"{jars(version)}/*", main_class, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TOOL_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{main_class} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def dump_log_segments(files: Sequence[Path], *options: str) -> str:
    names = ",".join(str(file) for file in files)
    return run_tool(V4, "org.apache.kafka.tools.DumpLogSegments", "--files", names, *options)


class JavaProcess:
    """A Java program that is expected to stay up; its output goes to a file, for the message when it does not."""

    def __init__(self, name: str, command: list[str], folder: Path) -> None:
        self._name = name
        self._output = folder / f"{name}.out"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=folder
            )

    def wait_until(self, is_ready: Callable[[], bool], timeout_s: float) -> None:
        deadline = Deadline(timeout_s)
        while not is_ready():
            assert self._process.poll() is None, f"{self._name} ended:\n{self.output()[-4000:]}"
            deadline.check(lambda: f"{self._name}:\n{self.output()[-4000:]}")
            time.sleep(0.1)

    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def pause(self) -> None:
        """Stops the process without ending it: it keeps its connections and does nothing."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def wait(self, timeout_s: float) -> int:
        """The exit code of a program that ends by itself."""
        return self._process.wait(timeout_s)

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Broker:
    """A real broker, by the address it listens on."""

    def __init__(self, broker_id: int, port: int, zookeeper_port: int, process: JavaProcess) -> None:
        self.process = process
        self._broker_id = broker_id
        self._port = port
        self._zookeeper_port = zookeeper_port

    @property
    def port(self) -> int:
        return self._port

    @property
    def zookeeper_port(self) -> int:
        return self._zookeeper_port

    def create_topics(self, topics: dict[str, tuple[str, int]]) -> None:
        """Tells the controller of topics whose partitions lie in the broker's directory: name -> (id, partitions)."""
        commands = []
        for name, (topic_id, count) in topics.items():
            assignment = ",".join(f'"{partition}":[{self._broker_id}]' for partition in range(count))
            commands.append(
                f'create /brokers/topics/{name} {{"partitions":{{{assignment}}},"topic_id":"{topic_id}",'
                '"adding_replicas":{},"removing_replicas":{},"version":3}'
            )
        _zookeeper_shell(self._zookeeper_port, commands)

    def fetch(self, topic: str, partition: int, offset: int, isolation_level: int) -> Fetched:
        """One Fetch (version 4) of what the broker serves from an offset on."""
        with socket.create_connection(("127.0.0.1", self._port), timeout=60) as connection:
            return _fetch(connection, topic, partition, offset, isolation_level)


@contextlib.contextmanager
def broker_on(
    log_dir: Path, folder: Path, broker_id: int, cluster_id: str, settings: Mapping[str, str] | None = None
) -> Iterator[Broker]:
    """Kafka 3.9.1 with its own ZooKeeper, on a log directory that somebody else has written."""
    libraries = jars(V3)
    zookeeper_port, port = free_port(), free_port()
    (folder / "zookeeper.properties").write_text(
        f"dataDir={folder / 'zookeeper'}\nclientPort={zookeeper_port}\nclientPortAddress=127.0.0.1\n"
        "admin.enableServer=false\nmaxClientCnxns=0\n"
    )
    properties = {
        "broker.id": str(broker_id),
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "zookeeper.connect": f"127.0.0.1:{zookeeper_port}",
        "zookeeper.connection.timeout.ms": str(START_TIMEOUT_S * 1000),
        "zookeeper.session.timeout.ms": "60000",
        "log.dirs": str(log_dir),
        "log.retention.ms": "-1",
        "log.cleaner.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        **(settings or {}),
    }
    (folder / "server.properties").write_text(
        "".join(f"{name}={value}\n" for name, value in properties.items())
    )
    logging_options = folder / "log4j.properties"
    logging_options.write_text(
        "log4j.rootLogger=WARN, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
        "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
        "log4j.appender.out.layout.ConversionPattern=%p %m (%c)%n\nlog4j.logger.kafka.server.KafkaServer=INFO\n"
    )
    java = ["java", f"-Dlog4j.configuration=file:{logging_options}", "-cp", f"{libraries}/*"]
    zookeeper = JavaProcess(
        "zookeeper",
        [
            *java,
            "-Xmx128M",
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(folder / "zookeeper.properties"),
        ],
        folder,
    )
    try:
        zookeeper.wait_until(lambda: takes_sessions(zookeeper_port), START_TIMEOUT_S)
        _zookeeper_shell(
            zookeeper_port,
            ["create /cluster {}", f'create /cluster/id {{"version":"1","id":"{cluster_id}"}}'],
        )
        kafka = JavaProcess(
            "kafka", [*java, "-Xmx512M", "kafka.Kafka", str(folder / "server.properties")], folder
        )
        try:
            kafka.wait_until(lambda: "started (kafka.server.KafkaServer)" in kafka.output(), START_TIMEOUT_S)
            yield Broker(broker_id, port, zookeeper_port, kafka)
        finally:
            kafka.stop()
    finally:
        zookeeper.stop()


def _zookeeper_shell(port: int, commands: list[str]) -> None:
    run_tool(
        V3,
        "org.apache.zookeeper.ZooKeeperMain",
        "-server",
        f"127.0.0.1:{port}",
        stdin="".join(f"{command}\n" for command in [*commands, "quit"]),
    )


class Fetched:
    """What a Fetch has brought of one partition; aborted transactions as (producer id, first offset)."""

    def __init__(
        self,
        error_code: int,
        high_watermark: int,
        last_stable_offset: int,
        aborted: list[tuple[int, int]],
        records: bytes,
    ) -> None:
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.aborted = aborted
        self.records = records


_FETCH_KEY: Final = 1
_FETCH_VERSION: Final = 4
_FETCH_BYTES_MAX: Final = 64 << 20
_REQUEST_HEADER: Final = Struct(
    ">"
    "h"  # api key
    "h"  # version
    "i"  # correlation id
    "h"  # client id: null
)
_FETCH_HEAD: Final = Struct(
    ">"
    "i"  # replica id: a consumer
    "i"  # longest wait in ms
    "i"  # bytes to wait for
    "i"  # bytes at most
    "b"  # isolation level
    "i"  # number of topics
)
_FETCH_PARTITION: Final = Struct(
    ">"
    "i"  # number of partitions
    "i"  # partition
    "q"  # offset
    "i"  # bytes at most
)
_FETCHED_PARTITION: Final = Struct(
    ">"
    "i"  # number of partitions
    "i"  # partition
    "h"  # error code
    "q"  # high watermark
    "q"  # last stable offset
    "i"  # number of aborted transactions, or -1
)
_ABORTED: Final = Struct(
    ">"
    "q"  # producer id
    "q"  # first offset
)


def _fetch(
    connection: socket.socket, topic: str, partition: int, offset: int, isolation_level: int
) -> Fetched:
    name = topic.encode()
    request = (
        _REQUEST_HEADER.pack(_FETCH_KEY, _FETCH_VERSION, 1, -1)
        + _FETCH_HEAD.pack(-1, 1000, 1, _FETCH_BYTES_MAX, isolation_level, 1)
        + len(name).to_bytes(2, "big")
        + name
        + _FETCH_PARTITION.pack(1, partition, offset, _FETCH_BYTES_MAX)
    )
    connection.sendall(len(request).to_bytes(4, "big") + request)
    response = _receive(connection, int.from_bytes(_receive(connection, 4), "big"))
    # Correlation id, throttle time, one topic and its name precede the partition.
    position = 12 + 2 + len(name)
    _, _, error_code, high_watermark, last_stable_offset, count = _FETCHED_PARTITION.unpack_from(
        response, position
    )
    position += _FETCHED_PARTITION.size
    aborted: list[tuple[int, int]] = []
    for _ in range(max(count, 0)):
        producer_id, first_offset = _ABORTED.unpack_from(response, position)
        aborted.append((producer_id, first_offset))
        position += _ABORTED.size
    return Fetched(error_code, high_watermark, last_stable_offset, aborted, response[position + 4 :])


def _receive(connection: socket.socket, length: int) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        received = connection.recv(length - len(parts))
        assert received, "the broker closed the connection"
        parts += received
    return bytes(parts)
