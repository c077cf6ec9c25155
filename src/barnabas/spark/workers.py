"""Checks whether the Python of Spark's workers can run our part of a query.

Spark starts its workers with `spark.sql.execution.pyspark.python`, else PYSPARK_PYTHON, else the first python3 on the
PATH, with its own module path. If that is not the driver's Python, a check runs it once and imports what workers need:
otherwise a worker would fail with a traceback in the middle of a query.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

from barnabas.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

PYTHON_SETTING: Final = "spark.sql.execution.pyspark.python"
PROBE_TIMEOUT_S: Final = 60
# The version comes first, so that it is reported even if the import fails.
PROBE: Final = (
    "import sys; print('%d.%d' % sys.version_info[:2], flush=True); import barnabas.spark.topics.reading"
)


def require_workers(spark: SparkSession) -> None:
    """Fails with what to set if the session's workers cannot import what they are going to run."""
    if getattr(spark, "_jsparkSession", None) is None:
        # The workers of a remote session are its server's.
        return
    context: Any = spark.sparkContext
    python = spark.conf.get(PYTHON_SETTING, None) or context.pythonExec
    if not _is_ours(python):
        _require(python, _module_path(context))


def write_in_one_task(
    rows: DataFrame, writer: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
) -> None:
    """Lets one task write all rows, which many tasks may compute; the writer returns a column `written`."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from writer(batches)

    require_workers(rows.sparkSession)
    rows.repartition(1).mapInArrow(write, "written bigint").collect()


def _is_ours(python: str) -> bool:
    """Whether it is the driver's own Python. One binary may serve several environments, so the folder counts too."""
    found = shutil.which(python)
    return found is not None and (
        (os.path.dirname(os.path.abspath(found)), os.path.realpath(found))
        == (os.path.dirname(sys.executable), os.path.realpath(sys.executable))
    )


def _module_path(context: Any) -> str:
    """Where workers look for modules: Spark's own, files that were added to the session, PYTHONPATH."""
    from pyspark import SparkFiles

    own = context._jvm.org.apache.spark.api.python.PythonUtils.sparkPythonPath()
    added = [os.path.join(SparkFiles.getRootDirectory(), name) for name in context._python_includes]
    return os.pathsep.join(filter(None, [own, *added, os.environ.get("PYTHONPATH", "")]))


@functools.lru_cache(maxsize=16)
def _require(python: str, module_path: str) -> None:
    """Good news is kept; an InvalidConfig is found again at the next call."""
    remedy = (
        f"set PYSPARK_PYTHON={sys.executable} before the session starts, or install barnabas[spark] there"
    )
    try:
        done = subprocess.run(
            [python, "-c", PROBE],
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
            env={**os.environ, "PYTHONPATH": module_path},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = getattr(error, "strerror", None) or f"no answer within {PROBE_TIMEOUT_S} s"
        raise InvalidConfig(
            f"Spark's workers are to run {python}, which cannot be started ({reason}): {remedy}"
        ) from None
    version, ours = done.stdout.strip(), "{}.{}".format(*sys.version_info[:2])
    if version != ours:
        raise InvalidConfig(
            f"Spark's workers run {python}, which is Python {version or 'of no known version'}, and this is Python"
            f" {ours}: {remedy}"
        )
    if done.returncode != 0:
        told = done.stderr.strip().splitlines()
        raise InvalidConfig(
            f"Spark's workers run {python}, which cannot import barnabas.spark"
            f" ({told[-1] if told else f'exit code {done.returncode}'}): {remedy}"
        )
