"""One session after the other: what waits, what is repeated, and in which order the hooks run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from barnabas.broker.metrics.controller_metrics import register_session
from barnabas.clock import SystemClock
from barnabas.coordination.store import renewed
from barnabas.coordination.store.contract import (
    CreateMode,
    SessionExpired,
    SessionState,
    Store,
    StoreError,
    StoreUnavailable,
)
from barnabas.coordination.store.embedded import EmbeddedSession, EmbeddedStore
from barnabas.coordination.store.renewed import RenewedStore
from barnabas.metrics.registry import Registry
from tests.coordination.engines import Recorder, run


class Engine:
    """An embedded store that can be out of reach, and whose sessions a test can end."""

    may_have_lost = False

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self.is_reachable = asyncio.Event()
        self.is_reachable.set()
        self.refusals = 0
        # So many of the next sessions end under an operation.
        self.wraps = 0
        self.sessions: list[EmbeddedSession] = []

    async def connect(self) -> Store:
        if self.refusals:
            self.refusals -= 1
            raise StoreUnavailable("nobody answers")
        await self.is_reachable.wait()
        session = await self._store.connect()
        self.sessions.append(session)
        if not self.wraps:
            return session
        self.wraps -= 1
        return Ending(session)  # type: ignore[return-value]

    async def expire(self) -> None:
        await self.sessions[-1].expire()

    async def close(self) -> None:
        await self._store.close()


class Scene:
    """A renewed store, its engine, and what has happened so far."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.failures: list[Exception] = []
        self.events: list[str] = []
        self._changed = asyncio.Condition()

    store: RenewedStore

    def hook(self, name: str, error: Exception | None = None) -> Callable[[], Awaitable[None]]:
        """A hook that notes its name, and fails the first time if it has an error."""
        errors = [error] if error is not None else []

        async def run_hook() -> None:
            await self.note(f"{name} in {self.store.session_id - self.engine.sessions[0].session_id}")
            if errors:
                raise errors.pop()

        return run_hook

    async def note(self, event: str) -> None:
        async with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    async def wait_for(self, count: int) -> list[str]:
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.events) >= count)
        return self.events


def play(directory: Path, scenario: Callable[[Scene], Awaitable[None]]) -> None:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Scene]:
        scene = Scene(Engine(await EmbeddedStore.open([str(directory)], clock=SystemClock())))
        scene.store = await RenewedStore.open(scene.engine, scene.failures.append)
        try:
            yield scene
        finally:
            await scene.store.close()

    async def main() -> None:
        async with opened() as scene:
            await scenario(scene)

    run(main())


@pytest.fixture(autouse=True)
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewed, "RETRY_DELAY_S", 0.0)


def test_hooks_run_in_their_order_in_each_new_session(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        store, engine = scene.store, scene.engine
        states: list[SessionState] = []
        store.add_session_listener(states.append)
        for name in ("settings", "registration", "election"):
            store.on_renewed(scene.hook(name))
        await store.create("/here", mode=CreateMode.EPHEMERAL)
        await engine.expire()
        assert await scene.wait_for(3) == ["settings in 1", "registration in 1", "election in 1"]
        assert await store.exists("/here") is None
        engine.refusals = 3
        await engine.expire()
        assert (await scene.wait_for(6))[3:] == ["settings in 2", "registration in 2", "election in 2"]
        assert states == [SessionState.EXPIRED] * 2
        assert scene.failures == []

    play(tmp_path, scenario)


def test_metrics_of_the_session(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        registry = Registry()
        register_session(registry, scene.store)
        scene.store.on_renewed(scene.hook("registration"))
        name = "kafka_server_sessionexpirelistener_"
        for expired in range(3):
            lines = registry.render().splitlines()
            assert f'{name}sessionstate{{state="CONNECTED"}} 1' in lines
            assert f"{name}zookeeperexpires_total {expired}" in lines
            assert f"{name}zookeepersyncconnects_total {expired + 1}" in lines
            assert f"{name}zookeeperdisconnects_total 0" in lines
            await scene.engine.expire()
            await scene.wait_for(expired + 1)

    play(tmp_path, scenario)


def test_operations_wait_for_the_next_session(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        store, engine = scene.store, scene.engine
        await store.create("/a", b"1")
        engine.is_reachable.clear()
        await engine.expire()
        recorder = Recorder()
        reading = asyncio.ensure_future(store.get("/a", recorder))
        writing = asyncio.ensure_future(store.create("/b"))
        done, _ = await asyncio.wait([reading, writing], timeout=0.05)
        assert not done
        engine.is_reachable.set()
        data, _ = await reading
        assert (data, await writing) == (b"1", "/b")
        await store.set("/a", b"2")
        assert await recorder.next() == ("NODE_DATA_CHANGED", "/a")

    play(tmp_path, scenario)


class Ending:
    """A session that ends under some operations."""

    def __init__(self, session: EmbeddedSession) -> None:
        self._session = session

    def __getattr__(self, name: str) -> object:
        return getattr(self._session, name)

    async def exists(self, path: str, watcher: object = None) -> None:
        await self._end()

    async def delete(self, path: str, *, version: int = -1) -> None:
        await self._end()

    async def _end(self) -> None:
        await self._session.expire()
        raise SessionExpired("in the middle")


def test_a_read_is_repeated_and_a_write_is_not(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        store, engine = scene.store, scene.engine
        await store.create("/a")
        engine.wraps = 2
        await engine.expire()
        # In the first session that ends so, and in the second, it does not succeed.
        assert await store.exists("/a") is not None
        assert len(engine.sessions) == 4
        engine.wraps = 1
        await engine.expire()
        with pytest.raises(SessionExpired):
            await store.delete("/a")
        assert await store.exists("/a") is not None

    play(tmp_path, scenario)


def test_hooks_that_the_store_fails_run_again_from_the_first(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        scene.store.on_renewed(scene.hook("settings"))
        scene.store.on_renewed(scene.hook("registration", StoreUnavailable("lost")))
        await scene.engine.expire()
        assert await scene.wait_for(4) == [
            "settings in 1",
            "registration in 1",
            "settings in 1",
            "registration in 1",
        ]
        assert scene.failures == []

    play(tmp_path, scenario)


def test_a_session_that_ends_under_the_hooks(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        store, engine = scene.store, scene.engine

        async def expires_once() -> None:
            await scene.note("first")
            if len(engine.sessions) == 2:
                await engine.expire()
            # Operations of a hook go on in the next session.
            await store.exists("/")

        store.on_renewed(expires_once)
        store.on_renewed(scene.hook("second"))
        await engine.expire()
        assert await scene.wait_for(4) == ["first", "second in 2", "first", "second in 2"]

    play(tmp_path, scenario)


def test_an_error_that_is_not_the_stores_is_reported(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        reported = asyncio.get_running_loop().create_future()
        error = ValueError("id in use")
        scene.store._on_failure = reported.set_result
        scene.store.on_renewed(scene.hook("registration", error))
        await scene.engine.expire()
        assert await reported is error

    play(tmp_path, scenario)


@pytest.mark.parametrize("has_session", [True, False])
def test_nothing_waits_for_a_store_that_is_out_of_reach_at_the_end(tmp_path: Path, has_session: bool) -> None:
    async def scenario(scene: Scene) -> None:
        store, engine = scene.store, scene.engine
        engine.is_reachable.clear()
        if has_session:
            await store.stop_waiting()
            await store.create("/a")
            store._on_state(engine.sessions[-1], SessionState.SUSPENDED)
            assert store._connecting is not None
            await store._connecting
            with pytest.raises(StoreError):
                await store.exists("/a")
        else:
            await engine.expire()
            reading = asyncio.ensure_future(store.exists("/a"))
            await asyncio.sleep(0)
            await store.stop_waiting()
            with pytest.raises(SessionExpired):
                await reading

    play(tmp_path, scenario)
