"""The creation of threads. A simulation passes its own executors, which run everything in one thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeAlias

# Creates an executor with this many threads and this name.
NewExecutor: TypeAlias = Callable[[int, str], Executor]


def new_threads(count: int, name: str) -> Executor:
    return ThreadPoolExecutor(count, thread_name_prefix=name)
