"""ACLs in the store: brokers that write them and brokers that follow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.clock import SystemClock
from barnabas.coordination.metadata.acl_following import AclFollower
from barnabas.coordination.metadata.acl_nodes import (
    CHANGE_PREFIXES,
    acl_path,
    decode_acls,
    decode_extended_change,
    decode_literal_change,
    encode_acl_change,
    encode_acls,
)
from barnabas.coordination.metadata.node_reader import MalformedNode
from barnabas.coordination.store.contract import CreateMode, Store
from barnabas.coordination.store.embedded import EmbeddedStore
from barnabas.coordination.writing.acl_writer import AclWriter
from barnabas.log.file_system import DiskFileSystem
from barnabas.security import acls
from barnabas.security.acls import AclEntry, ResourcePattern
from barnabas.security.authorizer import Authorizer
from tests.waiting import wait_until_async

ORDERS = ResourcePattern(acls.TOPIC, "orders", acls.LITERAL)
PREFIX = ResourcePattern(acls.TRANSACTIONAL_ID, "pay:x", acls.PREFIXED)


class Node(NamedTuple):
    """The ACLs of one broker."""

    store: Store
    authorizer: Authorizer
    follower: AclFollower
    writer: AclWriter

    async def add(self, pattern: ResourcePattern, *entries: AclEntry) -> None:
        assert await self.writer.change({pattern: set(entries).union}, "test") == {pattern: None}


async def started(engine: EmbeddedStore) -> Node:
    store = await engine.connect()
    authorizer = Authorizer()
    follower = AclFollower(store, authorizer, SystemClock())
    await follower.begin()
    return Node(store, authorizer, follower, AclWriter(store, follower))


def run(directory: Path, scenario: Callable[[EmbeddedStore], Awaitable[None]]) -> None:
    async def play() -> None:
        engine = await EmbeddedStore.open([str(directory)], clock=SystemClock(), fs=DiskFileSystem())
        try:
            await scenario(engine)
        finally:
            await engine.close()

    asyncio.run(play())


def entry(number: int) -> AclEntry:
    return AclEntry(f"User:{number}", "*", acls.READ, acls.ALLOW)


def test_brokers_follow_each_other(tmp_path: Path) -> None:
    async def scenario(engine: EmbeddedStore) -> None:
        first, second = await started(engine), await started(engine)
        await first.add(ORDERS, entry(1))
        await second.add(PREFIX, entry(2), entry(3))
        assert first.authorizer.entries(ORDERS) == [entry(1)]
        for node in (first, second):
            await wait_until_async(lambda node=node: node.authorizer.acl_count == 3)  # type: ignore[misc]
        # A third one starts later.
        assert (await started(engine)).authorizer.acl_count == 3
        assert await first.writer.change({PREFIX: lambda _: set()}, "test") == {PREFIX: None}
        await wait_until_async(lambda: second.authorizer.patterns() == [ORDERS])
        assert await first.store.exists(acl_path(PREFIX)) is None

    run(tmp_path, scenario)


def test_writers_of_one_pattern_lose_nothing(tmp_path: Path) -> None:
    async def scenario(engine: EmbeddedStore) -> None:
        nodes = [await started(engine) for _ in range(4)]
        await asyncio.gather(*(nodes[each % 4].add(ORDERS, entry(each)) for each in range(40)))
        for node in nodes:
            await wait_until_async(lambda node=node: node.authorizer.acl_count == 40)  # type: ignore[misc]

    run(tmp_path, scenario)


def test_a_change_that_changes_nothing_leaves_no_notice(tmp_path: Path) -> None:
    async def scenario(engine: EmbeddedStore) -> None:
        node = await started(engine)
        for _ in range(3):
            await node.add(ORDERS, entry(1))
        names, _ = await node.store.children("/kafka-acl-changes")
        assert names == ["acl_changes_0000000000"]

    run(tmp_path, scenario)


def test_acls_that_cannot_be_read_stop_the_start_and_are_kept_later(tmp_path: Path) -> None:
    async def scenario(engine: EmbeddedStore) -> None:
        node = await started(engine)
        await node.add(ORDERS, entry(1))
        await node.store.set(acl_path(ORDERS), b'{"version":1,"acls":[{"operation":"Read"}]}')
        prefix = CHANGE_PREFIXES[acls.LITERAL]
        for data in (
            b"\xff",
            b"TOPIC",
            b"TOPIC:",
            b"TOPIC:a/b",
            b"TOPIC:a\0",
            encode_acl_change(ORDERS),
            encode_acl_change(PREFIX),
        ):
            await node.store.create(prefix, data, mode=CreateMode.PERSISTENT_SEQUENTIAL)
        await node.add(PREFIX, entry(2))
        await wait_until_async(lambda: node.authorizer.acl_count == 2)
        assert node.authorizer.entries(ORDERS) == [entry(1)]
        # In a new session too, which costs the others nothing.
        await node.store.delete(acl_path(PREFIX))
        await node.follower.read_again()
        assert node.authorizer.patterns() == [ORDERS]
        with pytest.raises(MalformedNode, match="/kafka-acl/Topic/orders"):
            await started(engine)

    run(tmp_path, scenario)


def test_a_new_session_reads_everything_again(tmp_path: Path) -> None:
    async def scenario(engine: EmbeddedStore) -> None:
        node = await started(engine)
        await node.add(ORDERS, entry(1))
        # Without notices, as if they had expired.
        await node.store.delete(acl_path(ORDERS))
        await node.store.create(acl_path(PREFIX), encode_acls([entry(2)]))
        await node.follower.read_again()
        assert node.authorizer.patterns() == [PREFIX]

    run(tmp_path, scenario)


def test_nodes_are_read_as_they_are_written() -> None:
    entries = {
        AclEntry("User:größe:x", "10.0.0.1", operation, permission)
        for operation in acls.OPERATIONS
        for permission in acls.PERMISSIONS
    }
    assert decode_acls("/x", encode_acls(entries)) == entries
    assert decode_acls("/x", b"") == set()
    assert decode_literal_change("/x", encode_acl_change(ORDERS)) == ORDERS
    assert decode_extended_change("/x", encode_acl_change(PREFIX)) == PREFIX
    assert acl_path(PREFIX) == "/kafka-acl-extended/prefixed/TransactionalId/pay:x"
