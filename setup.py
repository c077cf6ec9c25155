"""Compiles the hot modules with mypyc where there is a C compiler; elsewhere the same sources run as they are.

BARNABAS_COMPILE=0 asks for an uncompiled build, BARNABAS_COMPILE=1 makes a missing compiler an error.
"""

from __future__ import annotations

import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# The messages that have a codec to compile; their types are compiled with it.
NATIVE_MESSAGES = sorted(path.name for path in Path("src/barnabas/protocol/native").glob("[a-z]*_*.py"))

# Only what runs for every request, batch or record: each module here adds to the time of a build.
HOT_MODULES: list[str] = [
    "broker/broker.py",
    "broker/coordinator_base.py",
    "broker/coordinator_keys.py",
    "broker/coordinator_runtime.py",
    "broker/coordinator_shell.py",
    "broker/dispatch.py",
    "broker/exchange.py",
    "broker/fetch_sessions.py",
    "broker/group_caller.py",
    "broker/group_runtime.py",
    "broker/handlers/add_partitions_to_txn.py",
    "broker/handlers/end_txn.py",
    "broker/handlers/fetch.py",
    "broker/handlers/offset_commit.py",
    "broker/handlers/produce.py",
    "broker/loop_timer.py",
    "broker/partition.py",
    "broker/purgatory.py",
    "broker/quota_bucket.py",
    "broker/quotas.py",
    "broker/rates.py",
    "broker/replica_manager.py",
    "broker/timing_wheel.py",
    "broker/topic_figures.py",
    "broker/transaction_markers.py",
    "broker/transaction_runtime.py",
    "broker/transaction_shell.py",
    "broker/transaction_verification.py",
    "client/accumulator.py",
    "client/batches.py",
    "client/buffer_pool.py",
    "client/bytes_columns.py",
    "client/consumer_intake.py",
    "client/consumer_record.py",
    "client/delivery.py",
    "client/fetched.py",
    "client/fetcher.py",
    "client/fetcher_sessions.py",
    "client/futures.py",
    "client/partition_state.py",
    "client/partitioners.py",
    "client/producer.py",
    "client/producer_core.py",
    "client/producer_many.py",
    "client/sender.py",
    "clock.py",
    "groups/coordinator.py",
    "groups/decision.py",
    "groups/group_table.py",
    "groups/offset_store.py",
    "groups/offsets.py",
    "groups/records.py",
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
    "log/upkeep.py",
    "log/view.py",
    "metrics/instruments.py",
    "model.py",
    "net/channel.py",
    "net/connection.py",
    "net/outbox.py",
    "net/requester.py",
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
    "transactions/coordinator.py",
    "transactions/decision.py",
    "transactions/entry.py",
    "transactions/records.py",
]


def compiler() -> str | None:
    return shutil.which(os.environ.get("CC", "cc").split()[0])


def extensions() -> list[Extension]:
    wanted = os.environ.get("BARNABAS_COMPILE", "auto")
    # Installers ask for the metadata first, in a run of its own, and that tells nothing of extensions.
    if wanted == "0" or not HOT_MODULES or {"dist_info", "egg_info"} & set(sys.argv):
        return []
    if compiler() is None:
        if wanted == "1":
            sys.exit("BARNABAS_COMPILE=1, but there is no C compiler on the PATH (set CC or install gcc)")
        return []
    from mypyc.build import mypycify

    modules = [str(Path("src/barnabas", name)) for name in HOT_MODULES]
    # One library, so that modules call each other directly, of a C file a module, so that all cores compile.
    found: list[Extension] = mypycify(
        ["--no-warn-unused-configs", *modules], opt_level="2", debug_level="0", multi_file=True
    )
    for extension in found:
        # Calls from file to file go straight there, not by way of a table in which others could put theirs.
        extension.extra_compile_args = [*extension.extra_compile_args, "-fvisibility=hidden"]
    return found


class ParallelBuild(build_ext):
    """Compiles as many C files at once as there are cores, the largest first."""

    def build_extensions(self) -> None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.parallel = cores
        compile_here = self.compiler.compile
        with ThreadPoolExecutor(cores) as pool:

            def compile_all(sources: list[str], **options: Any) -> list[str]:
                ordered = sorted(sources, key=os.path.getsize, reverse=True)
                made = pool.map(lambda source: compile_here([source], **options), ordered)
                return [path for paths in made for path in paths]

            self.compiler.compile = compile_all
            super().build_extensions()


setup(ext_modules=extensions(), cmdclass={"build_ext": ParallelBuild})
