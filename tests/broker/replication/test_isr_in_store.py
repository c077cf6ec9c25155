"""Leaders that write their in-sync replicas themselves: when that is refused, and how the controller hears of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from barnabas.broker.replication import isr_in_store
from barnabas.broker.replication.isr_in_store import IsrInStore
from barnabas.clock import SystemClock
from barnabas.coordination.metadata.tree import (
    ISR_CHANGES,
    PartitionState,
    decode_isr_change,
    decode_partition_state,
    encode_partition_state,
    partition_state_path,
)
from barnabas.coordination.store.contract import Store, ensure_path
from barnabas.coordination.store.embedded import EmbeddedStore
from barnabas.errors import (
    NONE,
    FencedLeaderEpoch,
    InvalidUpdateVersion,
    NetworkException,
    UnknownTopicOrPartition,
)
from barnabas.model import BrokerId, LeaderEpoch, TopicPartition
from barnabas.protocol.messages.alter_partition_request import AlterPartitionRequest, PartitionData, TopicData
from barnabas.protocol.messages.alter_partition_response import PartitionData as Answer
from tests.coordination.engines import run
from tests.waiting import wait_until_async

US = BrokerId(1)
AT = TopicPartition("t", 0)
PATH = partition_state_path(AT)


def state(leader: int = US, leader_epoch: int = 3, isr: tuple[int, ...] = (1,)) -> PartitionState:
    return PartitionState(
        leader=BrokerId(leader),
        leader_epoch=LeaderEpoch(leader_epoch),
        isr=tuple(map(BrokerId, isr)),
        controller_epoch=7,
    )


async def propose(
    changes: IsrInStore, isr: list[int], *, version: int, leader_epoch: int = 3, index: int = 0
) -> Answer:
    proposal = PartitionData(
        partition_index=index, leader_epoch=leader_epoch, new_isr=isr, partition_epoch=version
    )
    request = AlterPartitionRequest(
        broker_id=US, topics=[TopicData(topic_name=AT.topic, partitions=[proposal])]
    )
    response = await changes.ask("AlterPartition", request, timeout_ms=10_000, version=1)
    assert response.error_code == NONE
    answer: Answer = response.topics[0].partitions[0]
    return answer


def play(directory: Path, scenario: Callable[[Store, IsrInStore], Awaitable[None]]) -> None:
    async def main() -> None:
        store = await EmbeddedStore.open([str(directory)], clock=SystemClock())
        session = await store.connect()
        await ensure_path(session, ISR_CHANGES)
        await ensure_path(session, PATH)
        await session.set(PATH, encode_partition_state(state()))
        changes = IsrInStore(session, US)
        try:
            await scenario(session, changes)
        finally:
            await changes.close()
            await store.close()

    run(main())


def test_a_change_is_written_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr_in_store, "NOTICE_DELAY_S", 0.01)

    async def scenario(store: Store, changes: IsrInStore) -> None:
        answer = await propose(changes, [1, 2], version=1)
        assert (answer.error_code, answer.partition_epoch, answer.isr) == (NONE, 2, [1, 2])
        data, stat = await store.get(PATH)
        # The controller epoch is that of the controller's own last write.
        assert (decode_partition_state(AT, data), stat.version) == (state(isr=(1, 2)), 2)
        # The answer was lost: it is proposed again.
        answer = await propose(changes, [1, 2], version=1)
        assert (answer.error_code, answer.partition_epoch) == (NONE, 2)
        assert (await store.get(PATH))[1].version == 2
        await wait_until_async(lambda: changes._telling is None)
        names, _ = await store.children(ISR_CHANGES)
        assert len(names) == 1
        path = f"{ISR_CHANGES}/{names[0]}"
        assert decode_isr_change(path, (await store.get(path))[0]) == [AT]

    play(tmp_path, scenario)


def test_changes_that_are_refused(tmp_path: Path) -> None:
    async def scenario(store: Store, changes: IsrInStore) -> None:
        async def code(**proposal: int) -> int:
            answer = await propose(changes, [1, 2], **{"version": 1, **proposal})
            return answer.error_code

        assert await code(version=0) == InvalidUpdateVersion.code
        assert await code(leader_epoch=2) == FencedLeaderEpoch.code
        assert await code(index=5) == UnknownTopicOrPartition.code
        await store.set(PATH, encode_partition_state(state(leader=2)))
        assert await code(version=2) == FencedLeaderEpoch.code
        await store.set(PATH, b"{")
        assert await code(version=3) == InvalidUpdateVersion.code
        assert (await store.children(ISR_CHANGES))[0] == []

    play(tmp_path, scenario)


def test_without_the_store_a_change_is_to_be_sent_again(tmp_path: Path) -> None:
    async def scenario(store: Store, changes: IsrInStore) -> None:
        await store.close()
        with pytest.raises(NetworkException):
            await propose(changes, [1, 2], version=1)

    play(tmp_path, scenario)
