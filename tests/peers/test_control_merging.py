"""Requests that wait for a broker which takes none: merged, they have the effect that they had one by one."""

from __future__ import annotations

import asyncio
import gc
from random import Random
from typing import Any

import pytest

from barnabas.broker.upkeep.control_channels import PARTITIONS_MAX, WAITING_MAX
from barnabas.broker.upkeep.control_merging import merged, partition_count
from barnabas.coordination.controller.events import ControlRequest
from barnabas.coordination.metadata.image import MetadataImage
from barnabas.coordination.metadata.updates import updated
from barnabas.model import BrokerId
from barnabas.protocol.message import Message
from barnabas.protocol.messages.leader_and_isr_request import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from barnabas.protocol.messages.leader_and_isr_response import LeaderAndIsrResponse
from barnabas.protocol.messages.stop_replica_request import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from barnabas.protocol.messages.stop_replica_response import StopReplicaResponse
from barnabas.protocol.messages.update_metadata_request import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from barnabas.protocol.messages.update_metadata_response import UpdateMetadataResponse
from tests.net.on_loop import on_loop
from tests.peers.link_peers import ScriptedBroker
from tests.peers.test_control_channels import TWO, channels_to
from tests.waiting import wait_until_async

DELETED = -2
HERE = BrokerId(2)
PARTITIONS = 3


def metadata(
    topic: str, topic_id: bytes, epochs: dict[int, int], *, leader: int = 1
) -> UpdateMetadataRequest:
    states = [
        UpdateMetadataPartitionState(
            partition_index=index, leader=leader, leader_epoch=epoch, isr=[1], replicas=[1]
        )
        for index, epoch in epochs.items()
    ]
    topics = [UpdateMetadataTopicState(topic_name=topic, topic_id=topic_id, partition_states=states)]
    return UpdateMetadataRequest(
        controller_epoch=1,
        topic_states=topics,
        live_brokers=[UpdateMetadataBroker(id=each) for each in (1, 2)],
    )


def roles(
    topic: str, topic_id: bytes, epochs: dict[int, int], *, is_new: bool = False
) -> LeaderAndIsrRequest:
    states = [
        LeaderAndIsrPartitionState(
            partition_index=index, leader=1, leader_epoch=epoch, isr=[1, 2], replicas=[1, 2], is_new=is_new
        )
        for index, epoch in epochs.items()
    ]
    return LeaderAndIsrRequest(
        controller_epoch=1,
        topic_states=[LeaderAndIsrTopicState(topic_name=topic, topic_id=topic_id, partition_states=states)],
    )


def stops(topic: str, epochs: dict[int, int], *, delete: bool) -> StopReplicaRequest:
    states = [
        StopReplicaPartitionState(partition_index=index, leader_epoch=epoch, delete_partition=delete)
        for index, epoch in epochs.items()
    ]
    return StopReplicaRequest(
        controller_epoch=1, topic_states=[StopReplicaTopicState(topic_name=topic, partition_states=states)]
    )


class Controller:
    """A random history of topics, as the requests to one broker. Epochs only grow while a topic exists."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._ids = 0
        self._topics: dict[str, tuple[bytes, dict[int, int]]] = {}

    def next(self) -> list[ControlRequest]:
        name = self._rng.choice("abc")
        known = self._topics.get(name)
        if known is None:
            self._ids += 1
            known = self._ids.to_bytes(16, "big"), dict.fromkeys(range(self._rng.randint(1, PARTITIONS)), 0)
            self._topics[name] = known
            return [roles(name, *known, is_new=True), metadata(name, *known)]
        topic_id, epochs = known
        some = self._rng.sample(sorted(epochs), self._rng.randint(1, len(epochs)))
        for index in some:
            epochs[index] += 1
        now = {index: epochs[index] for index in some}
        match self._rng.randrange(5):
            case 0:
                del self._topics[name]
                gone = dict.fromkeys(epochs, DELETED)
                return [metadata(name, topic_id, epochs, leader=DELETED), stops(name, gone, delete=True)]
            case 1:
                return [stops(name, now, delete=False), stops(name, now, delete=True)]
            case 2:
                return [stops(name, now, delete=False)]
            case 3:
                return [metadata(name, topic_id, now)]
        return [roles(name, topic_id, now), metadata(name, topic_id, now)]


class Broker:
    """What a broker makes of requests: the rules of the replica manager, and the image of the metadata."""

    def __init__(self) -> None:
        self.image = MetadataImage(cluster_id="c", controller_id=BrokerId(1), controller_epoch=1)
        # By partition: the topic id, the leader epoch, and whether it has a role.
        self.partitions: dict[tuple[str, int], tuple[bytes, int, bool]] = {}
        self.deletions = 0

    def take(self, request: ControlRequest) -> None:
        if isinstance(request, UpdateMetadataRequest):
            self.image = updated(self.image, request, HERE)
            return
        for topic in request.topic_states:
            for state in topic.partition_states:
                key = (topic.topic_name, state.partition_index)
                if isinstance(state, StopReplicaPartitionState):
                    self._stop(key, state)
                else:
                    assert isinstance(topic, LeaderAndIsrTopicState)
                    self._become(key, topic.topic_id, state)

    def _stop(self, key: tuple[str, int], state: StopReplicaPartitionState) -> None:
        known = self.partitions.get(key)
        if known is not None and state.leader_epoch not in (DELETED, -1):
            assert state.leader_epoch >= known[1], "a replica would not be stopped"
        if state.delete_partition:
            self.partitions.pop(key, None)
        elif known is not None:
            self.partitions[key] = (*known[:2], False)

    def _become(self, key: tuple[str, int], topic_id: bytes, state: LeaderAndIsrPartitionState) -> None:
        known = self.partitions.get(key)
        assert known is None or known[0] == topic_id, "a role of another topic would be refused"
        assert known is None or state.leader_epoch > known[1], "a role would be refused"
        self.partitions[key] = (topic_id, state.leader_epoch, True)

    def result(self) -> Any:
        active = {key: known for key, known in self.partitions.items() if known[2]}
        return active, self.image


@pytest.mark.parametrize("seed", range(40))
def test_merged_requests_have_the_same_effect(seed: int) -> None:
    rng = Random(seed)
    controller = Controller(rng)
    one_by_one, at_once = Broker(), Broker()
    for _ in range(5):
        history = [request for _ in range(rng.randint(0, 12)) for request in controller.next()]
        for request in history:
            one_by_one.take(request)
        # What is merged may be merged again with what comes later.
        cut = rng.randint(0, len(history))
        left = merged([*merged(history[:cut]), *history[cut:]])
        assert len(left) <= 4
        for request in left:
            at_once.take(request)
        assert at_once.result() == one_by_one.result()


def test_a_replica_that_was_to_be_made_is_still_to_be_made() -> None:
    topic_id = bytes(16)
    left = merged([roles("t", topic_id, {0: 0}, is_new=True), roles("t", topic_id, {0: 1})])
    assert left == [roles("t", topic_id, {0: 1}, is_new=True)]


def test_a_topic_that_comes_again_keeps_the_deletion_of_the_one_before() -> None:
    old, new = b"a" * 16, b"b" * 16
    gone = {0: DELETED, 1: DELETED}
    requests: list[ControlRequest] = [
        roles("t", old, {0: 8, 1: 8}),
        metadata("t", old, {0: 8, 1: 8}, leader=DELETED),
        stops("t", gone, delete=True),
        roles("t", new, {0: 0}, is_new=True),
        metadata("t", new, {0: 0}),
    ]
    assert merged(requests) == [*requests[1:3], requests[4], requests[3]]


@pytest.mark.slow
@on_loop
async def test_the_queue_of_a_silent_broker_has_a_bound() -> None:
    may_answer = asyncio.Event()

    async def answer(request: Any) -> Message:
        await may_answer.wait()
        match request.body:
            case LeaderAndIsrRequest():
                return LeaderAndIsrResponse()
            case StopReplicaRequest():
                return StopReplicaResponse()
        return UpdateMetadataResponse()

    silent = ScriptedBroker(answer)
    topic_id, indexes, changes = b"t" * 16, range(1_000), 200
    async with channels_to(silent) as running:
        for epoch in range(changes):
            running.channels.send(TWO, roles("t", topic_id, dict.fromkeys(indexes, epoch)))
            running.channels.send(TWO, metadata("t", topic_id, dict.fromkeys(indexes, epoch)))
            if epoch % 40 == 0:
                await wait_until_async(lambda: silent.requests)
                assert running.channels.queue_sizes[TWO] <= WAITING_MAX
                kept = sum(
                    isinstance(each, (UpdateMetadataPartitionState, LeaderAndIsrPartitionState))
                    for each in gc.get_objects()
                )
                # That the request in flight is decoded by the broker counts as well.
                assert kept <= PARTITIONS_MAX + 8 * len(indexes)
        may_answer.set()
        await wait_until_async(lambda: running.channels.queue_sizes[TWO] == 0)
        for broker_id, request, response in running.answers:
            assert broker_id == TWO
            assert response is not None
            assert partition_count(request) == len(indexes)
    assert len(silent.requests) < changes / 10
    latest = dict.fromkeys(indexes, changes - 1)
    for kind in (LeaderAndIsrRequest, UpdateMetadataRequest):
        last = [request.body for request in silent.requests if isinstance(request.body, kind)][-1]
        [states] = last.topic_states
        assert {each.partition_index: each.leader_epoch for each in states.partition_states} == latest
