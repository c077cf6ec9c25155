"""The external dependencies of a broker: time, randomness, disks, network, threads, the worker process, the store.

The defaults are the real ones. A simulation passes its own, and then the whole broker runs in one thread, without
sockets and files, the same way for the same seed.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import Executor
from random import Random, SystemRandom
from typing import TypeAlias

from barnabas.broker.requests.conversions import (
    JOB_CPU_S,
    JOB_TIMEOUT_S,
    WORKER_MEMORY_BYTES,
    WORKER_MODULE,
    Worker,
)
from barnabas.clock import Clock, SystemClock
from barnabas.config.broker_config import BrokerConfig
from barnabas.coordination.store.contract import StoreEngine
from barnabas.coordination.store.embedded import EmbeddedStore
from barnabas.coordination.store.moved import refuse_moved_store, refuse_unmoved_store
from barnabas.log.file_system import DiskFileSystem, FileSystem
from barnabas.net.transport import SocketTransport, Transport
from barnabas.net.worker_process import WorkerProcess
from barnabas.primitives.executors import NewExecutor, new_threads

NewWorker: TypeAlias = Callable[[AbstractEventLoop, Executor], Worker]
# Opens the store of a broker with these log directories, of which the damaged files named last are given up.
OpenStore: TypeAlias = Callable[
    ["Environment", BrokerConfig, Sequence[str], Collection[str]], Awaitable[StoreEngine]
]


def new_worker_process(loop: AbstractEventLoop, executor: Executor) -> WorkerProcess:
    arguments = (str(JOB_CPU_S), str(WORKER_MEMORY_BYTES))
    return WorkerProcess(loop, executor, WORKER_MODULE, *arguments, timeout_s=JOB_TIMEOUT_S)


async def open_store(
    environment: Environment,
    config: BrokerConfig,
    directories: Sequence[str],
    accepted_losses: Collection[str],
) -> StoreEngine:
    """The store of the cluster in ZooKeeper, or else one of the broker's own."""
    if config.uses_zookeeper:
        # A broker without ZooKeeper starts faster without its client.
        from barnabas.server.zookeeper import zookeeper_store

        assert config.zookeeper_connect is not None
        refuse_unmoved_store(environment.fs, directories, config.zookeeper_connect)
        return zookeeper_store(config)
    refuse_moved_store(environment.fs, directories)
    return await EmbeddedStore.open(
        directories,
        clock=environment.clock,
        fs=environment.fs,
        accepted_losses=accepted_losses,
        new_executor=environment.new_executor,
        locks=environment.locks_directories,
    )


class Environment:
    """What is not passed is real. `locks_directories` is for disks that no other process can use."""

    __slots__ = (
        "clock",
        "fs",
        "locks_directories",
        "new_executor",
        "new_worker",
        "open_store",
        "rng",
        "transport",
    )

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        rng: Random | None = None,
        fs: FileSystem | None = None,
        transport: Transport | None = None,
        new_executor: NewExecutor = new_threads,
        new_worker: NewWorker = new_worker_process,
        open_store: OpenStore = open_store,
        locks_directories: bool = True,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.rng: Random = rng or SystemRandom()
        self.fs: FileSystem = fs or DiskFileSystem()
        self.transport: Transport = transport or SocketTransport()
        self.new_executor = new_executor
        self.new_worker = new_worker
        self.open_store = open_store
        self.locks_directories = locks_directories
