from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# Fills a block of 4 MiB anew fifty times, and prints how many pages the system had to give for it.
PROGRAM = """
import resource
from barnabas.primitives.freed_memory import keep_freed_memory

keep_freed_memory(128 << 20)
for _ in range(2):
    block = b"x" * (4 << 20)
    del block
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    block = b"x" * (4 << 20)
    del block
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc, whose mallopt is what is used")
def test_blocks_that_are_freed_are_used_again() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=True
    )
    # Each block has 1,024 pages of 4 KiB.
    assert int(done.stdout) < 1_024


def test_a_worker_does_not_import_pandas() -> None:
    """Arrow imports it for the first scalar or list, and a worker would take twice as long to start."""
    code = (
        "import sys, barnabas.spark.topics.source, barnabas.spark.topics.stream, barnabas.spark.topics.reading as it;"
        "from barnabas.model import TopicPartition;"
        "from barnabas.spark.topics.schema import spark_schema;"
        "it.RowMaker(spark_schema(include_headers=True))._repeat('topic', TopicPartition('t', 1), 3);"
        "print('pandas' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "False\n"


def test_the_process_that_asks_for_offsets_imports_nothing_to_read() -> None:
    """Spark starts one for each stream, and the first batch waits for it."""
    pytest.importorskip("pyspark", reason="pyspark is needed: install barnabas[spark]")
    code = (
        "import sys, barnabas.spark.topics.source, barnabas.spark.topics.stream;"
        "print([each for each in ('barnabas.records.columns', 'barnabas.client.reader', 'pyarrow.compute')"
        " if each in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"
