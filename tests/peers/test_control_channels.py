"""The controller's channels: queues to brokers that are slow, gone, back, or of an older protocol level."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from barnabas.broker.upkeep.control_channels import ControlChannels
from barnabas.broker.upkeep.control_requests import ControlRequests, LocalLinks
from barnabas.broker.upkeep.control_versions import old_form
from barnabas.config.listeners import Endpoint, SecurityProtocol
from barnabas.coordination.controller.events import ControlRequest
from barnabas.coordination.controller.links import ControlResponse
from barnabas.coordination.metadata.image import BrokerImage
from barnabas.errors import InvalidConfig
from barnabas.model import BrokerId
from barnabas.net.transport import SocketTransport
from barnabas.peers.link import PeerLink
from barnabas.peers.peers import Peers
from barnabas.peers.versions import NEWEST, ProtocolLevel
from barnabas.protocol.message import ZERO_UUID, Message
from barnabas.protocol.messages.leader_and_isr_request import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from barnabas.protocol.messages.leader_and_isr_response import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from barnabas.protocol.messages.stop_replica_request import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from barnabas.protocol.messages.stop_replica_response import StopReplicaPartitionError, StopReplicaResponse
from barnabas.protocol.messages.update_metadata_request import UpdateMetadataRequest, UpdateMetadataTopicState
from barnabas.protocol.messages.update_metadata_response import UpdateMetadataResponse
from tests.net.on_loop import on_loop
from tests.peers.link_peers import ScriptedBroker
from tests.waiting import wait_until_async

HERE = BrokerId(1)
TWO, THREE = BrokerId(2), BrokerId(3)
TOPIC_ID = b"0123456789abcdef"


async def answer_ok(request: Any) -> Message:
    return UpdateMetadataResponse()


def update(number: int) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(controller_id=HERE, controller_epoch=number)


class Receiver:
    """The broker of the controller's own process."""

    def __init__(self) -> None:
        self.carried_out: list[ControlRequest] = []

    async def carry_out(self, request: ControlRequest) -> ControlResponse:
        await asyncio.sleep(0)
        self.carried_out.append(request)
        return UpdateMetadataResponse()


class Channels:
    """Channels of broker 1, and all their answers."""

    def __init__(self, level: ProtocolLevel = NEWEST) -> None:
        self.receiver = Receiver()
        self.peers = Peers(HERE, lambda _: None, SocketTransport(), asyncio.get_running_loop(), level)
        self.channels = ControlChannels(
            HERE,
            LocalLinks(HERE, cast(ControlRequests, self.receiver)),
            self.peers,
            listener="PLAINTEXT",
            timeout_ms=60_000,
        )
        self.answers: list[tuple[BrokerId, ControlRequest, ControlResponse | None]] = []
        self.channels.listen(lambda *answer: self.answers.append(answer))
        self.brokers: dict[BrokerId, BrokerImage] = {HERE: BrokerImage(id=HERE, epoch=1)}

    def put(self, broker_id: BrokerId, broker: ScriptedBroker, epoch: int = 1) -> None:
        endpoint = Endpoint(
            listener_name="PLAINTEXT",
            host="127.0.0.1",
            port=broker.port,
            security_protocol=SecurityProtocol.PLAINTEXT,
        )
        self.brokers[broker_id] = BrokerImage(id=broker_id, epoch=epoch, endpoints=(endpoint,))
        self.channels.connect(self.brokers)

    def remove(self, broker_id: BrokerId) -> None:
        del self.brokers[broker_id]
        self.channels.connect(self.brokers)

    async def answered(self, count: int) -> None:
        await wait_until_async(lambda: len(self.answers) >= count, lambda: self.answers)
        assert len(self.answers) == count


@asynccontextmanager
async def channels_to(*brokers: ScriptedBroker, level: ProtocolLevel = NEWEST) -> AsyncIterator[Channels]:
    """To these brokers, with the ids 2 and 3."""
    running = Channels(level)
    for number, broker in enumerate(brokers):
        await broker.start()
        running.put(BrokerId(2 + number), broker)
    try:
        yield running
    finally:
        await running.channels.close()
        await running.peers.close()
        for broker in brokers:
            await broker.stop()


def epochs(broker: ScriptedBroker) -> list[int]:
    return [request.body.controller_epoch for request in broker.requests]


@on_loop
async def test_each_broker_gets_its_requests_in_order_one_at_a_time() -> None:
    may_answer = asyncio.Event()

    async def answer(request: Any) -> Message:
        await may_answer.wait()
        return UpdateMetadataResponse()

    slow, fast = ScriptedBroker(answer), ScriptedBroker(answer_ok)
    async with channels_to(slow, fast) as running:
        for number in range(5):
            running.channels.send(TWO, update(number))
            running.channels.send(THREE, update(number))
            running.channels.send(HERE, update(number))
        # The slow broker holds up nobody, not even the controller.
        await wait_until_async(lambda: len(running.answers) == 10 and slow.requests)
        assert epochs(slow) == [0]
        assert epochs(fast) == [0, 1, 2, 3, 4]
        assert [each.controller_epoch for each in running.receiver.carried_out] == [0, 1, 2, 3, 4]
        assert running.channels.queue_sizes == {TWO: 5, THREE: 0}
        may_answer.set()
        await running.answered(15)
        assert epochs(slow) == [0, 1, 2, 3, 4]
        assert all(response is not None for _, _, response in running.answers)


@on_loop
async def test_a_request_is_repeated_until_the_broker_takes_it() -> None:
    answers: list[Message | None] = [None, None, UpdateMetadataResponse(), UpdateMetadataResponse()]

    async def answer(request: Any) -> Message | None:
        return answers.pop(0)

    broker = ScriptedBroker(answer)
    async with channels_to(broker) as running:
        running.channels.send(TWO, update(0))
        running.channels.send(TWO, update(1))
        await running.answered(2)
        assert epochs(broker) == [0, 0, 0, 1]


@on_loop
async def test_a_request_is_repeated_whatever_keeps_it_from_the_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when there are no descriptors left, or a key is being replaced."""
    failures: list[Exception] = [OSError("no descriptors"), InvalidConfig("half of a key")]
    ask = PeerLink.ask

    async def fail_first(link: PeerLink, *arguments: Any, **settings: Any) -> Any:
        if failures:
            raise failures.pop(0)
        return await ask(link, *arguments, **settings)

    async def answer(request: Any) -> Message:
        return UpdateMetadataResponse()

    monkeypatch.setattr(PeerLink, "ask", fail_first)
    broker = ScriptedBroker(answer)
    async with channels_to(broker) as running:
        running.channels.send(TWO, update(0))
        running.channels.send(TWO, update(1))
        await running.answered(2)
        assert all(response is not None for _, _, response in running.answers)
        assert epochs(broker) == [0, 1]


@on_loop
async def test_a_broker_that_restarts_loses_its_queue() -> None:
    never = asyncio.Event()

    async def stay_silent(request: Any) -> Message | None:
        await never.wait()
        return None

    old, new = ScriptedBroker(stay_silent), ScriptedBroker(answer_ok)
    await new.start()
    async with channels_to(old) as running:
        for number in range(3):
            running.channels.send(TWO, update(number))
        await wait_until_async(lambda: old.requests)
        running.put(TWO, new, epoch=2)
        running.channels.send(TWO, update(9))
        await running.answered(4)
        dropped = [request.controller_epoch for _, request, response in running.answers if response is None]
        assert dropped == [0, 1, 2]
        assert epochs(new) == [9]
        never.set()
    await new.stop()


@on_loop
async def test_what_waits_for_a_broker_that_is_gone_is_dropped() -> None:
    gone = ScriptedBroker(answer_ok)
    async with channels_to(gone) as running:
        await gone.stop()
        running.channels.send(TWO, update(0))
        running.channels.send(TWO, update(1))
        running.remove(TWO)
        assert not running.answers, "an answer came before the call had returned"
        await running.answered(2)
        # Later ones are not sent either.
        running.channels.send(TWO, update(2))
        await running.answered(3)
        assert [response for _, _, response in running.answers] == [None] * 3


@on_loop
async def test_a_controller_that_resigns_drops_all_and_may_come_back() -> None:
    never = asyncio.Event()

    async def answer(request: Any) -> Message | None:
        if request.body.controller_epoch == 0:
            await never.wait()
        return UpdateMetadataResponse()

    broker = ScriptedBroker(answer)
    async with channels_to(broker) as running:
        running.channels.send(TWO, update(0))
        await wait_until_async(lambda: broker.requests)
        running.channels.connect({})
        await running.answered(1)
        running.channels.connect(running.brokers)
        running.channels.send(TWO, update(1))
        await running.answered(2)
        assert [response is None for _, _, response in running.answers] == [True, False]
        never.set()


@on_loop
async def test_close_answers_all_and_carries_out_what_waits_here() -> None:
    never = asyncio.Event()

    async def stay_silent(request: Any) -> Message | None:
        await never.wait()
        return None

    broker = ScriptedBroker(stay_silent)
    async with channels_to(broker) as running:
        for number in range(3):
            running.channels.send(TWO, update(number))
            running.channels.send(HERE, update(number))
        await running.channels.close()
        assert len(running.receiver.carried_out) == 3
        await running.answered(6)
        never.set()


@on_loop
async def test_a_broker_without_the_listener_is_not_sent_anything() -> None:
    async with channels_to() as running:
        running.brokers[TWO] = BrokerImage(id=TWO, epoch=1)
        running.channels.connect(running.brokers)
        running.channels.send(TWO, update(0))
        running.remove(TWO)
        await running.answered(1)


@on_loop
async def test_stop_replica_of_an_older_level_marks_all_or_none() -> None:
    async def answer(request: Any) -> Message:
        return StopReplicaResponse(
            partition_errors=[
                StopReplicaPartitionError(topic_name=topic.name, partition_index=index)
                for topic in request.body.topics
                for index in topic.partition_indexes
            ]
        )

    broker = ScriptedBroker(answer)
    states = [StopReplicaPartitionState(partition_index=each, delete_partition=each > 0) for each in range(3)]
    request = StopReplicaRequest(
        controller_epoch=4,
        broker_epoch=1,
        topic_states=[StopReplicaTopicState(topic_name="t", partition_states=states)],
    )
    async with channels_to(broker, level=ProtocolLevel.parse("2.5")) as running:
        running.channels.send(TWO, request)
        await running.answered(1)
        [(_, asked, response)] = running.answers
        assert asked is request
        assert isinstance(response, StopReplicaResponse)
        assert [each.partition_index for each in response.partition_errors] == [0, 1, 2]
    assert [
        (each.version, each.body.delete_partitions, each.body.topics[0].partition_indexes)
        for each in broker.requests
    ] == [(2, False, [0]), (2, True, [1, 2])]


@on_loop
async def test_leader_and_isr_of_an_older_level_is_answered_by_topic_id() -> None:
    async def answer(request: Any) -> Message:
        return LeaderAndIsrResponse(
            partition_errors=[LeaderAndIsrPartitionError(topic_name="t", partition_index=0, error_code=56)]
        )

    broker = ScriptedBroker(answer)
    topic = LeaderAndIsrTopicState(
        topic_name="t",
        topic_id=TOPIC_ID,
        partition_states=[LeaderAndIsrPartitionState(partition_index=0, replicas=[2], isr=[2], leader=2)],
    )
    async with channels_to(broker, level=ProtocolLevel.parse("2.5")) as running:
        running.channels.send(TWO, LeaderAndIsrRequest(controller_epoch=4, topic_states=[topic]))
        await running.answered(1)
        [(_, _, response)] = running.answers
        assert isinstance(response, LeaderAndIsrResponse)
        [errors] = response.topics
        assert (errors.topic_id, errors.partition_errors[0].error_code) == (TOPIC_ID, 56)
    assert broker.requests[0].version == 4


@on_loop
async def test_leader_and_isr_of_an_older_level_has_no_recovering_leaders() -> None:
    """Before 3.2 there is no such state, but a cluster may have been at a later level."""

    async def answer(request: Any) -> Message:
        return LeaderAndIsrResponse()

    broker = ScriptedBroker(answer)
    state = LeaderAndIsrPartitionState(partition_index=0, leader=2, isr=[2], leader_recovery_state=1)
    topic = LeaderAndIsrTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=[state])
    roles = LeaderAndIsrRequest(controller_id=HERE, controller_epoch=1, topic_states=[topic])
    async with channels_to(broker, level=ProtocolLevel(2, 8, 1)) as running:
        running.channels.send(TWO, roles)
        await running.answered(1)
    [request] = broker.requests
    [received] = request.body.topic_states
    assert [each.leader_recovery_state for each in received.partition_states] == [0]
    assert state.leader_recovery_state == 1


def test_the_broker_beside_the_controller_gets_what_others_get() -> None:
    """No topic id that the others cannot know, and the answer names topics, since ids do not tell them apart."""
    form = old_form(ProtocolLevel.parse("2.6"), lambda name: ZERO_UUID)
    assert form is not None
    names = ["t", "u"]
    roles = LeaderAndIsrRequest(
        topic_states=[
            LeaderAndIsrTopicState(
                topic_name=name,
                topic_id=TOPIC_ID,
                partition_states=[LeaderAndIsrPartitionState(partition_index=0, leader_recovery_state=1)],
            )
            for name in names
        ]
    )
    metadata = UpdateMetadataRequest(
        topic_states=[UpdateMetadataTopicState(topic_name=name, topic_id=TOPIC_ID) for name in names]
    )
    received, news = form.received(roles), form.received(metadata)
    assert isinstance(received, LeaderAndIsrRequest)
    assert isinstance(news, UpdateMetadataRequest)
    for states in (received.topic_states, news.topic_states):
        assert [(each.topic_name, each.topic_id) for each in states] == [("t", ZERO_UUID), ("u", ZERO_UUID)]
    assert [each.partition_states[0].leader_recovery_state for each in received.topic_states] == [0, 0]
    for states in (roles.topic_states, metadata.topic_states):
        assert {each.topic_id for each in states} == {TOPIC_ID}, "others get the same request"
    response = LeaderAndIsrResponse(
        topics=[
            LeaderAndIsrTopicError(
                topic_id=ZERO_UUID,
                partition_errors=[LeaderAndIsrPartitionError(partition_index=0, error_code=code)],
            )
            for code in (0, 56)
        ]
    )
    answered = form.answered(received, response)
    assert isinstance(answered, LeaderAndIsrResponse)
    assert [(each.topic_name, each.error_code) for each in answered.partition_errors] == [("t", 0), ("u", 56)]


def test_at_newer_levels_it_needs_no_other_form() -> None:
    for level in ("2.8", "3.9"):
        assert old_form(ProtocolLevel.parse(level), lambda name: ZERO_UUID) is None
