"""A single node's metadata moves to another store: all of it, once, whatever interrupts the copying."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

import pytest

from barnabas.clock import SystemClock
from barnabas.coordination.metadata import tree
from barnabas.coordination.metadata.acl_nodes import CHANGE_PREFIXES
from barnabas.coordination.metadata.identity import generate_broker_id
from barnabas.coordination.metadata.membership import join_cluster
from barnabas.coordination.store.contract import (
    Create,
    CreateMode,
    NodeExists,
    Operation,
    OperationResult,
    SetData,
    Store,
    StoreUnavailable,
    ensure_path,
    parent_of,
)
from barnabas.coordination.store.embedded import EmbeddedStore
from barnabas.coordination.store.moved import (
    holds_embedded_store,
    mark_moved,
    refuse_moved_store,
    refuse_unmoved_store,
)
from barnabas.coordination.writing import migration
from barnabas.coordination.writing.migration import Contents, MigrationRefused, migrate, read_contents
from barnabas.errors import InvalidConfig
from barnabas.log.file_system import DiskFileSystem
from tests.coordination.engines import run

T = TypeVar("T")

CLUSTER = "cluster-of-one"
TOPICS = 40
GENERATED = 3


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[EmbeddedStore]:
    fs = DiskFileSystem()
    fs.make_dirs(str(directory))
    store = await EmbeddedStore.open([str(directory)], clock=SystemClock(), fs=fs)
    try:
        yield store
    finally:
        await store.close()


async def fill(store: Store) -> None:
    """A tree as a single node leaves it."""
    for path in (*tree.PERSISTENT_PATHS, "/cluster"):
        await ensure_path(store, path)
    await store.create(tree.CLUSTER_ID, tree.encode_cluster_id(CLUSTER))
    await store.create(tree.CONTROLLER_EPOCH, tree.encode_controller_epoch(7))
    await store.create(tree.CONTROLLER, b"{}", mode=CreateMode.EPHEMERAL)
    await store.create("/brokers/ids/1001", b"{}", mode=CreateMode.EPHEMERAL)
    await store.create(tree.CONFIG_CHANGE_PREFIX, b"{}", mode=CreateMode.PERSISTENT_SEQUENTIAL)
    await store.create("/config/users/alice", b'{"version":1,"config":{}}')
    await ensure_path(store, "/kafka-acl/Topic")
    await store.create("/kafka-acl/Topic/orders", b'{"version":1,"acls":[]}')
    for prefix in CHANGE_PREFIXES.values():
        await ensure_path(store, parent_of(prefix))
        await store.create(prefix, b"{}", mode=CreateMode.PERSISTENT_SEQUENTIAL)
    await store.create("/admin/delete_topics/going")
    for _ in range(GENERATED):
        await generate_broker_id(store, reserved_broker_max_id=1000)
    for number in range(TOPICS):
        path = f"{tree.TOPICS}/t{number}"
        await store.multi(
            [
                Create(path, b"assignment %d" % number),
                Create(f"{path}/partitions"),
                Create(f"{path}/partitions/0"),
                Create(f"{path}/partitions/0/state", b"state %d" % number),
                Create(f"/config/topics/t{number}", b"x" * number * 100),
            ]
        )


async def contents_of(directory: Path) -> Contents:
    async with opened(directory) as store:
        session = await store.connect()
        await fill(session)
        return await read_contents(session)


class Interrupted(Exception):
    pass


class FailingStore:
    """Loses its writer before or after one of its changes."""

    def __init__(self, store: Store, fails_at: int, *, is_applied: bool) -> None:
        self._store = store
        self._left = fails_at
        self._is_applied = is_applied
        self.is_failed = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def create(self, path: str, data: bytes = b"") -> str:
        return await self._change(lambda: self._store.create(path, data))

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        return await self._change(lambda: self._store.multi(operations))

    async def _change(self, change: Callable[[], Awaitable[T]]) -> T:
        self._left -= 1
        if self._left == 0:
            self.is_failed = True
            if self._is_applied:
                with suppress(NodeExists):
                    await change()
            raise Interrupted
        return await change()


def ignore(*_: object) -> None:
    pass


@pytest.mark.parametrize("is_applied", [False, True])
def test_an_interrupted_migration_is_repeated_to_the_same_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_applied: bool
) -> None:
    monkeypatch.setattr(migration, "NODES_AT_ONCE", 25)

    async def scenario() -> None:
        contents = await contents_of(tmp_path / "source")
        interruptions = 0
        for fails_at in range(1, 100):
            async with opened(tmp_path / f"target-{fails_at}") as target:
                session = await target.connect()
                failing = FailingStore(session, fails_at, is_applied=is_applied)
                try:
                    await migrate(contents, failing, ignore, ignore)  # type: ignore[arg-type]
                except Interrupted:
                    interruptions += 1
                assert not await is_joinable(session) or is_whole(contents, await tree_of(session))
                done = await migrate(contents, session, ignore, ignore)
                assert (done.cluster_id, done.topics) == (CLUSTER, TOPICS)
                assert is_whole(contents, await tree_of(session))
                generated = await generate_broker_id(session, reserved_broker_max_id=1000)
                assert generated == 1000 + GENERATED + 1
                if not failing.is_failed:
                    break
        assert interruptions > 10

    run(scenario())


async def is_joinable(session: Store) -> bool:
    return await session.exists(tree.CLUSTER_ID) is not None


async def tree_of(session: Store) -> dict[str, bytes]:
    return dict((await read_contents(session)).nodes)


def is_whole(contents: Contents, copied: dict[str, bytes]) -> bool:
    missing = {path for path, data in contents.nodes.items() if copied.get(path) != data}
    return not missing


def test_what_tells_of_a_running_broker_stays_behind(tmp_path: Path) -> None:
    nodes = asyncio.run(contents_of(tmp_path)).nodes
    for path in (tree.CONTROLLER, "/brokers/ids/1001", tree.KNOWN_BROKERS, tree.CLUSTER_ID, tree.MIGRATION):
        assert path not in nodes
    notices = (tree.CONFIG_CHANGE_PREFIX, *CHANGE_PREFIXES.values())
    assert not [path for path in nodes if path.startswith(notices)]
    assert "/kafka-acl/Topic/orders" in nodes
    assert nodes[tree.CONTROLLER_EPOCH] == b"7"
    assert nodes["/config/users/alice"] == b'{"version":1,"config":{}}'
    assert "/admin/delete_topics/going" in nodes


def test_a_target_with_another_cluster_is_refused_and_unchanged(tmp_path: Path) -> None:
    async def scenario() -> None:
        contents = await contents_of(tmp_path / "source")
        async with opened(tmp_path / "target") as target:
            session = await target.connect()
            await ensure_path(session, "/cluster")
            await session.create(tree.CLUSTER_ID, tree.encode_cluster_id("another"))
            marked: list[str] = []
            with pytest.raises(MigrationRefused, match="has cluster another there"):
                await migrate(contents, session, lambda: marked.append("marked"), ignore)
            assert marked == []
            assert await session.exists(tree.TOPICS) is None

    run(scenario())


@pytest.mark.parametrize(
    ("path", "data", "told"),
    [
        ("/brokers/topics", b"", "no cluster id"),
        (tree.MIGRATION, b"another", "the migration of cluster another has begun there"),
    ],
)
def test_a_target_with_half_a_cluster_is_refused(tmp_path: Path, path: str, data: bytes, told: str) -> None:
    async def scenario() -> None:
        contents = await contents_of(tmp_path / "source")
        async with opened(tmp_path / "target") as target:
            session = await target.connect()
            await ensure_path(session, path)
            await session.set(path, data)
            with pytest.raises(MigrationRefused, match=told):
                await migrate(contents, session, ignore, ignore)

    run(scenario())


def test_a_change_by_another_program_is_noticed(tmp_path: Path) -> None:
    async def scenario() -> None:
        contents = await contents_of(tmp_path / "source")
        async with opened(tmp_path / "target") as target:
            session = await target.connect()
            copied = 0

            class Meddled:
                def __getattr__(self, name: str) -> object:
                    return getattr(session, name)

                async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
                    nonlocal copied
                    results = await session.multi(operations)
                    copied += 1
                    if copied == 1:
                        await session.multi([SetData("/config/users/alice", b"mine")])
                    return results

            with pytest.raises(MigrationRefused, match="/config/users/alice"):
                await migrate(contents, Meddled(), ignore, ignore)  # type: ignore[arg-type]
            assert not await is_joinable(session)

    run(scenario())


def test_no_broker_joins_an_incomplete_cluster(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as store:
            session = await store.connect()
            await ensure_path(session, tree.MIGRATION)
            await session.set(tree.MIGRATION, CLUSTER.encode())
            with pytest.raises(InvalidConfig, match="barnabas cluster migrate"):
                await join_cluster(session, None, None)  # type: ignore[arg-type]

    run(scenario())


def test_an_unused_store_has_nothing_to_move(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as store:
            with pytest.raises(MigrationRefused, match="nothing to move"):
                await read_contents(await store.connect())

    run(scenario())


def test_a_moved_store_is_not_opened_and_an_unmoved_one_not_left_behind(tmp_path: Path) -> None:
    fs = DiskFileSystem()
    directories = [str(tmp_path)]
    refuse_unmoved_store(fs, directories, "zk:2181/b")
    asyncio.run(contents_of(tmp_path))
    assert holds_embedded_store(fs, directories)
    refuse_moved_store(fs, directories)
    with pytest.raises(StoreUnavailable, match=r"barnabas cluster migrate .* --zookeeper zk:2181/b"):
        refuse_unmoved_store(fs, directories, "zk:2181/b")
    mark_moved(fs, directories, "zk:2181/b")
    refuse_unmoved_store(fs, directories, "zk:2181/b")
    with pytest.raises(StoreUnavailable, match=r"start the broker with zookeeper\.connect=zk:2181/b"):
        refuse_moved_store(fs, directories)
