from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# Fills a block of 4 MiB anew fifty times, and prints how many pages the system had to give for it.
PROGRAM = """
import resource
from barnabas.spark.worker_memory import keep_freed_memory

keep_freed_memory()
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
