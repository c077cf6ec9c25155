"""Compiles the hot modules with mypyc where there is a C compiler; elsewhere the same sources run as they are.

BARNABAS_COMPILE=0 asks for an uncompiled build, BARNABAS_COMPILE=1 makes a missing compiler an error.
"""

from __future__ import annotations

import ast
import gc
import os
import re
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# The messages that have a codec to compile; their types are compiled with it.
NATIVE_MESSAGES = sorted(path.name for path in Path("src/barnabas/protocol/native").glob("[a-z]*_*.py"))

# Only modules that run for every request, batch or record: each module here adds to the build time.
HOT_MODULES: list[str] = [
    "broker/broker.py",
    "broker/coordinators/group_shell.py",
    "broker/coordinators/keys.py",
    "broker/coordinators/runtime.py",
    "broker/coordinators/shell.py",
    "broker/dispatch.py",
    "broker/requests/exchange.py",
    "broker/requests/served_api.py",
    "broker/requests/session.py",
    "broker/requests/fetch_sessions.py",
    "broker/handlers/records/fetch_waiting.py",
    "broker/handlers/groups/asking.py",
    "broker/handlers/groups/known_partitions.py",
    "broker/coordinators/group_runtime.py",
    "broker/handlers/transactions/add_partitions_to_txn.py",
    "broker/handlers/transactions/end_txn.py",
    "broker/handlers/records/fetch.py",
    "broker/handlers/groups/offset_commit.py",
    "broker/handlers/records/produce.py",
    "broker/waiting/loop_timer.py",
    "broker/replication/delayed.py",
    "broker/replication/partition.py",
    "broker/replication/replicated.py",
    "broker/waiting/purgatory.py",
    "broker/quotas/bucket.py",
    "broker/quotas/quotas.py",
    "broker/quotas/rates.py",
    "broker/replication/replica_manager.py",
    "broker/waiting/timing_wheel.py",
    "broker/replication/topic_metrics.py",
    "broker/coordinators/transaction_markers.py",
    "broker/coordinators/transaction_runtime.py",
    "broker/coordinators/transaction_shell.py",
    "broker/handlers/transaction_verification.py",
    "client/producer/accumulator.py",
    "client/producer/batches.py",
    "client/producer/buffer_pool.py",
    "client/producer/bytes_columns.py",
    "client/consumer/intake.py",
    "client/consumer/record.py",
    "client/producer/delivery.py",
    "client/consumer/fetched.py",
    "client/consumer/fetcher.py",
    "client/consumer/fetcher_sessions.py",
    "client/producer/futures.py",
    "client/partition_state.py",
    "client/producer/partitioners.py",
    "client/producer/sending.py",
    "client/producer/core.py",
    "client/producer/many.py",
    "client/producer/sender.py",
    "clock.py",
    "groups/coordinator.py",
    "groups/caller.py",
    "groups/committed.py",
    "groups/group_table.py",
    "groups/offset_store.py",
    "groups/offsets.py",
    "groups/records.py",
    "log/partition/append.py",
    "log/partition/appender.py",
    "log/cleaner/filter.py",
    "log/cleaner/transactions.py",
    "log/partition/epoch_cache.py",
    "log/file_system.py",
    "log/partition/guard.py",
    "log/segment/index_columns.py",
    "log/segment/indexed_log.py",
    "log/partition/local_log.py",
    "log/segment/offset_index.py",
    "log/cleaner/offset_map.py",
    "log/partition/partition_log.py",
    "log/producers/entry.py",
    "log/producers/replay.py",
    "log/producers/state.py",
    "log/partition/read.py",
    "log/partition/reader.py",
    "log/segment/segment.py",
    "log/segment/file.py",
    "log/segment/results.py",
    "log/segment/scan.py",
    "log/segment/segments.py",
    "log/segment/sparse_index.py",
    "log/segment/time_index.py",
    "log/partition/upkeep.py",
    "log/partition/watermarks.py",
    "metrics/instruments.py",
    "model.py",
    "net/channel.py",
    "net/connection.py",
    "net/outbox.py",
    "net/request_memory.py",
    "net/requester.py",
    "primitives/decision.py",
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
    "replication/leader.py",
    "replication/remote_replica.py",
    "transactions/coordinator.py",
    "transactions/answers.py",
    "transactions/entry.py",
    "transactions/markers.py",
    "transactions/records.py",
]


# Messages that are not part of each produce, fetch or commit.
RARE_MESSAGES = ("add_partitions_to_txn", "api_versions", "end_txn", "list_offsets", "transaction_log")

# Those of them that run once per request or batch, not per record or field: the compiler optimises them less.
QUICKLY_COMPILED = (
    "broker/broker.py",
    "broker/coordinators/group_runtime.py",
    "broker/coordinators/group_shell.py",
    "broker/coordinators/keys.py",
    "broker/coordinators/runtime.py",
    "broker/coordinators/shell.py",
    "broker/coordinators/transaction_markers.py",
    "broker/coordinators/transaction_runtime.py",
    "broker/coordinators/transaction_shell.py",
    "broker/handlers/groups/asking.py",
    "broker/handlers/groups/known_partitions.py",
    "broker/handlers/groups/offset_commit.py",
    "broker/handlers/records/fetch_waiting.py",
    "broker/handlers/transaction_verification.py",
    "broker/handlers/transactions/add_partitions_to_txn.py",
    "broker/handlers/transactions/end_txn.py",
    "broker/quotas/bucket.py",
    "broker/quotas/quotas.py",
    "broker/quotas/rates.py",
    "broker/replication/delayed.py",
    "broker/replication/partition.py",
    "broker/replication/replica_manager.py",
    "broker/replication/replicated.py",
    "broker/replication/topic_metrics.py",
    "broker/requests/fetch_sessions.py",
    "broker/requests/served_api.py",
    "broker/requests/session.py",
    "broker/waiting/loop_timer.py",
    "broker/waiting/purgatory.py",
    "broker/waiting/timing_wheel.py",
    "client/consumer/fetched.py",
    "client/consumer/fetcher.py",
    "client/consumer/fetcher_sessions.py",
    "client/partition_state.py",
    "client/producer/sender.py",
    "groups/caller.py",
    "groups/committed.py",
    "groups/coordinator.py",
    "groups/group_table.py",
    "groups/offset_store.py",
    "groups/offsets.py",
    "groups/records.py",
    "log/cleaner/filter.py",
    "log/cleaner/transactions.py",
    "log/file_system.py",
    "log/partition/epoch_cache.py",
    "log/partition/guard.py",
    "log/partition/local_log.py",
    "log/partition/partition_log.py",
    "log/partition/upkeep.py",
    "log/partition/watermarks.py",
    "log/producers/entry.py",
    "log/producers/replay.py",
    "log/producers/state.py",
    "log/segment/indexed_log.py",
    "log/segment/offset_index.py",
    "log/segment/segment.py",
    "log/segment/segments.py",
    "log/segment/sparse_index.py",
    "log/segment/time_index.py",
    "net/requester.py",
    "protocol/apis.py",
    *(
        f"protocol/{folder}/{name}"
        for folder in ("messages", "native")
        for name in NATIVE_MESSAGES
        if name.startswith(RARE_MESSAGES)
    ),
    "replication/leader.py",
    "replication/remote_replica.py",
    "transactions/answers.py",
    "transactions/coordinator.py",
    "transactions/entry.py",
    "transactions/markers.py",
    "transactions/records.py",
)

# Modules with public classes, or what they call first. mypyc keeps the signatures of methods for help(), but neither
# docstrings nor types, and its errors do not name the argument of a wrong type.
DOCUMENTED = (
    "client/consumer/intake.py",
    "client/consumer/record.py",
    "client/producer/futures.py",
    "client/producer/core.py",
    "client/producer/partitioners.py",
    "client/producer/sending.py",
)
C_TEXT = r'(NULL|"(?:[^"\\]|\\.)*")'
# The error for an argument of a wrong type, where a method is called from Python.
WRONG_ARGUMENT = re.compile(r'CPy_TypeError\("([^":]*)", obj_(?!self)([a-z]\w*)\)')

# C files are compiled together up to this size. Each includes the same large headers, which take as long as a small
# module; larger units would leave cores idle at the end, and need more memory.
UNIT_BYTES = 1_000_000
QUICK_UNIT = "quick_unit"
# The function that makes a module's classes and constants. It is long, and runs once.
MODULE_BODY = re.compile(r"^char (CPyDef_\w+_____top_level__)\(void\) \{", re.MULTILINE)
UNOPTIMISED = """\
#if defined(__GNUC__) && !defined(__clang__)
#define UNOPTIMISED __attribute__((cold, optimize("O0")))
#else
#define UNOPTIMISED
#endif
"""
PROGRESS_S = 5.0


def compiler() -> str | None:
    return shutil.which(os.environ.get("CC", "cc").split()[0])


def extensions() -> list[Extension]:
    wanted = os.environ.get("BARNABAS_COMPILE", "auto")
    # Installers ask for the metadata first, in a separate run that needs no extensions. An sdist has no C files either.
    if wanted == "0" or not HOT_MODULES or {"dist_info", "egg_info", "sdist"} & set(sys.argv):
        return []
    if compiler() is None:
        if wanted == "1":
            sys.exit("BARNABAS_COMPILE=1, but there is no C compiler on the PATH (set CC or install gcc)")
        return []
    from mypyc.build import mypycify

    # mypy makes millions of objects, nearly all of which stay: to look for garbage takes a second in vain.
    gc.set_threshold(200_000, 30, 30)

    modules = [str(Path("src/barnabas", name)) for name in HOT_MODULES]
    # One library, so that modules call each other directly, of several C files, so that all cores compile.
    found: list[Extension] = mypycify(
        ["--no-warn-unused-configs", *modules], opt_level="2", debug_level="0", multi_file=True
    )
    for name in DOCUMENTED:
        add_docstrings(Path("src/barnabas", name), Path("build", c_file(name)))
    for extension in found:
        # Calls from file to file go straight there, not through a table of symbols.
        extension.extra_compile_args = [*extension.extra_compile_args, "-fvisibility=hidden"]
        if is_library(extension):
            quick = {c_file(name) for name in QUICKLY_COMPILED}
            # The library's own file is a table of all modules.
            quick.add(f"__native_{extension.name.removesuffix('__mypyc').rpartition('.')[2]}.c")
            quick_sources = [each for each in extension.sources if os.path.basename(each) in quick]
            others = [each for each in extension.sources if each not in quick_sources]
            extension.sources = [
                *in_units(others, "build/unit"),
                *in_units(quick_sources, f"build/{QUICK_UNIT}"),
            ]
    return found


def c_file(module: str) -> str:
    """The files that mypyc writes for a module."""
    return f"__native_barnabas___{module.removesuffix('.py').replace('/', '___')}.c"


def add_docstrings(source: Path, c_source: Path) -> None:
    """Gives compiled classes and methods their docstrings, and the types of arguments in the first line.

    Errors get the names of arguments.
    """
    text = WRONG_ARGUMENT.sub(r'CPy_TypeError("\2: \1", obj_\2)', c_source.read_text())
    for each in ast.parse(source.read_text()).body:
        if not isinstance(each, ast.ClassDef):
            continue
        place = rf"(CPyType_(?:\w*___)?{each.name}_template_ = \{{.*?\.tp_doc = PyDoc_STR\(){C_TEXT}"
        text = with_docstring(text, place, ast.get_docstring(each) or "", signature_of(each))
        for method in each.body:
            if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and not method.name.startswith("_"):
                returned = f" -> {ast.unparse(method.returns)}" if method.returns is not None else ""
                typed = f"{method.name}({ast.unparse(method.args)}){returned}"
                place = rf"(CPyPy_(?:\w*___)?{each.name}___{method.name},\n[^\n]*?PyDoc_STR\(){C_TEXT}"
                text = with_docstring(text, place, f"{typed}\n\n{ast.get_docstring(method) or ''}".strip())
    c_source.write_text(text)


def signature_of(class_: ast.ClassDef) -> str:
    """The signature of a class in the form of inspect; mypyc leaves it out if a default is not a constant."""
    for method in class_.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            for each in ast.walk(method.args):
                if isinstance(each, ast.arg):
                    each.annotation = None
            named = ast.unparse(method.args).removeprefix("self").removeprefix(", ")
            return f"{class_.name}({named})\n--\n\n"
    return ""


def with_docstring(text: str, place: str, docstring: str, signature_else: str = "") -> str:
    """The C text with a docstring behind the signature that mypyc has written; properties have no place for one."""

    def in_c(given: str) -> str:
        # Every byte as an octal escape of fixed length, so that no digit behind it belongs to it.
        return "".join(
            chr(byte) if 32 <= byte < 127 and byte not in b'"\\?' else f"\\{byte:03o}"
            for byte in given.encode()
        )

    def added(found: re.Match[str]) -> str:
        signature = in_c(signature_else) if found[2] == "NULL" else found[2][1:-1]
        escaped = in_c(docstring)
        # mypyc may have left the file of an earlier build as it is.
        return found[0] if signature.endswith(escaped) else f'{found[1]}"{signature}{escaped}"'

    return re.sub(place, added, text, count=1, flags=re.DOTALL)


def is_library(extension: Extension) -> bool:
    """The library holds all modules; every other extension is a module that only asks the library for itself."""
    return extension.name.endswith("__mypyc")


def in_units(sources: list[str], prefix: str) -> list[str]:
    """Writes C files that include the given ones, about UNIT_BYTES in each, all of about the same size."""
    total = sum(map(os.path.getsize, sources))
    units: list[tuple[int, list[str]]] = [(0, []) for _ in range(total // UNIT_BYTES + 1)]
    for source in sorted(sources, key=os.path.getsize, reverse=True):
        smallest = min(range(len(units)), key=lambda index: units[index][0])
        size, members = units[smallest]
        units[smallest] = (size + os.path.getsize(source), [*members, source])
    return [including(members, f"{prefix}_{index}.c") for index, (_, members) in enumerate(units)]


def including(sources: list[str], path: str) -> str:
    folder = os.path.dirname(path)
    bodies = [found for source in sources for found in MODULE_BODY.findall(Path(source).read_text())]
    lines = [
        UNOPTIMISED,
        *(f"char {body}(void) UNOPTIMISED;\n" for body in bodies),
        *(f'#include "{os.path.relpath(source, folder)}"\n' for source in sources),
    ]
    Path(path).write_text("".join(lines))
    return path


class ParallelBuild(build_ext):
    """Compiles as many C files at once as there are cores, and says how far it is."""

    def build_extensions(self) -> None:
        everything = self.extensions
        self.extensions = [each for each in everything if is_library(each)]
        try:
            with ThreadPoolExecutor(cores()) as pool:
                self._compile_in(pool)
                super().build_extensions()
                self._build_shims([each for each in everything if not is_library(each)])
        finally:
            self.extensions = everything

    def _compile_in(self, pool: ThreadPoolExecutor) -> None:
        compile_here = self.compiler.compile

        def compile_one(source: str, options: dict[str, Any]) -> list[str]:
            if QUICK_UNIT in source:
                arguments = ["-O1" if each == "-O2" else each for each in options["extra_postargs"]]
                options = {**options, "extra_postargs": arguments}
            made: list[str] = compile_here([source], **options)
            return made

        def compile_all(sources: list[str], **options: Any) -> list[str]:
            progress = Progress(len(sources))
            objects: list[str] = []
            for made in pool.map(lambda source: compile_one(source, options), sources):
                objects += made
                progress.step()
            return objects

        self.compiler.compile = compile_all

    def _build_shims(self, shims: list[Extension]) -> None:
        """One file serves many modules: Python looks in a module's file only for the function of its name."""
        by_function: list[dict[str, Extension]] = []
        for shim in shims:
            name = shim.name.rpartition(".")[2]
            fitting = next((each for each in by_function if name not in each), None)
            if fitting is None:
                by_function.append({name: shim})
            else:
                fitting[name] = shim
        for index, group in enumerate(by_function):
            source = self._shim_source(group, f"build/shims_{index}.c")
            first = next(iter(group.values()))
            objects = self.compiler.compile(
                [source], output_dir=self.build_temp, extra_postargs=first.extra_compile_args
            )
            for shim in group.values():
                path = self.get_ext_fullpath(shim.name)
                if shim is first:
                    self.compiler.link_shared_object(objects, path, build_temp=self.build_temp)
                    built = path
                else:
                    self.mkpath(os.path.dirname(path))
                    self.copy_file(built, path)

    @staticmethod
    def _shim_source(group: dict[str, Extension], path: str) -> str:
        lines = []
        for name, shim in group.items():
            (source,) = shim.sources
            # Each defines this one for the sake of some linkers.
            lines += [f"#undef PyInit___init__\n#define PyInit___init__ unused_{name}\n"]
            lines += [f'#include "{os.path.relpath(source, os.path.dirname(path))}"\n']
        Path(path).write_text("".join(lines))
        return path


class Progress:
    """A line every few seconds, to where BARNABAS_PROGRESS_FD says: installers keep the usual output to themselves."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._told_s = time.monotonic()
        self._descriptor = int(os.environ.get("BARNABAS_PROGRESS_FD", "-1"))

    def step(self) -> None:
        self._done += 1
        now_s = time.monotonic()
        if self._descriptor >= 0 and self._done < self._total and now_s - self._told_s >= PROGRESS_S:
            self._told_s = now_s
            percent = self._done * 100 // self._total
            os.write(self._descriptor, f"setup:        compiled {percent} %\n".encode())


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


setup(ext_modules=extensions(), cmdclass={"build_ext": ParallelBuild})
