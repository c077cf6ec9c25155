"""The embedded store beyond the contract: reopening, crashes, faults, and what happens meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from barnabas.clock import ManualClock
from barnabas.coordination.store.contract import (
    Create,
    CreateMode,
    Delete,
    MultiFailed,
    NodeExists,
    Operation,
    SessionState,
    SetData,
    Stat,
    Store,
    StoreError,
    StoreUnavailable,
    WatchEvent,
    child_path,
    ensure_path,
)
from barnabas.coordination.store.embedded import PENDING_MAX, EmbeddedStore
from barnabas.coordination.store.journal import EPOCH_SHIFT, Journal
from barnabas.log.file_system import StorageFailure
from tests.coordination.engines import PATIENCE_S, Recorder, run


async def open_store(path: Path) -> EmbeddedStore:
    return await EmbeddedStore.open([str(path)], clock=ManualClock())


def with_store(path: Path, scenario: Callable[[EmbeddedStore], Awaitable[None]]) -> None:
    async def main() -> None:
        store = await open_store(path)
        try:
            await scenario(store)
        finally:
            await store.close()

    run(main())


def test_everything_but_ephemeral_nodes_is_there_after_reopening(tmp_path: Path) -> None:
    stats: dict[str, Stat | None] = {}

    async def write(store: EmbeddedStore) -> None:
        session = await store.connect()
        await ensure_path(session, "/a/b")
        await session.set("/a/b", b"1")
        await session.create("/a/gone", mode=CreateMode.EPHEMERAL)
        await session.create("/a/n", mode=CreateMode.EPHEMERAL_SEQUENTIAL)
        stats["/a"], stats["/a/b"] = await session.exists("/a"), await session.exists("/a/b")
        # Left without closing the session, as by a crash.
        store._sessions.clear()

    with_store(tmp_path, write)

    async def read(store: EmbeddedStore) -> None:
        session = await store.connect()
        names, parent = await session.children("/a")
        assert names == ["b"]
        assert await session.exists("/a/b") == stats["/a/b"]
        before = stats["/a"]
        assert before is not None
        assert (before.num_children, before.cversion) == (3, 3)
        assert (parent.num_children, parent.cversion) == (1, 5)
        assert parent.pzxid >> EPOCH_SHIFT == (before.pzxid >> EPOCH_SHIFT) + 1
        # Numbers do not start again.
        assert await session.create("/a/n", mode=CreateMode.PERSISTENT_SEQUENTIAL) == "/a/n0000000003"

    with_store(tmp_path, read)


async def whole_tree(store: Store, path: str = "/") -> dict[str, tuple[bytes, Stat]]:
    data, stat = await store.get(path)
    nodes = {path: (data, stat)}
    for name in (await store.children(path))[0]:
        nodes.update(await whole_tree(store, child_path(path, name)))
    return nodes


def random_operation(rng: random.Random) -> Operation:
    path = "".join(f"/{rng.choice('abc')}" for _ in range(rng.randint(1, 3)))
    match rng.randrange(5):
        case 0 | 1:
            return Create(path, rng.randbytes(rng.randrange(4)), rng.choice(list(CreateMode)))
        case 2:
            return SetData(path, rng.randbytes(rng.randrange(4)))
        case _:
            return Delete(path)


@pytest.mark.parametrize("seed", range(5))
def test_random_histories_are_read_back_as_they_were(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    before: dict[str, tuple[bytes, Stat]] = {}

    async def one_life(store: EmbeddedStore) -> None:
        sessions = [await store.connect() for _ in range(2)]
        assert not before or await whole_tree(sessions[0]) == before
        for _ in range(40):
            operations = [random_operation(rng) for _ in range(rng.choice((1, 1, 3)))]
            # Refusals are part of the history: they must leave no trace either.
            with contextlib.suppress(MultiFailed):
                await rng.choice(sessions).multi(operations)
        await sessions[0].close()
        await sessions[1].close()
        before.clear()
        before.update(await whole_tree(await store.connect()))

    for _ in range(4):
        with_store(tmp_path, one_life)
    assert len(before) > 5


def test_zxids_and_session_ids_rise_over_reopening(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    async def look(store: EmbeddedStore) -> None:
        session = await store.connect()
        path = await session.create("/n", mode=CreateMode.PERSISTENT_SEQUENTIAL)
        stat = await session.exists(path)
        assert stat is not None
        seen.append((stat.czxid, session.session_id))

    for _ in range(3):
        with_store(tmp_path, look)
    assert seen == sorted(set(seen))
    assert len({zxid for zxid, _ in seen}) == len({session for _, session in seen}) == 3


def test_a_second_store_on_the_file_is_refused(tmp_path: Path) -> None:
    async def scenario(_: EmbeddedStore) -> None:
        with pytest.raises(StoreUnavailable, match="is in use by another broker"):
            await open_store(tmp_path)

    with_store(tmp_path, scenario)


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    async def scenario() -> None:
        with pytest.raises(StoreUnavailable, match=r"cannot open .*absent: No such file or directory"):
            await open_store(tmp_path / "absent")

    run(scenario())


def test_a_commit_that_fails_ends_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        session = await store.connect()
        states: list[SessionState] = []
        session.add_session_listener(states.append)
        await session.create("/before")

        def refuse(*_: object) -> None:
            raise StorageFailure("write", "store", errno.EIO)

        monkeypatch.setattr(Journal, "commit", refuse)
        outcomes = await asyncio.gather(
            *(session.create(f"/{name}") for name in "abc"), return_exceptions=True
        )
        assert [str(outcome).rpartition(": ")[2] for outcome in outcomes] == ["Input/output error"] * 3
        assert all(isinstance(outcome, StoreUnavailable) for outcome in outcomes)
        assert states == [SessionState.SUSPENDED]
        assert await session.exists("/a") is None
        assert await session.exists("/before") is not None
        with pytest.raises(StoreUnavailable):
            await session.create("/later")

    with_store(tmp_path, scenario)
    monkeypatch.undo()

    async def read(store: EmbeddedStore) -> None:
        assert (await (await store.connect()).children("/"))[0] == ["before"]

    with_store(tmp_path, read)


def test_nothing_can_be_read_before_it_is_on_disk(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        session, recorder = await store.connect(), Recorder()
        await session.exists("/a", recorder)
        creating = asyncio.ensure_future(session.create("/a", b"1"))
        # One turn of the loop: accepted and handed to the thread, but its report cannot have been read.
        await asyncio.sleep(0)
        assert await session.exists("/a") is None
        # Whoever is refused because of it waits for it, and then finds it.
        with pytest.raises(NodeExists):
            await session.create("/a", b"2")
        assert (await session.get("/a"))[0] == b"1"
        assert await recorder.next() == ("NODE_CREATED", "/a")
        await creating

    with_store(tmp_path, scenario)


def test_a_caller_that_gives_up_does_not_take_its_change_back(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        session = await store.connect()
        creating = asyncio.ensure_future(session.create("/a"))
        await asyncio.sleep(0)
        creating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creating
        with pytest.raises(NodeExists):
            await session.create("/a")

    with_store(tmp_path, scenario)


def test_more_writes_at_once_than_may_wait(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        session = await store.connect()
        count = 3 * PENDING_MAX
        await asyncio.gather(*(session.create(f"/{index}") for index in range(count)))
        assert len((await session.children("/"))[0]) == count

    with_store(tmp_path, scenario)


def test_a_watcher_that_fails_disturbs_nobody(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        complaints: list[str] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: complaints.append(context["message"])
        )
        session, recorder = await store.connect(), Recorder()

        def fail(event: WatchEvent) -> None:
            raise RuntimeError(event.path)

        def fail_too(state: SessionState) -> None:
            raise RuntimeError(state.name)

        session.add_session_listener(fail_too)
        await session.exists("/a", fail)
        await session.exists("/a", recorder)
        await session.create("/a")
        assert await recorder.next() == ("NODE_CREATED", "/a")
        await session.close()
        assert complaints == ["a watcher of /a failed", "a session listener failed"]

    with_store(tmp_path, scenario)


def test_closing_ends_sessions_and_refuses_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await open_store(tmp_path)
        session = await store.connect()
        states: list[SessionState] = []
        session.add_session_listener(states.append)
        await store.close()
        await store.close()
        assert states == [SessionState.CLOSED]
        with pytest.raises(StoreError):
            await session.create("/a")

    run(scenario())


def test_too_many_operations_at_once_are_refused(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        session = await store.connect()
        with pytest.raises(StoreError, match="more than"):
            await session.multi([Create("/a")] * 10_001)
        with pytest.raises(MultiFailed, match="operation 1: NodeExists: /a"):
            await session.multi([Create("/a"), Create("/a")])

    with_store(tmp_path, scenario)


WRITER = """
import asyncio, sys
from pathlib import Path
from barnabas.clock import SystemClock
from barnabas.coordination.store.embedded import EmbeddedStore
from barnabas.coordination.store.contract import Create, CreateMode, SetData

async def main():
    store = await EmbeddedStore.open([sys.argv[1]], clock=SystemClock())
    session = await store.connect()
    number = int((await session.get("/counter"))[0])
    await session.create("/alive", mode=CreateMode.EPHEMERAL)

    async def write(lane):
        nonlocal number
        while True:
            number += 1
            mine = number
            await session.multi([
                SetData("/counter", b"%d" % mine),
                Create(f"/left/{mine}"), Create(f"/right/{mine}"),
            ])
            sys.stdout.write(f"{mine}\\n")
            sys.stdout.flush()

    await asyncio.gather(*(write(lane) for lane in range(4)))

asyncio.run(main())
"""


@pytest.mark.slow
def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    async def prepare(store: EmbeddedStore) -> None:
        session = await store.connect()
        await session.multi([Create("/counter", b"0"), Create("/left"), Create("/right")])

    with_store(tmp_path, prepare)
    acknowledged: set[int] = set()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for acknowledgements in (1, 7, 40, 150, 400):
        command = [sys.executable, "-c", WRITER, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as writer:
            assert writer.stdout is not None
            try:
                for _ in range(acknowledgements):
                    acknowledged.add(int(writer.stdout.readline()))
            finally:
                writer.send_signal(signal.SIGKILL)
            # What it said before it died counts too; a last line that was cut short does not.
            acknowledged.update(int(line) for line in writer.stdout if line.endswith("\n"))
            assert writer.wait(PATIENCE_S) == -signal.SIGKILL

        async def check(store: EmbeddedStore) -> None:
            session = await store.connect()
            left, right = (await session.children("/left"))[0], (await session.children("/right"))[0]
            assert left == right
            assert acknowledged <= {int(name) for name in left}
            assert (await session.get("/counter"))[0] in {name.encode() for name in left}
            assert await session.exists("/alive") is None

        with_store(tmp_path, check)


def test_a_tree_of_many_nodes_opens_whole(tmp_path: Path) -> None:
    async def write(store: EmbeddedStore) -> None:
        session = await store.connect()
        for topic in range(20):
            await session.multi(
                [Create(f"/t{topic}")]
                + [Create(f"/t{topic}/{partition}", b"state") for partition in range(100)]
                + [SetData(f"/t{topic}", b"100")]
            )
        await session.multi([Delete(f"/t0/{partition}") for partition in range(100)] + [Delete("/t0")])

    with_store(tmp_path, write)

    async def read(store: EmbeddedStore) -> None:
        session = await store.connect()
        assert len((await session.children("/"))[0]) == 19
        for topic in range(1, 20):
            names, stat = await session.children(f"/t{topic}")
            assert (len(names), stat.version, stat.num_children, stat.cversion) == (100, 1, 100, 100)

    with_store(tmp_path, read)
