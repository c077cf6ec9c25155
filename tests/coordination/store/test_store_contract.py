"""The store contract, held against each engine: what ZooKeeper promises and Kafka relies on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path
from typing import TypeAlias

import pytest

from barnabas.coordination.store.contract import (
    DATA_BYTES_MAX,
    BadArguments,
    BadVersion,
    Check,
    Create,
    CreateMode,
    Delete,
    MultiFailed,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    SessionState,
    SetData,
    Stat,
    ensure_path,
)
from tests.coordination.engines import Engine, Recorder, embedded_engine, run, socket_engine, zookeeper_engine
from tests.peers import zookeeper_peer
from tests.peers.kafka_peer import PeerUnavailable

Scenario: TypeAlias = Callable[[Engine], Awaitable[None]]
Holds: TypeAlias = Callable[[Scenario], None]


Open: TypeAlias = Callable[[Path], AbstractAsyncContextManager[Engine]]
IN_PROCESS: dict[str, Open] = {"embedded": embedded_engine, "socket": socket_engine}


@pytest.fixture(
    scope="session",
    params=[
        "embedded",
        "socket",
        *(
            pytest.param(name, marks=[pytest.mark.slow, pytest.mark.peer])
            for name in ("zookeeper-3.8", "zookeeper-3.9", "ensemble-3.8", "ensemble-3.9")
        ),
    ],
)
def open_engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    """An engine on a server that the tests share."""
    name: str = request.param
    if name in IN_PROCESS:
        yield IN_PROCESS[name]
        return
    kind, _, version = name.partition("-")
    release = {"3.8": zookeeper_peer.V3_8, "3.9": zookeeper_peer.V3_9}[version]
    folder = tmp_path_factory.mktemp(name)
    try:
        zookeeper_peer.jars(release)
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    with ExitStack() as stack:
        if kind == "zookeeper":
            servers = [stack.enter_context(zookeeper_peer.zookeeper(release, folder))]
        else:
            servers = stack.enter_context(zookeeper_peer.ensemble(release, folder))
        addresses = ",".join(server.address for server in servers)
        yield lambda _: zookeeper_engine(addresses)


@pytest.fixture
def holds(open_engine: Open, tmp_path: Path) -> Holds:
    """Runs a scenario against the engine."""

    def on_engine(scenario: Scenario) -> None:
        async def main() -> None:
            async with open_engine(tmp_path) as engine:
                await scenario(engine)

        run(main())

    return on_engine


def test_a_node_keeps_its_data_and_counts_its_changes(holds: Holds) -> None:
    async def scenario(engine: Engine) -> None:
        store, path = await engine.connect(), f"{engine.root}/a"
        assert await store.exists(path) is None
        assert await store.create(path, b"one") == path
        data, made = await store.get(path)
        assert (data, made.version, made.data_length, made.ephemeral_owner) == (b"one", 0, 3, 0)
        assert made.czxid == made.mzxid == made.pzxid > 0
        assert made.ctime_ms == made.mtime_ms > 0
        changed = await store.set(path, b"second", version=0)
        assert (changed.version, changed.data_length, changed.czxid) == (1, 6, made.czxid)
        assert changed.mzxid > made.mzxid
        assert changed.pzxid == made.pzxid
        assert await store.get(path) == (b"second", changed)
        assert await store.exists(path) == changed
        assert (await store.set(path, b"", version=-1)).version == 2
        await store.delete(path, version=2)
        assert await store.exists(path) is None

    holds(scenario)


def test_many_nodes_are_read_at_once(holds: Holds) -> None:
    async def scenario(engine: Engine) -> None:
        store, root = await engine.connect(), engine.root
        for name in ("a", "b"):
            await store.create(f"{root}/{name}", name.encode())
        paths = [f"{root}/{name}" for name in ("b", "missing", "a")]
        assert await store.get_all(paths) == [await store.get(paths[0]), None, await store.get(paths[2])]
        assert await store.get_all([]) == []
        with pytest.raises(BadArguments):
            await store.get_all([f"{root}/a", "no path"])
        recorder = Recorder()
        await store.get_all(paths, recorder)
        other = await engine.connect()
        # A node that is not there is not watched.
        await other.create(paths[1])
        await other.set(paths[2], b"changed")
        assert await recorder.next() == ("NODE_DATA_CHANGED", paths[2])
        await other.delete(paths[0])
        assert await recorder.next() == ("NODE_DELETED", paths[0])

    holds(scenario)


def test_children_are_named_and_counted(holds: Holds) -> None:
    async def scenario(engine: Engine) -> None:
        store = await engine.connect()
        names, before = await store.children(engine.root)
        assert names == []
        for name in ("b", "a", "c"):
            await store.create(f"{engine.root}/{name}")
        await store.delete(f"{engine.root}/b")
        names, after = await store.children(engine.root)
        assert names == ["a", "c"]
        assert after.num_children == 2
        assert after.cversion == before.cversion + 4
        assert after.pzxid > before.pzxid
        assert (after.version, after.mzxid) == (before.version, before.mzxid)

    holds(scenario)


def test_what_is_refused_has_a_name(holds: Holds) -> None:
    async def scenario(engine: Engine) -> None:
        store, path = await engine.connect(), f"{engine.root}/a"
        with pytest.raises(NoNode):
            await store.create(f"{path}/b")
        with pytest.raises(NoNode):
            await store.get(path)
        with pytest.raises(NoNode):
            await store.set(path, b"")
        with pytest.raises(NoNode):
            await store.delete(path)
        with pytest.raises(NoNode):
            await store.children(path)
        await store.create(path)
        with pytest.raises(NodeExists):
            await store.create(path)
        with pytest.raises(BadVersion):
            await store.set(path, b"", version=1)
        await store.create(f"{path}/b")
        with pytest.raises(BadVersion):
            await store.delete(path, version=5)
        with pytest.raises(NotEmpty):
            await store.delete(path, version=0)
        await store.create(f"{engine.root}/mine", mode=CreateMode.EPHEMERAL)
        with pytest.raises(NoChildrenForEphemerals):
            await store.create(f"{engine.root}/mine/child")
        assert (await store.children(engine.root))[0] == ["a", "mine"]

    holds(scenario)


@pytest.mark.parametrize(
    "path",
    ["", "a", "/a/", "//a", "/a//b", "/./a", "/a/..", "/a\x00b", "/a\x1fb", "/a\x7fb", "/\ue000", "/\ufff5"],
)
def test_a_path_that_cannot_be_is_refused(holds: Holds, path: str) -> None:
    async def scenario(engine: Engine) -> None:
        store = await engine.connect()
        for attempt in (store.create(path), store.get(path), store.set(path, b""), store.delete(path)):
            with pytest.raises(BadArguments):
                await attempt

    holds(scenario)


def test_names_may_have_any_script_and_data_any_bytes(holds: Holds) -> None:
    async def scenario(engine: Engine) -> None:
        store = await engine.connect()
        everything = bytes(range(256)) * 100
        for name in ("größe", "名前", "a.b", "a b", "...", "a:b=c"):
            await store.create(f"{engine.root}/{name}", everything)
            assert (await store.get(f"{engine.root}/{name}"))[0] == everything

    holds(scenario)


def test_data_has_a_bound(holds: Holds) -> None:
    async def scenario(engine: Engine) -> None:
        store, path = await engine.connect(), f"{engine.root}/a"
        await store.create(path, bytes(DATA_BYTES_MAX))
        with pytest.raises(BadArguments):
            await store.set(path, bytes(DATA_BYTES_MAX + 1))
        assert (await store.exists(path)) is not None

    holds(scenario)


def test_sequential_names_count_up_and_never_repeat(holds: Holds) -> None:
    async def scenario(engine: Engine) -> None:
        store, parent = await engine.connect(), f"{engine.root}/queue"
        await store.create(parent)
        first = await store.create(f"{parent}/n-", mode=CreateMode.PERSISTENT_SEQUENTIAL)
        assert first == f"{parent}/n-0000000000"
        await store.create(f"{parent}/plain")
        with pytest.raises(BadArguments):
            await store.create(f"{parent}/", mode=CreateMode.EPHEMERAL_SEQUENTIAL)
        second = await store.create(f"{parent}/m-", mode=CreateMode.EPHEMERAL_SEQUENTIAL)
        assert second == f"{parent}/m-0000000002"
        await store.delete(first)
        third = await store.create(f"{parent}/n-", mode=CreateMode.EPHEMERAL_SEQUENTIAL)
        assert third == f"{parent}/n-0000000003"
        stat = await store.exists(third)
        assert stat is not None
        assert stat.ephemeral_owner == store.session_id

    holds(scenario)


def test_many_writers_at_once_get_distinct_numbers(holds: Holds) -> None:
    async def scenario(engine: Engine) -> None:
        stores = [await engine.connect() for _ in range(4)]
        paths = await asyncio.gather(
            *(
                stores[index % 4].create(f"{engine.root}/n", mode=CreateMode.PERSISTENT_SEQUENTIAL)
                for index in range(200)
            )
        )
        assert sorted(paths) == [f"{engine.root}/n{index:010d}" for index in range(200)]

    holds(scenario)


def test_one_of_many_wins_a_race(holds: Holds) -> None:
    async def scenario(engine: Engine) -> None:
        stores = [await engine.connect() for _ in range(8)]
        path = f"{engine.root}/controller"
        outcomes = await asyncio.gather(
            *(
                store.create(path, str(index).encode(), mode=CreateMode.EPHEMERAL)
                for index, store in enumerate(stores)
            ),
            return_exceptions=True,
        )
        winners = [index for index, outcome in enumerate(outcomes) if outcome == path]
        assert len(winners) == 1
        assert sum(isinstance(outcome, NodeExists) for outcome in outcomes) == 7
        data, stat = await stores[0].get(path)
        assert (data, stat.ephemeral_owner) == (str(winners[0]).encode(), stores[winners[0]].session_id)

    holds(scenario)


def test_compare_and_set_loses_no_update(holds: Holds) -> None:
    async def scenario(engine: Engine) -> None:
        path = f"{engine.root}/counter"
        await (await engine.connect()).create(path, b"0")

        async def add(times: int) -> None:
            store = await engine.connect()
            while times:
                data, stat = await store.get(path)
                try:
                    await store.set(path, b"%d" % (int(data) + 1), version=stat.version)
                except BadVersion:
                    continue
                times -= 1

        await asyncio.gather(*(add(10) for _ in range(5)))
        data, stat = await (await engine.connect()).get(path)
        assert (data, stat.version) == (b"50", 50)

    holds(scenario)


@pytest.mark.parametrize("by_expiry", [False, True])
def test_ephemeral_nodes_go_with_their_session(holds: Holds, by_expiry: bool) -> None:
    async def scenario(engine: Engine) -> None:
        mine, other = await engine.connect(), await engine.connect()
        states: list[SessionState] = []
        mine.add_session_listener(states.append)
        recorder = Recorder()
        for name in ("a", "b"):
            await mine.create(f"{engine.root}/{name}", mode=CreateMode.EPHEMERAL)
        await mine.create(f"{engine.root}/stays")
        await other.create(f"{engine.root}/others", mode=CreateMode.EPHEMERAL)
        assert await other.exists(f"{engine.root}/a", recorder) is not None
        if by_expiry:
            await engine.expire(mine)
        else:
            await mine.close()
        assert await recorder.next() == ("NODE_DELETED", f"{engine.root}/a")
        assert (await other.children(engine.root))[0] == ["others", "stays"]
        assert states[-1] is (SessionState.EXPIRED if by_expiry else SessionState.CLOSED)
        with pytest.raises(SessionExpired):
            await mine.get(engine.root)
        with pytest.raises(SessionExpired):
            await mine.create(f"{engine.root}/late")
        with pytest.raises(SessionExpired):
            await mine.multi([Delete(f"{engine.root}/stays")])
        await mine.close()

    holds(scenario)


def test_an_ephemeral_node_can_be_removed_by_anyone_and_made_anew(holds: Holds) -> None:
    async def scenario(engine: Engine) -> None:
        one, two, path = await engine.connect(), await engine.connect(), f"{engine.root}/a"
        await one.create(path, mode=CreateMode.EPHEMERAL)
        await two.delete(path)
        await two.create(path, mode=CreateMode.EPHEMERAL)
        await one.close()
        stat = await two.exists(path)
        assert stat is not None
        assert stat.ephemeral_owner == two.session_id

    holds(scenario)


def test_one_shot_watches_fire_once_on_what_they_are_left_for(holds: Holds) -> None:
    async def scenario(engine: Engine) -> None:
        watching, writing, path = await engine.connect(), await engine.connect(), f"{engine.root}/a"
        exists, data, children, parent = Recorder(), Recorder(), Recorder(), Recorder()
        assert await watching.exists(path, exists) is None
        await watching.children(engine.root, parent)
        await writing.create(path)
        assert await exists.next() == ("NODE_CREATED", path)
        assert await parent.next() == ("NODE_CHILDREN_CHANGED", engine.root)
        await watching.get(path, data)
        await watching.children(path, children)
        await watching.exists(path, exists)
        await writing.set(path, b"1")
        await writing.set(path, b"2")
        assert await data.next() == ("NODE_DATA_CHANGED", path)
        assert await exists.next() == ("NODE_DATA_CHANGED", path)
        await writing.create(f"{path}/b")
        assert await children.next() == ("NODE_CHILDREN_CHANGED", path)
        await watching.children(path, children)
        await watching.get(path, data)
        await writing.delete(f"{path}/b")
        assert await children.next() == ("NODE_CHILDREN_CHANGED", path)
        await watching.children(path, children)
        await writing.delete(path)
        assert await children.next() == ("NODE_DELETED", path)
        assert await data.next() == ("NODE_DELETED", path)
        for recorder in (exists, data, children, parent):
            assert await recorder.all_after(watching, engine.root) == []

    holds(scenario)


def test_a_read_that_fails_leaves_no_watch(holds: Holds) -> None:
    async def scenario(engine: Engine) -> None:
        store, path, recorder = await engine.connect(), f"{engine.root}/a", Recorder()
        with pytest.raises(NoNode):
            await store.get(path, recorder)
        with pytest.raises(NoNode):
            await store.children(path, recorder)
        await store.create(path)
        await store.set(path, b"1")
        assert await recorder.all_after(store, engine.root) == []

    holds(scenario)


def test_one_watcher_left_twice_is_called_once(holds: Holds) -> None:
    async def scenario(engine: Engine) -> None:
        store, path, recorder = await engine.connect(), f"{engine.root}/a", Recorder()
        await store.create(path)
        for _ in range(2):
            await store.get(path, recorder)
            await store.children(path, recorder)
            await store.exists(path, recorder)
        await store.delete(path)
        assert await recorder.all_after(store, engine.root) == [("NODE_DELETED", path)]

    holds(scenario)


def test_several_operations_happen_together(holds: Holds) -> None:
    async def scenario(engine: Engine) -> None:
        store, root = await engine.connect(), engine.root
        await store.create(f"{root}/old", b"1")
        old, made, parent = Recorder(), Recorder(), Recorder()
        await store.get(f"{root}/old", old)
        await store.exists(f"{root}/topic", made)
        await store.children(root, parent)
        results = await store.multi(
            [
                Check(f"{root}/old", 0),
                Create(f"{root}/topic", b"t"),
                Create(f"{root}/topic/n", b"", CreateMode.EPHEMERAL_SEQUENTIAL),
                SetData(f"{root}/old", b"2", 0),
                SetData(f"{root}/old", b"3", 1),
                Delete(f"{root}/old", 2),
            ]
        )
        created, child, first, second = results[1], results[2], results[3], results[4]
        assert (results[0], created, child, results[5]) == (
            None,
            f"{root}/topic",
            f"{root}/topic/n0000000000",
            None,
        )
        assert isinstance(first, Stat)
        assert isinstance(second, Stat)
        assert (first.version, second.version) == (1, 2)
        topic = await store.exists(f"{root}/topic")
        assert topic is not None
        assert topic.czxid == topic.pzxid == first.mzxid == second.mzxid
        assert await store.exists(f"{root}/old") is None
        assert await old.all_after(store, root) == [("NODE_DATA_CHANGED", f"{root}/old")]
        assert await made.all_after(store, root) == [("NODE_CREATED", f"{root}/topic")]
        assert await parent.all_after(store, root) == [("NODE_CHILDREN_CHANGED", root)]
        assert await store.multi([]) == []

    holds(scenario)


def test_several_operations_happen_not_at_all(holds: Holds) -> None:
    async def scenario(engine: Engine) -> None:
        store, root = await engine.connect(), engine.root
        await store.create(f"{root}/a")
        before = await store.exists(root)
        with pytest.raises(MultiFailed) as caught:
            await store.multi(
                [Create(f"{root}/b"), SetData(f"{root}/a", b"1"), Check(f"{root}/a", 7), Delete(root)]
            )
        assert caught.value.index == 2
        assert isinstance(caught.value.error, BadVersion)
        assert await store.exists(root) == before
        assert (await store.get(f"{root}/a"))[0] == b""
        await store.create(f"{root}/b")

    holds(scenario)


def test_nodes_made_and_removed_together_leave_only_counts(holds: Holds) -> None:
    async def scenario(engine: Engine) -> None:
        store, root = await engine.connect(), engine.root
        await ensure_path(store, f"{root}/a/b")
        await store.multi(
            [
                SetData(f"{root}/a", b"1"),
                Delete(f"{root}/a/b"),
                Delete(f"{root}/a"),
                Create(f"{root}/x"),
                Create(f"{root}/x/y"),
                Delete(f"{root}/x/y"),
                Delete(f"{root}/x"),
                Create(f"{root}/a"),
                Create(f"{root}/a/c"),
            ]
        )
        names, stat = await store.children(root)
        assert (names, stat.num_children, stat.cversion) == (["a"], 1, 5)
        assert (await store.children(f"{root}/a"))[0] == ["c"]
        assert (await store.get(f"{root}/a"))[0] == b""
        assert await store.exists(f"{root}/x") is None

    holds(scenario)


def test_changes_are_numbered_in_one_order_for_all(holds: Holds) -> None:
    async def scenario(engine: Engine) -> None:
        one, two = await engine.connect(), await engine.connect()
        first = await one.set(engine.root, b"1")
        second = await two.set(engine.root, b"2")
        third = await one.set(engine.root, b"3")
        assert first.mzxid < second.mzxid < third.mzxid
        assert one.session_id != two.session_id

    holds(scenario)
