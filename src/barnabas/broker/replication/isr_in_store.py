"""Changes of in-sync replicas below protocol level 2.7-IV2: leaders write them to the store themselves.

There is no AlterPartition at such a level. The leader sets the state node of the partition, on condition that it has
the version that the leader knows, and tells the controller a little later by a notice, with all partitions that have
changed meanwhile. To `IsrChanges` this looks like a controller that answers AlterPartition.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final

from barnabas.coordination.metadata.node_reader import MalformedNode
from barnabas.coordination.metadata.tree import (
    ISR_CHANGE_PREFIX,
    PartitionState,
    decode_partition_state,
    encode_isr_change,
    encode_partition_state,
    partition_state_path,
)
from barnabas.coordination.store.contract import BadVersion, CreateMode, NoNode, Stat, Store, StoreError
from barnabas.errors import (
    NONE,
    FencedLeaderEpoch,
    InvalidUpdateVersion,
    NetworkException,
    UnknownTopicOrPartition,
)
from barnabas.model import BrokerId, LeaderEpoch, TopicPartition
from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_partition_request import AlterPartitionRequest
from barnabas.protocol.messages.alter_partition_request import PartitionData as Proposal
from barnabas.protocol.messages.alter_partition_response import (
    AlterPartitionResponse,
    PartitionData,
    TopicData,
)

log = logging.getLogger(__name__)

# How long changes wait for others before the controller hears of them.
NOTICE_DELAY_S: Final = 2.5
WRITES_AT_ONCE: Final = 100
# Of one notice: a node has at most 1 MiB.
PARTITIONS_MAX: Final = 3_000


class IsrInStore:
    def __init__(self, store: Store, broker_id: BrokerId) -> None:
        self._store = store
        self._broker_id = broker_id
        self._changed: dict[TopicPartition, None] = {}
        self._telling: asyncio.Task[None] | None = None

    async def ask(
        self, api_name: str, request: Message, *, timeout_ms: float, version: int | None = None
    ) -> Any:
        """The answer to AlterPartition. Raises NetworkException if the store cannot be used."""
        assert isinstance(request, AlterPartitionRequest), api_name
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                return AlterPartitionResponse(
                    topics=[
                        TopicData(
                            topic_name=topic.topic_name,
                            partitions=await self._write_all(topic.topic_name, topic.partitions),
                        )
                        for topic in request.topics
                    ]
                )
        except (StoreError, TimeoutError) as error:
            # What has been written is found there when it is proposed again.
            raise NetworkException(f"in-sync replicas cannot be stored: {error}") from error

    async def close(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.wait([self._telling])

    async def _write_all(self, topic: str, proposals: Sequence[Proposal]) -> list[PartitionData]:
        answers: list[PartitionData] = []
        for start in range(0, len(proposals), WRITES_AT_ONCE):
            part = proposals[start : start + WRITES_AT_ONCE]
            ats = [TopicPartition(topic, each.partition_index) for each in part]
            nodes = await self._store.get_all([partition_state_path(at) for at in ats])
            answers += await asyncio.gather(
                *(self._write(*each) for each in zip(ats, part, nodes, strict=True))
            )
        return answers

    async def _write(
        self, at: TopicPartition, proposal: Proposal, node: tuple[bytes, Stat] | None
    ) -> PartitionData:
        if node is None:
            return _refused(at, UnknownTopicOrPartition.code)
        data, stat = node
        try:
            stored = decode_partition_state(at, data)
        except MalformedNode as error:
            log.error("The in-sync replicas of %s cannot be changed: %s", at, error)
            return _refused(at, InvalidUpdateVersion.code)
        if stored.leader != self._broker_id or stored.leader_epoch != proposal.leader_epoch:
            return _refused(at, FencedLeaderEpoch.code)
        isr = tuple(map(BrokerId, proposal.new_isr))
        if stored.isr == isr:
            # It was written before, and the answer was lost.
            self._note(at)
            return _agreed(at, stored, stat.version)
        if stat.version != proposal.partition_epoch:
            return _refused(at, InvalidUpdateVersion.code)
        wanted = PartitionState(
            leader=self._broker_id,
            leader_epoch=LeaderEpoch(proposal.leader_epoch),
            isr=isr,
            controller_epoch=stored.controller_epoch,
        )
        try:
            path = partition_state_path(at)
            stat = await self._store.set(path, encode_partition_state(wanted), version=stat.version)
        except (BadVersion, NoNode):
            return _refused(at, InvalidUpdateVersion.code)
        self._note(at)
        return _agreed(at, wanted, stat.version)

    def _note(self, at: TopicPartition) -> None:
        self._changed[at] = None
        if self._telling is None:
            self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        try:
            while self._changed:
                await asyncio.sleep(NOTICE_DELAY_S)
                told = list(self._changed)[:PARTITIONS_MAX]
                try:
                    await self._store.create(
                        ISR_CHANGE_PREFIX, encode_isr_change(told), mode=CreateMode.PERSISTENT_SEQUENTIAL
                    )
                except StoreError as error:
                    log.warning("The controller does not know of changed in-sync replicas yet: %s", error)
                    continue
                for at in told:
                    self._changed.pop(at, None)
        finally:
            self._telling = None


def _refused(at: TopicPartition, code: int) -> PartitionData:
    return PartitionData(partition_index=at.partition, error_code=code)


def _agreed(at: TopicPartition, state: PartitionState, version: int) -> PartitionData:
    return PartitionData(
        partition_index=at.partition,
        error_code=NONE,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        partition_epoch=version,
    )
