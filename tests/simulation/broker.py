"""A whole broker in a simulated world: its disk outlives its processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from barnabas.config.broker_config import BrokerConfig
from barnabas.coordination.store.contract import StoreEngine
from barnabas.records.jobs import run_job
from barnabas.server.environment import Environment, OpenStore, open_store
from barnabas.server.server import Server
from tests.log.simulated import SimulatedFileSystem
from tests.simulation.ensemble import SimulatedEnsemble
from tests.simulation.network import Network
from tests.simulation.world import Process, World

PORT: Final = 9092


class JobRunner:
    """Runs the jobs of the worker process at once."""

    async def run(self, job: bytes) -> bytes:
        return run_job(job)

    def close(self) -> None: ...


class SimulatedBroker:
    def __init__(
        self,
        world: World,
        network: Network,
        host: str,
        settings: Mapping[str, str],
        ensemble: SimulatedEnsemble | None = None,
    ) -> None:
        """Without an ensemble the broker has a store of its own."""
        self.host = host
        self._ensemble = ensemble
        self._world = world
        self._network = network
        self._settings = settings
        self.fs = SimulatedFileSystem()
        # Called after each turn of the process, once the broker answers.
        self.on_turn: Callable[[], None] = lambda: None
        self._process: Process | None = None
        self._server: Server | None = None

    @property
    def address(self) -> tuple[str, int]:
        return self.host, PORT

    @property
    def process(self) -> Process:
        assert self._process is not None
        return self._process

    @property
    def server(self) -> Server:
        assert self._server is not None
        return self._server

    @property
    def has_started(self) -> bool:
        """Whether it runs, and answers."""
        return self.is_running and self._server is not None and bool(self._server.ports)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_alive

    def start(self) -> None:
        """Runs the world until the broker answers."""
        started = self.begin_start()
        self._world.run_until(started.done)
        started.result()

    def begin_start(self) -> asyncio.Task[None]:
        assert self._process is None
        self._server = None
        process = self._process = self._world.process(self.host)
        process.on_turn = self._note_turn
        self.fs.clock = process.clock
        environment = Environment(
            clock=process.clock,
            rng=process.rng,
            fs=self.fs,
            transport=self._network.transport(process),
            new_executor=process.new_executor,
            new_worker=lambda loop, executor: JobRunner(),
            open_store=self._open_store(process),
            locks_directories=False,
        )
        self.fs.on_crash = process.kill
        return process.loop.create_task(self._start(environment))

    def _note_turn(self) -> None:
        if self.has_started:
            self.process.on_turn = self.on_turn
            self.on_turn()

    def _open_store(self, process: Process) -> OpenStore:
        ensemble = self._ensemble
        if ensemble is None:
            return open_store

        async def open_engine(*_: object) -> StoreEngine:
            return ensemble.engine(process)

        return open_engine

    async def _start(self, environment: Environment) -> None:
        config = BrokerConfig(
            {"listeners": f"PLAINTEXT://{self.host}:{PORT}", "log.dirs": "/data", **self._settings}
        )
        self._server = Server(config, environment)
        await self._server.start()

    def stop(self) -> None:
        """Stops the broker in order."""
        process = self.process
        self._world.run(process, self.server.stop())
        self._end(process)

    def begin_stop(self, on_end: Callable[[], None]) -> None:
        """Stops the broker in order while the world goes on."""
        process = self.process

        def end() -> None:
            if process.is_alive:
                self._end(process)
                on_end()

        stopping = process.loop.create_task(self.server.stop())
        stopping.add_done_callback(lambda _: self._world.call_at(self._world.now_s, end))

    def kill(self) -> None:
        """Ends the process at once. Everything that it has written is there for the next one."""
        assert self._process is not None
        self._end(self._process)
        self.fs = self.fs.kill()

    def cut_power(self, rng: Random) -> None:
        """Ends the machine at once. Of what was not synced, the next one finds any part."""
        assert self._process is not None
        self._end(self._process)
        self.fs = self.fs.crash(rng)

    def crash_after(self, changes: int) -> None:
        """Has the process killed within a call to the file system, after that many more changes of files."""
        self.fs.crash_after(changes)

    @property
    def has_ended(self) -> bool:
        return self._process is None

    def _end(self, process: Process) -> None:
        process.kill()
        self._process = None
        # A crash that was to come was meant for this process.
        self.fs.crash_after(None)
