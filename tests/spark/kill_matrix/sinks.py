"""A pipeline with several sinks for drivers that are killed, and what is in the sinks at the end."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import deltalake

from tests.spark.kill_matrix.driver import AFTER_SINK, Job
from tests.spark.kill_matrix.running import Server, check_equal

# A topic, a table and a folder in one query, in this order, and files in a query of their own.
SINKS: Final = """
name = "{job.name}"
kafka = {{ "bootstrap.servers" = "{job.bootstrap}" }}

[sources.numbers]
type = "topic"
topics = "{job.source}"
format = {{ kind = "string", column = "value" }}
max_records = {job.offsets_per_batch}

[[transforms]]
name = "rows"
sql = "SELECT value FROM numbers"

[sinks.first]
type = "topic"
topic = "{job.out}"
format = {{ kind = "string", column = "value" }}

[sinks.second]
type = "database"
url = "sqlite:///{job.folder}/second.db"
table = "numbers"

[sinks.third]
type = "delta"
path = "third"

[sinks.apart]
type = "files"
path = "apart"
file_format = "json"
"""
POINTS: Final = tuple(AFTER_SINK.format(f"sinks.{name}") for name in ("first", "second", "third"))


def with_sinks(job: Job) -> Job:
    """The job with a pipeline of several sinks."""
    file = Path(job.folder) / "sinks.toml"
    file.write_text(SINKS.format(job=job))
    return replace(job, file=str(file))


def check_sinks(server: Server, job: Job, wanted: list[str]) -> None:
    """What was fed is in each sink, each once."""
    check_equal(server, job.out, wanted)
    folder = Path(job.folder)
    with closing(sqlite3.connect(folder / "second.db")) as connection:
        second = [value for (value,) in connection.execute("SELECT value FROM numbers")]
    third = deltalake.DeltaTable(folder / "third").to_pyarrow_table()["value"].to_pylist()
    for found in (second, third, _values_of_files(folder / "apart")):
        assert Counter(found) == Counter(wanted)


def _values_of_files(folder: Path) -> list[str]:
    """The values of the files that Spark's log of the folder names."""
    logs = [each for each in (folder / "_spark_metadata").iterdir() if not each.name.startswith(".")]
    entries = [json.loads(line) for each in logs for line in each.read_text().splitlines()[1:]]
    files = {unquote(urlsplit(entry["path"]).path) for entry in entries}
    return [json.loads(line)["value"] for file in files for line in Path(file).read_text().splitlines()]
