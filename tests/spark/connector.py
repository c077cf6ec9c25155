"""Spark's own connector for Kafka, as a second opinion: its jars from Maven, once, into `.cache/peers` of the clone.

PySpark does not come with it, and Spark's own way to fetch packages needs a repository at hand; ours needs no jar.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.peers.kafka_peer import CACHE, RESOLVE_TIMEOUT_S, PeerUnavailable

VERSION: Final = "4.2.0"
# The connector and those of its dependencies that Spark does not have itself.
ARTIFACTS: Final = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.12.1"),
)

_DEPENDENCY: Final = """<dependency>
      <groupId>{0}</groupId><artifactId>{1}</artifactId><version>{2}</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>"""
_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>barnabas</groupId>
  <artifactId>spark-connector-peer</artifactId>
  <version>1</version>
  <dependencies>
    {}
  </dependencies>
</project>
"""


def connector_jars() -> list[Path]:
    """The connector's jars, resolved by Maven at the first call; PeerUnavailable tells why they cannot be had."""
    if shutil.which("mvn") is None:
        raise PeerUnavailable("mvn is not on the PATH; Maven is needed for Spark's connector")
    folder = CACHE / f"spark-connector-{VERSION}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"spark-connector-{VERSION}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _resolve(folder)
    return sorted(folder.glob("*.jar"))


def _resolve(folder: Path) -> None:
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    pom = partial / "pom.xml"
    pom.write_text(_POM.format("\n    ".join(_DEPENDENCY.format(*artifact) for artifact in ARTIFACTS)))
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
        raise PeerUnavailable(
            f"Maven did not resolve Spark's connector within {RESOLVE_TIMEOUT_S} s"
        ) from None
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if "ERROR" in line] or done.stdout.splitlines()
        raise PeerUnavailable(f"Maven cannot resolve Spark's connector: {' '.join(lines[:1])}")
    (partial / "jars").rename(folder)
    shutil.rmtree(partial, ignore_errors=True)
