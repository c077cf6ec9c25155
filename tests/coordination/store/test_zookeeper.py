"""Sessions of a real ZooKeeper: lost connections, frozen links, servers that die, chroots, ACLs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from barnabas.coordination.controller.reading import read_cluster
from barnabas.coordination.metadata.image import PartitionImage, TopicImage
from barnabas.coordination.metadata.nodes import create_topic
from barnabas.coordination.metadata.tree import DELETE_TOPICS, TOPICS
from barnabas.coordination.store.contract import (
    AccessDenied,
    BadVersion,
    Create,
    CreateMode,
    SessionExpired,
    SessionState,
    StoreUnavailable,
    ensure_path,
)
from barnabas.coordination.store.zookeeper import NODES_A_REQUEST, ZooKeeperSession, ZooKeeperStore
from barnabas.coordination.store.zookeeper_client import ZooKeeperSettings
from barnabas.coordination.store.zookeeper_multi_read import MultiRead
from barnabas.model import BrokerId, LeaderEpoch
from barnabas.testing import free_port
from tests.client.proxy import Proxy, seeded
from tests.coordination.engines import Recorder, run
from tests.peers import zookeeper_peer
from tests.peers.kafka_peer import PeerUnavailable
from tests.peers.zookeeper_peer import ZooKeeperServer

pytestmark = [pytest.mark.slow, pytest.mark.peer]

NODES = 2_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    require_zookeeper()
    with zookeeper_peer.zookeeper(zookeeper_peer.V3_8, tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture
def proxy(server: ZooKeeperServer) -> Iterator[Proxy]:
    with Proxy() as between:
        between.target_port = server.port
        yield between


def require_zookeeper() -> None:
    try:
        zookeeper_peer.jars(zookeeper_peer.V3_8)
    except PeerUnavailable as missing:
        pytest.skip(str(missing))


@asynccontextmanager
async def session(address: str, **settings: Any) -> AsyncIterator[ZooKeeperSession]:
    opened = await ZooKeeperStore(
        ZooKeeperSettings(**{"connect": address, "session_timeout_ms": 20_000, **settings})
    ).connect()
    try:
        yield opened
    finally:
        await opened.close()


class States:
    """The states that a session reports."""

    def __init__(self, watched: ZooKeeperSession) -> None:
        self._states: asyncio.Queue[SessionState] = asyncio.Queue()
        watched.add_session_listener(self._states.put_nowait)

    async def reach(self, wanted: SessionState) -> None:
        while await self._states.get() is not wanted:
            pass


def test_changes_behind_a_lost_connection_reach_their_watches(server: ZooKeeperServer, proxy: Proxy) -> None:
    async def scenario() -> None:
        async with session(proxy.address) as mine, session(server.address) as other:
            states = States(mine)
            for name in ("same", "changed", "removed", "parent"):
                await mine.create(f"/{name}")
            await mine.create("/own", mode=CreateMode.EPHEMERAL)
            names = ("same", "changed", "removed", "parent", "new", "never")
            recorders = {name: Recorder() for name in names}
            for name in ("same", "changed", "removed"):
                await mine.get(f"/{name}", recorders[name])
            await mine.children("/parent", recorders["parent"])
            for name in ("new", "never"):
                assert await mine.exists(f"/{name}", recorders[name]) is None
            proxy.hold()
            proxy.cut_all()
            await states.reach(SessionState.SUSPENDED)
            await other.set("/changed", b"1")
            await other.delete("/removed")
            await other.create("/parent/child")
            await other.create("/new")
            waiting = asyncio.ensure_future(mine.get("/changed"))
            proxy.release()
            # A read sees no change before its watcher has heard of it.
            assert (await waiting)[0] == b"1"
            assert recorders["changed"].is_called
            await states.reach(SessionState.CONNECTED)
            assert await recorders["changed"].next() == ("NODE_DATA_CHANGED", "/changed")
            assert await recorders["removed"].next() == ("NODE_DELETED", "/removed")
            assert await recorders["parent"].next() == ("NODE_CHILDREN_CHANGED", "/parent")
            assert await recorders["new"].next() == ("NODE_CREATED", "/new")
            # The other watches are on the new connection.
            await other.set("/same", b"1")
            await other.create("/never")
            assert await recorders["same"].next() == ("NODE_DATA_CHANGED", "/same")
            assert await recorders["never"].next() == ("NODE_CREATED", "/never")
            own = await mine.exists("/own")
            assert own is not None
            assert own.ephemeral_owner == mine.session_id

    run(scenario())


def test_a_change_while_watches_are_left_again_reaches_its_watch(
    server: ZooKeeperServer, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server reports a change once, perhaps before the other watches are on the new connection."""

    async def scenario() -> None:
        async with session(proxy.address) as mine, session(server.address) as other:
            await mine.create("/early")
            await mine.create("/late")
            early, late = Recorder(), Recorder()
            await mine.get("/early", early)
            await mine.get("/late", late)
            leave = mine._rewatch_one

            async def leave_and_change(kind: Any, path: str, seen_zxid: int) -> Any:
                event = await leave(kind, path, seen_zxid)
                if path == "/early":
                    await other.set("/early", b"1")
                    # What the server has sent before this answer has been received.
                    await mine._completion(mine._client.exists_async("/late"))
                return event

            monkeypatch.setattr(mine, "_rewatch_one", leave_and_change)
            proxy.cut_all()
            assert await early.next() == ("NODE_DATA_CHANGED", "/early")
            assert (await mine.get("/early", early))[0] == b"1"
            assert not late.is_called
            for path, recorder in (("/early", early), ("/late", late)):
                await other.set(path, b"2")
                assert await recorder.next() == ("NODE_DATA_CHANGED", path)

    run(scenario())


@pytest.mark.parametrize("seed", range(4))
def test_no_confirmed_write_is_lost_by_cut_connections(
    server: ZooKeeperServer, proxy: Proxy, seed: int
) -> None:
    """A write whose connection was cut may have happened; reads and writes that were answered did."""
    path = f"/cut-{seed}"

    async def scenario() -> None:
        async with session(server.address) as steady:
            await steady.create(path, b"0")
        async with session(proxy.address) as mine:
            proxy.planner = seeded(seed, longest=4_000)
            proxy.cut_all()
            confirmed = unknown = refused = 0
            while confirmed < 100:
                data, stat = await mine.get(path)
                assert confirmed <= int(data) <= confirmed + unknown
                try:
                    await mine.set(path, b"%d" % (int(data) + 1), version=stat.version)
                    confirmed += 1
                except StoreUnavailable:
                    unknown += 1
                except BadVersion:
                    refused += 1
            assert refused <= unknown
            assert proxy.cuts > 0
            proxy.planner = seeded(seed, longest=1, share=0.0)

    run(scenario())


def test_a_session_that_was_frozen_too_long_is_over(server: ZooKeeperServer, proxy: Proxy) -> None:
    async def scenario() -> None:
        store = ZooKeeperStore(ZooKeeperSettings(connect=proxy.address, session_timeout_ms=1_500))
        mine = await store.connect()
        states = States(mine)
        async with session(server.address) as other:
            await mine.create("/frozen", mode=CreateMode.EPHEMERAL)
            gone = Recorder()
            await other.exists("/frozen", gone)
            proxy.hold()
            assert await gone.next() == ("NODE_DELETED", "/frozen")
            proxy.release()
            await states.reach(SessionState.EXPIRED)
            with pytest.raises(SessionExpired):
                await mine.get("/")
            await mine.close()
            again = await store.connect()
            await again.create("/frozen", mode=CreateMode.EPHEMERAL)
            assert again.session_id != mine.session_id
            await again.close()

    run(scenario())


def test_a_session_outlives_the_server_that_it_talks_to(tmp_path: Path) -> None:
    async def scenario(servers: list[ZooKeeperServer]) -> None:
        loop = asyncio.get_running_loop()
        addresses = ",".join(each.address for each in servers)
        async with session(addresses) as mine:
            await mine.create("/here", b"1", mode=CreateMode.EPHEMERAL)
            for each in servers:
                # One after the other, so that the session's own server is among them.
                await loop.run_in_executor(None, each.stop)
                assert (await mine.get("/here"))[0] == b"1"
                each.start()
                await loop.run_in_executor(None, each.wait_until_ready)
            data, stat = await mine.get("/here")
            assert (data, stat.ephemeral_owner) == (b"1", mine.session_id)

    require_zookeeper()
    with zookeeper_peer.ensemble(zookeeper_peer.V3_8, tmp_path) as servers:
        run(scenario(servers))


def test_a_missing_chroot_is_made(server: ZooKeeperServer) -> None:
    async def scenario() -> None:
        async with session(f"{server.address}/one/two/") as mine, session(server.address) as above:
            recorder = Recorder()
            await mine.exists("/node", recorder)
            assert await mine.create("/node", b"1") == "/node"
            assert await recorder.next() == ("NODE_CREATED", "/node")
            assert (await above.get("/one/two/node"))[0] == b"1"
            assert await mine.create("/s-", mode=CreateMode.PERSISTENT_SEQUENTIAL) == "/s-0000000001"
        async with session(f"{server.address}/one/two") as again:
            assert (await again.children("/"))[0] == ["node", "s-0000000001"]

    run(scenario())


def test_no_server_is_one_clear_error() -> None:
    async def scenario() -> None:
        address = f"127.0.0.1:{free_port()}"
        store = ZooKeeperStore(ZooKeeperSettings(connect=address, connection_timeout_ms=300))
        with pytest.raises(
            StoreUnavailable, match=f"no ZooKeeper server of {address} answered within 300 ms"
        ):
            await store.connect()

    run(scenario())


def test_nodes_with_acls_are_the_brokers_own(server: ZooKeeperServer) -> None:
    async def scenario() -> None:
        root = f"{server.address}/acl"
        async with session(root, set_acl=True, digest="broker:secret") as broker, session(root) as stranger:
            await broker.create("/topic", b"1")
            await ensure_path(broker, "/config/users")
            await broker.create("/config/users/alice", b"scram")
            await ensure_path(broker, "/config/brokers")
            await broker.create("/config/brokers/1", b"passwords")
            # As in Kafka, this one alone is open.
            await broker.create("/consumers")
            await stranger.create("/consumers/old")
            assert (await stranger.get("/topic"))[0] == b"1"
            for refused in (
                stranger.set("/topic", b"2"),
                stranger.create("/topic/child"),
                stranger.get("/config/users/alice"),
                stranger.get("/config/brokers/1"),
            ):
                with pytest.raises(AccessDenied, match="credentials"):
                    await refused
            assert (await broker.get("/config/users/alice"))[0] == b"scram"

    run(scenario())


def test_a_watch_that_is_not_allowed_any_more_does_not_hold_up_the_session(
    server: ZooKeeperServer, proxy: Proxy
) -> None:
    async def scenario() -> None:
        owner = ZooKeeperSettings(connect=server.address, digest="owner:secret", set_acl=True)
        path = "/config/users"
        async with session(proxy.address) as mine:
            states, recorder = States(mine), Recorder()
            await ensure_path(mine, path)
            await mine.children(path, recorder)
            proxy.hold()
            proxy.cut_all()
            await states.reach(SessionState.SUSPENDED)
            other = await ZooKeeperStore(owner).connect()
            await other.delete(path)
            await other.create(path)
            await other.close()
            proxy.release()
            await states.reach(SessionState.CONNECTED)
            assert await recorder.next() == ("NODE_CHILDREN_CHANGED", path)
            with pytest.raises(AccessDenied):
                await mine.children(path)
            await mine.delete(path)

    run(scenario())


@pytest.mark.parametrize("is_old", [False, True])
def test_many_nodes_in_one_request(
    server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch, is_old: bool
) -> None:
    """A server before 3.6 does not know the request: then each node has its own."""
    if is_old:
        monkeypatch.setattr(MultiRead, "type", 9_999)
    count = 2 * NODES_A_REQUEST + 1

    async def scenario() -> None:
        chroot = f"{server.address}/requests-{is_old}"
        async with session(chroot, set_acl=True, digest="broker:secret") as mine:
            await mine.create("/config")
            await mine.create("/config/users", b"none of yours")
            paths = [f"/{index}" for index in range(count)]
            await mine.multi([Create(path, path.encode() * 3) for path in paths])
            await mine.create("/empty")
            await mine.set("/7", b"changed")
            found = await mine.get_all([*paths, "/none", "/empty", "/config/users"])
            assert found[count] is None
            assert [each[0] for each in found[count + 1 :] if each is not None] == [b"", b"none of yours"]
            assert found[7] == await mine.get("/7")
            for path, each in zip(paths, found, strict=False):
                assert each is not None
                assert each[0] == (b"changed" if path == "/7" else path.encode() * 3)
            async with session(chroot) as stranger:
                assert await stranger.get_all(["/7", "/8"]) == found[7:9]
                with pytest.raises(AccessDenied, match="/config/users"):
                    await stranger.get_all(["/7", "/config/users"])

    run(scenario())


def test_a_controller_reads_a_large_cluster_with_little_work(server: ZooKeeperServer) -> None:
    """10,000 partitions are to be there within 3 s, and processor time does not depend on how busy the machine is."""
    topics, partitions = 1_000, 10

    async def scenario() -> None:
        async with session(f"{server.address}/large") as mine:
            for path in ("/brokers/ids", TOPICS, DELETE_TOPICS, "/config/topics"):
                await ensure_path(mine, path)
            replicas = (BrokerId(1), BrokerId(2), BrokerId(3))
            parts = tuple(
                PartitionImage(
                    leader=replicas[0], leader_epoch=LeaderEpoch(0), replicas=replicas, isr=replicas
                )
                for _ in range(partitions)
            )
            for number in range(topics):
                topic = TopicImage(name=f"topic-{number}", id=bytes(15) + b"1", partitions=parts)
                await mine.multi(list(create_topic(topic, 1)))
            began_s = time.process_time()
            snapshot = await read_cluster(mine, lambda event: None, watches_topics=True)
            took_s = time.process_time() - began_s
            assert sum(len(each.states) for each in snapshot.topics.values()) == topics * partitions
            assert took_s < 1.5

    run(scenario())


def test_many_reads_are_under_way_at_once(server: ZooKeeperServer, proxy: Proxy) -> None:
    """Behind a link that takes 20 ms, reads one after the other would take 40 s."""

    async def scenario() -> None:
        async with session(server.address) as writer:
            await writer.create("/many")
            await asyncio.gather(*(writer.create(f"/many/{index}", b"%d" % index) for index in range(NODES)))
        proxy.planner = seeded(0, longest=1, share=0.0)
        async with session(proxy.address) as reader:
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            paths = [f"/many/{index}" for index in range(NODES)]
            *found, missing = await reader.get_all([*paths, "/many/none"])
            assert [int(each[0]) for each in found if each is not None] == list(range(NODES))
            assert missing is None
            assert loop.time() - began_s < 20.0

    run(scenario())
