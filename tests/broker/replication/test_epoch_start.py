"""A leader assigns the start of its epoch when it becomes leader. A follower takes epochs from batches alone."""

from __future__ import annotations

import asyncio

from tests.broker.replication.roles import OTHER, US, OnePartition, role
from tests.log.partitions import batch


def test_a_followers_log_gets_no_epoch_when_it_is_opened() -> None:
    async def run() -> None:
        replica = OnePartition()
        await replica.became(role(OTHER, 3))
        assert replica.log.leader_epochs == []
        await replica.became(role(OTHER, 4))
        assert replica.log.leader_epochs == []
        replica.log.append_as_follower(batch(b"a", b"b", offset=0, epoch=3))
        assert replica.log.leader_epochs == [(3, 0)]

    asyncio.run(run())


def test_a_leader_assigns_its_epoch_when_the_log_is_opened() -> None:
    async def run() -> None:
        replica = OnePartition()
        await replica.became(role(US, 3))
        assert replica.log.leader_epochs == [(3, 0)]
        assert "leader-epoch-checkpoint" in replica.disk.names()

    asyncio.run(run())


def test_a_follower_that_becomes_leader_begins_its_epoch_at_the_log_end() -> None:
    async def run() -> None:
        replica = OnePartition()
        await replica.became(role(OTHER, 3))
        replica.log.append_as_follower(batch(b"a", b"b", offset=0, epoch=3))
        await replica.became(role(US, 5))
        assert replica.log.leader_epochs == [(3, 0), (5, 2)]

    asyncio.run(run())


def test_a_leader_that_stays_begins_the_next_epoch_at_once() -> None:
    async def run() -> None:
        replica = OnePartition()
        await replica.became(role(US, 3))
        replica.partition.append(batch(b"a"), 1)
        assert replica.become(role(US, 4)) == 0
        assert replica.log.leader_epochs == [(3, 0), (4, 1)]

    asyncio.run(run())


def test_the_role_may_change_while_the_log_is_opened() -> None:
    async def run() -> None:
        replica = OnePartition()
        replica.become(role(OTHER, 3))
        await replica.became(role(US, 4))
        assert replica.log.leader_epochs == [(4, 0)]
        # The broker did lead in epoch 3, and wrote nothing: the next epoch starts at the same offset.
        replica = OnePartition()
        replica.become(role(US, 3))
        await replica.became(role(OTHER, 4))
        assert replica.log.leader_epochs == [(3, 0)]
        replica.log.append_as_follower(batch(b"a", offset=0, epoch=4))
        assert replica.log.leader_epochs == [(4, 0)]

    asyncio.run(run())
