"""Small files in any file system that Spark knows: a checkpoint may be at hdfs:// or s3a://."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def exists(spark: SparkSession, location: str) -> bool:
    """Whether there is such a file or folder."""
    system, path = _opened(spark, location)
    return bool(system.exists(path))


def read_text(spark: SparkSession, location: str) -> str | None:
    """None if there is no such file."""
    system, path = _opened(spark, location)
    if not system.exists(path):
        return None
    stream = system.open(path)
    try:
        text: str = _jvm(spark).org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
    finally:
        stream.close()
    return text


def write_text(spark: SparkSession, location: str, text: str) -> None:
    """Replaces the file, and creates the folders above it."""
    system, path = _opened(spark, location)
    stream = system.create(path, True)
    try:
        stream.write(bytearray(text.encode()))
    finally:
        stream.close()


def _opened(spark: SparkSession, location: str) -> tuple[Any, Any]:
    path = _jvm(spark).org.apache.hadoop.fs.Path(location)
    return path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()), path


def _jvm(spark: SparkSession) -> Any:
    jvm: Any = spark.sparkContext._jvm
    assert jvm is not None
    return jvm
