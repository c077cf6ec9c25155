"""The external dependencies of a broker: time, randomness, disks, network, threads, the worker process, the store.

The defaults are the real ones. A simulation passes its own, and then the whole broker runs in one thread, without
sockets and files, the same way for the same seed.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from random import Random, SystemRandom
from typing import Protocol, TypeAlias

from barnabas.broker.requests.conversions import (
    JOB_CPU_S,
    JOB_TIMEOUT_S,
    WORKER_MEMORY_BYTES,
    WORKER_MODULE,
    Worker,
)
from barnabas.clock import Clock, SystemClock
from barnabas.coordination.store.contract import Store
from barnabas.coordination.store.embedded import EmbeddedStore
from barnabas.log.file_system import DiskFileSystem, FileSystem
from barnabas.net.transport import SocketTransport, Transport
from barnabas.net.worker_process import WorkerProcess
from barnabas.primitives.executors import NewExecutor, new_threads


class StoreEngine(Protocol):
    @property
    def may_have_lost(self) -> bool:
        """Whether changes that were reported as stored may be missing."""

    async def connect(self) -> Store:
        """A new session."""

    async def close(self) -> None: ...


NewWorker: TypeAlias = Callable[[AbstractEventLoop, Executor], Worker]
# Opens the store of a broker with these log directories, of which the damaged files named last are given up.
OpenStore: TypeAlias = Callable[["Environment", Sequence[str], Collection[str]], Awaitable[StoreEngine]]


def new_worker_process(loop: AbstractEventLoop, executor: Executor) -> WorkerProcess:
    arguments = (str(JOB_CPU_S), str(WORKER_MEMORY_BYTES))
    return WorkerProcess(loop, executor, WORKER_MODULE, *arguments, timeout_s=JOB_TIMEOUT_S)


async def open_embedded_store(
    environment: Environment, directories: Sequence[str], accepted_losses: Collection[str]
) -> EmbeddedStore:
    return await EmbeddedStore.open(
        directories,
        clock=environment.clock,
        fs=environment.fs,
        accepted_losses=accepted_losses,
        new_executor=environment.new_executor,
        locks=environment.locks_directories,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    clock: Clock = field(default_factory=SystemClock)
    rng: Random = field(default_factory=SystemRandom)
    fs: FileSystem = field(default_factory=DiskFileSystem)
    transport: Transport = field(default_factory=SocketTransport)
    new_executor: NewExecutor = new_threads
    new_worker: NewWorker = new_worker_process
    open_store: OpenStore = open_embedded_store
    # A lock keeps other processes out, and a file system in memory has no other processes.
    locks_directories: bool = True
