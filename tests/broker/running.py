"""A broker inside the test's process, on a thread and a loop of its own, listening on a port that the system chose."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from barnabas.clock import Clock
from barnabas.config.broker_config import BrokerConfig
from barnabas.server.environment import Environment, OpenStore, open_store
from barnabas.server.server import Server
from tests.broker.raw_client import RawClient

T = TypeVar("T")

WAIT_S = 60
# As good as Kafka's 50, with a tenth of the files.
INTERNAL_PARTITIONS = 5


class RunningBroker:
    def __init__(
        self,
        directory: Path,
        overrides: Mapping[str, str] | None = None,
        *,
        clock: Clock | None = None,
        fs: Any = None,
        open_store: OpenStore = open_store,
    ) -> None:
        """`fs` is a FileSystem, or an object that passes most calls on to one."""
        self._open_store = open_store
        self.directory = directory
        self._clock = clock
        self._fs = fs
        self._overrides = dict(overrides or {})
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        started = threading.Event()
        failure: list[BaseException] = []

        def run() -> None:
            asyncio.run(self._serve(started, failure))

        self._thread = threading.Thread(target=run, name="broker")
        self._thread.start()
        assert started.wait(WAIT_S), "the broker did not start"
        if failure:
            self._thread.join()
            self._thread = None
            raise failure[0]

    async def _serve(self, started: threading.Event, failure: list[BaseException]) -> None:
        self.loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        try:
            self.server = Server(
                BrokerConfig(
                    {
                        "log.dirs": str(self.directory),
                        "listeners": "PLAINTEXT://127.0.0.1:0",
                        "log.initial.task.delay.ms": "600000",
                        "offsets.topic.num.partitions": str(INTERNAL_PARTITIONS),
                        "transaction.state.log.num.partitions": str(INTERNAL_PARTITIONS),
                        **self._overrides,
                    }
                ),
                Environment(clock=self._clock, fs=self._fs, open_store=self._open_store),
            )
            await self.server.start()
        except BaseException as error:
            failure.append(error)
            return
        finally:
            started.set()
        await self._stopping.wait()
        await self.server.stop()

    def stop(self) -> None:
        if self._thread is not None:
            self.loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(WAIT_S)
            assert not self._thread.is_alive(), "the broker did not stop"
            self._thread = None

    @property
    def port(self) -> int:
        return self.server.ports["PLAINTEXT"]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def client(self, client_id: str = "test") -> RawClient:
        return RawClient(self.port, client_id=client_id)

    def call(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine on the broker's loop."""
        return asyncio.run_coroutine_threadsafe(function(), self.loop).result(WAIT_S)
