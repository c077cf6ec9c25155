"""A whole broker in a simulated world: its disk outlives its processes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Final

from barnabas.config.broker_config import BrokerConfig
from barnabas.records.jobs import run_job
from barnabas.server.environment import Environment
from barnabas.server.server import Server
from tests.log.simulated import SimulatedFileSystem
from tests.simulation.network import Network
from tests.simulation.world import Process, World

PORT: Final = 9092


class JobRunner:
    """Runs the jobs of the worker process at once."""

    async def run(self, job: bytes) -> bytes:
        return run_job(job)

    def close(self) -> None: ...


class SimulatedBroker:
    def __init__(self, world: World, network: Network, host: str, settings: Mapping[str, str]) -> None:
        self.host = host
        self._world = world
        self._network = network
        self._settings = settings
        self.fs = SimulatedFileSystem()
        self._process: Process | None = None
        self._server: Server | None = None

    @property
    def address(self) -> tuple[str, int]:
        return self.host, PORT

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
        process = self._process = self._world.process(self.host)
        self.fs.clock = process.clock
        environment = Environment(
            clock=process.clock,
            rng=process.rng,
            fs=self.fs,
            transport=self._network.transport(process),
            new_executor=process.new_executor,
            new_worker=lambda loop, executor: JobRunner(),
            locks_directories=False,
        )
        self.fs.on_crash = process.kill
        return process.loop.create_task(self._start(environment))

    async def _start(self, environment: Environment) -> None:
        config = BrokerConfig(
            {"listeners": f"PLAINTEXT://{self.host}:{PORT}", "log.dirs": "/data", **self._settings}
        )
        self._server = Server(config, environment)
        await self._server.start()

    def stop(self) -> None:
        """Stops the broker in order."""
        process, server = self._process, self._server
        assert process is not None
        assert server is not None
        self._world.run(process, server.stop())
        self._end(process)

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

    def _end(self, process: Process) -> None:
        process.kill()
        self._process = None
