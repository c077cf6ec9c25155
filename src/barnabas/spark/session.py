"""The Spark session that pipelines, tests and benchmarks run in."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from barnabas.errors import InvalidConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JAVA_MIN: Final = 17
JAVA_ADVICE: Final = (
    f"install Java {JAVA_MIN} or newer (apt install openjdk-{JAVA_MIN}-jre-headless), or set JAVA_HOME to one"
)
PACKAGES: Final = ("pyspark", "pyarrow", "pandas")
JAVA_TIMEOUT_S: Final = 60

# Defaults for a pipeline, unless the user sets them: no web page, and times in UTC as in Kafka.
SETTINGS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
}


QUERY_ID_PROPERTY: Final = "sql.streaming.queryId"


def query_id_of(frame: DataFrame) -> str:
    """The id of the streaming query whose batch the frame is; InvalidConfig outside of `foreachBatch`."""
    query_id: str | None = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID_PROPERTY)
    if not query_id:
        raise InvalidConfig("the sink is for writeStream.foreachBatch: there is no streaming query here")
    return query_id


def start_session(
    name: str,
    *,
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
    workers: str | os.PathLike[str] | None = None,
) -> SparkSession:
    """A session whose Python workers are this very Python, so that they import what the driver imports.

    `workers` is an archive of `barnabas pipeline pack`, for a cluster whose machines have no barnabas.
    """
    from pyspark.sql import SparkSession

    if workers is not None:
        from barnabas.spark.packing import worker_python, worker_settings

        settings = {**worker_settings(workers), **(settings or {})}
        if "PYSPARK_PYTHON" not in os.environ:
            os.environ["PYSPARK_PYTHON"] = worker_python()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        # The host's name need not resolve; a session on one machine needs loopback alone.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def require_spark() -> None:
    """Fails with what to install if this machine cannot run Spark."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise InvalidConfig(
            f"Spark needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed:"
            " pip install 'barnabas[spark]'"
        )
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    if shutil.which(java) is None:
        where = f"JAVA_HOME is {home}, where there is no bin/java" if home else "there is no java on the PATH"
        raise InvalidConfig(f"Spark needs Java: {where}: {JAVA_ADVICE}")
    done = subprocess.run(
        [java, "-version"], capture_output=True, text=True, timeout=JAVA_TIMEOUT_S, check=False
    )
    version = re.search(r'version "(\d+)', done.stderr)
    if version is None or int(version[1]) < JAVA_MIN:
        told = done.stderr.strip().splitlines()
        raise InvalidConfig(
            f"Spark needs Java {JAVA_MIN}: {java} is {told[0] if told else 'mute'}: {JAVA_ADVICE}"
        )


@contextmanager
def kept_quiet(log: IO[bytes] | None) -> Iterator[None]:
    """Processes that start within this block, that is Java, write their errors to `log`, and we end them.

    A signal to end often goes to all processes of a group: Java would end before the last batch is finished. It ends
    when we do, because its input ends then. The loggers of PySpark, which repeat its exceptions, are silent from then
    on. Without a log, errors go where ours go.
    """
    global _is_starting, _is_hooked
    if not _is_hooked:
        os.register_at_fork(after_in_child=_ignore_the_end)
        _is_hooked = True
    _is_starting = True
    kept = os.dup(2)
    try:
        if log is not None:
            for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j"):
                logging.getLogger(name).setLevel(logging.CRITICAL + 1)
            sys.stderr.flush()
            os.dup2(log.fileno(), 2)
        yield
    finally:
        _is_starting = False
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


_is_starting = False
_is_hooked = False


def _ignore_the_end() -> None:
    if _is_starting:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
