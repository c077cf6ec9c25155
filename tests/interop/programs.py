"""Other people's clients, fetched once into `.cache/interop` of the clone.

Whatever stands in the way (a tool that is missing, a registry that cannot be reached) raises PeerUnavailable with the
reason, and the tests skip with it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.peers.kafka_peer import PeerUnavailable, jars

CACHE: Final = Path(__file__).parents[2] / ".cache" / "interop"
HERE: Final = Path(__file__).parent
FETCH_TIMEOUT_S: Final = 600
RUN_TIMEOUT_S: Final = 240

DEBIAN_PACKAGES: Final = ("kcat", "librdkafka1", "libyajl2")
# What its SASL library loads for GSSAPI.
GSSAPI_PACKAGES: Final = ("libsasl2-2", "libsasl2-modules-gssapi-mit")


def need(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            raise PeerUnavailable(f"{program} is not on the PATH")


def fetch(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PeerUnavailable(f"{command[0]} was not done within {FETCH_TIMEOUT_S} s") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
        raise PeerUnavailable(f"{' '.join(command[:2])} failed: {said[-1]}")


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """A folder of the cache, made by one process while others wait; a folder that is there is whole."""
    folder = CACHE / name
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            make(partial)
            partial.rename(folder)
    return folder


def available(program: Callable[[], list[str]]) -> list[str]:
    """The command of a program, or a skip that says what is missing."""
    try:
        return program()
    except PeerUnavailable as why:
        pytest.skip(str(why))


def run(command: Sequence[str], *, stdin: str = "", environment: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        input=stdin,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def kcat() -> list[str]:
    """Installed, or unpacked from Debian's packages without installing them."""
    if shutil.which("kcat") is not None:
        return ["kcat"]

    root = unpacked("kcat", DEBIAN_PACKAGES)
    libraries = ":".join(str(folder) for folder in root.glob("usr/lib/*-linux-gnu"))
    return ["env", f"LD_LIBRARY_PATH={libraries}", str(root / "usr/bin/kcat")]


def kcat_with_gssapi() -> list[str]:
    """Debian's, also where another one is installed: confluent-kafka's librdkafka has no GSSAPI."""
    root = unpacked("kcat-gssapi", (*DEBIAN_PACKAGES, *GSSAPI_PACKAGES))
    libraries = next(root.glob("usr/lib/*-linux-gnu"))
    return ["env", f"LD_LIBRARY_PATH={libraries}", f"SASL_PATH={libraries}/sasl2", str(root / "usr/bin/kcat")]


def unpacked(name: str, packages: Sequence[str]) -> Path:
    """Packages of Debian in a folder of the cache."""

    def make(folder: Path) -> None:
        need("apt-get", "dpkg")
        for package in packages:
            fetch(["apt-get", "download", "-q", package], folder)
        for archive in sorted(folder.glob("*.deb")):
            fetch(["dpkg", "-x", str(archive), "."], folder)

    return made_once(name, make)


def franz_go() -> list[str]:
    """Our small program, built with the modules that its go.sum names."""
    need("go")
    source = HERE / "go"

    def make(folder: Path) -> None:
        fetch(
            ["go", "build", "-o", str(folder / "probe"), "."],
            source,
            {"GOMODCACHE": str(CACHE / "go-modules"), "GOFLAGS": "-modcacherw -mod=readonly -buildvcs=false"},
        )

    newest = max(int(file.stat().st_mtime) for file in source.iterdir())
    return [str(made_once(f"franz-go-{newest}", make) / "probe")]


def kafkajs() -> list[str]:
    """Our small program, beside the packages that its package-lock.json names."""
    need("node", "npm")
    source = HERE / "js"

    def make(folder: Path) -> None:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(source / name, folder)
        fetch(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], folder)

    folder = made_once("kafkajs", make)
    return ["env", f"NODE_PATH={folder / 'node_modules'}", "node", str(source / "probe.js")]


def patient(folder: Path) -> list[str]:
    """Options of a tool that else waits for 5 s, which a busy machine may need to start it."""
    file = folder / "command.properties"
    file.write_text("request.timeout.ms=60000\n")
    return ["--command-config", str(file)]


def java(version: str, main_class: str) -> list[str]:
    return ["java", "-Xmx256M", "-cp", f"{jars(version)}/*", main_class]


def java_source(version: str, source: Path) -> list[str]:
    """A program in one source file, compiled by Java itself."""
    need("javac")
    return ["java", "-Xmx256M", "-cp", f"{jars(version)}/*", str(source)]


STREAMS_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>barnabas</groupId>
  <artifactId>streams-peer</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-streams</artifactId><version>{0}</version></dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-streams</artifactId><version>{0}</version>
      <classifier>test</classifier>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId><version>{0}</version>
      <classifier>test</classifier>
    </dependency>
  </dependencies>
</project>
"""


def streams_test(version: str, main_class: str) -> list[str]:
    """A program of Kafka Streams' own tests."""
    need("java", "mvn")

    def make(folder: Path) -> None:
        (folder / "pom.xml").write_text(STREAMS_POM.format(version))
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder / 'jars'}"]
        fetch(["mvn", "-q", "-B", "-f", str(folder / "pom.xml"), *goal], folder)

    return ["java", "-Xmx512M", "-cp", f"{made_once(f'streams-{version}', make)}/jars/*", main_class]
