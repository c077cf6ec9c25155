"""Compiles the hot modules with mypyc where there is a C compiler; elsewhere the same sources run as they are.

BARNABAS_COMPILE=0 asks for an uncompiled build, BARNABAS_COMPILE=1 makes a missing compiler an error.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from setuptools import setup

# The messages that have a codec to compile; their types are compiled with it.
NATIVE_MESSAGES = sorted(path.name for path in Path("src/barnabas/protocol/native").glob("[a-z]*_*.py"))

# Only what runs for every request, batch or record: each module here adds to the time of a build.
HOT_MODULES: list[str] = [
    "broker/dispatch.py",
    "broker/exchange.py",
    "broker/fetch_sessions.py",
    "broker/handlers/fetch.py",
    "broker/handlers/produce.py",
    "broker/partition.py",
    "broker/purgatory.py",
    "broker/rates.py",
    "broker/replica_manager.py",
    "broker/timing_wheel.py",
    "broker/topic_figures.py",
    "clock.py",
    "log/append.py",
    "log/cleaner_filter.py",
    "log/cleaner_transactions.py",
    "log/epoch_cache.py",
    "log/file_system.py",
    "log/guard.py",
    "log/local_log.py",
    "log/offset_index.py",
    "log/offset_map.py",
    "log/partition_log.py",
    "log/producer_entry.py",
    "log/producer_replay.py",
    "log/producer_state.py",
    "log/read.py",
    "log/segment.py",
    "log/segment_file.py",
    "log/segment_results.py",
    "log/segment_scan.py",
    "log/segments.py",
    "log/sparse_index.py",
    "log/time_index.py",
    "log/view.py",
    "metrics/instruments.py",
    "model.py",
    "net/channel.py",
    "net/connection.py",
    "net/outbox.py",
    "primitives/file_slice.py",
    "primitives/second_chance.py",
    "protocol/apis.py",
    "protocol/codec.py",
    "protocol/frames.py",
    "protocol/message.py",
    *(f"protocol/messages/{name}" for name in NATIVE_MESSAGES),
    *(f"protocol/native/{name}" for name in NATIVE_MESSAGES),
    "protocol/native/wire.py",
    "protocol/requests.py",
    "records/analyze.py",
    "records/builder.py",
    "records/columns.py",
    "records/header.py",
    "records/policy.py",
    "records/reader.py",
    "records/record.py",
    "records/rules.py",
    "records/scan.py",
    "records/validate.py",
    "records/varint.py",
]


def compiler() -> str | None:
    return shutil.which(os.environ.get("CC", "cc").split()[0])


def extensions() -> list[object]:
    wanted = os.environ.get("BARNABAS_COMPILE", "auto")
    if wanted == "0":
        return []
    if compiler() is None:
        if wanted == "1":
            sys.exit("BARNABAS_COMPILE=1, but there is no C compiler on the PATH (set CC or install gcc)")
        return []
    from mypyc.build import mypycify

    modules = [str(Path("src/barnabas", name)) for name in HOT_MODULES]
    if not modules:
        return []
    return list(
        mypycify(["--no-warn-unused-configs", *modules], opt_level="2", debug_level="0", separate=False)
    )


setup(ext_modules=extensions())  # type: ignore[arg-type]
