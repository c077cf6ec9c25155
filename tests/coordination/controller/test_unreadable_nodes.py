"""Nodes that somebody has written badly, and a store that fails under an election: the cluster keeps a controller."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from barnabas.coordination.controller import controller as controllers
from barnabas.coordination.controller.controller import Controller
from barnabas.coordination.planning.topic_creation import NewTopic
from barnabas.coordination.store.contract import Operation, OperationResult, StoreUnavailable
from barnabas.coordination.store.embedded import EmbeddedSession
from barnabas.errors import KafkaStorageError, TopicAlreadyExists
from barnabas.model import BrokerId, TopicPartition
from tests.coordination.controller.model import ModelCluster, run
from tests.waiting import wait_until_async

BAD = "/brokers/topics/bad"
GOOD = json.dumps({"version": 2, "partitions": {"0": [2]}}).encode()
NOT_NODES = [
    b"",
    b"{",
    b"[]",
    b'{"version":2}',
    b'{"version":2,"partitions":{"1":[2]}}',
    b'{"partitions":{"0":[]}}',
]


@pytest.mark.parametrize("data", NOT_NODES)
def test_a_topic_that_cannot_be_read_costs_the_others_nothing(
    tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [1, 2])
        await cluster.session.create(BAD, data)
        await cluster.settle()
        # The controller that sees the node come goes on with topics that other brokers create.
        await cluster.session.create("/brokers/topics/automatic", GOOD)
        await cluster.settle()
        assert await cluster.state("automatic") == (2, 0, (2,))
        # So does the next one, which finds it.
        await cluster.kill(1)
        assert cluster.controlling.id == 2
        assert await cluster.state("t") == (2, 1, (2,))
        await cluster.create("later", [2])
        for name, error in {"bad": TopicAlreadyExists, "fine": None}.items():
            (created,) = await cluster.controller.create_topics([NewTopic(name)])
            assert isinstance(created, error) if error else not isinstance(created, Exception)
        # When somebody mends the node, it becomes a topic.
        await cluster.session.set(BAD, GOOD)
        await cluster.settle()
        assert await cluster.state("bad") == (2, 0, (2,))

    run(scenario, tmp_path, 1, 2, zookeeper_connect="model")
    assert "Topic bad is not served: /brokers/topics/bad: " in caplog.text
    assert "Mend the node, or remove it" in caplog.text


def test_a_state_that_cannot_be_read_costs_the_other_partitions_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [1, 2], [1, 2])
        await cluster.create("u", [1, 2])
        path = "/brokers/topics/t/partitions/1/state"
        good, _ = await cluster.session.get(path)
        await cluster.session.set(path, b"{}")
        await cluster.kill(1)
        assert (await cluster.state("t", 0), await cluster.state("u")) == ((2, 1, (2,)), (2, 1, (2,)))
        assert (await cluster.session.get(path))[0] == b"{}"
        await cluster.session.set(path, good)
        # The next change of brokers finds it mended.
        await cluster.start_broker(1)
        assert cluster.brokers[BrokerId(2)].metadata[TopicPartition("t", 1)] in (1, 2)

    run(scenario, tmp_path, 1, 2, zookeeper_connect="model")
    assert "Partition t-1 has no leader: /brokers/topics/t/partitions/1/state: " in caplog.text


def test_a_takeover_that_fails_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its node would keep all others from being elected."""
    failures = [KafkaStorageError("the disk is full"), StoreUnavailable("gone for a moment")]
    monkeypatch.setattr(controllers, "RETRY_S", 0.01)
    take_over = Controller._take_over

    async def fail_twice(self: Controller, *args: object) -> object:
        if failures:
            raise failures.pop(0)
        return await take_over(self, *args)  # type: ignore[arg-type]

    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [1, 2])
        monkeypatch.setattr(Controller, "_take_over", fail_twice)
        await cluster.kill(1)
        await wait_until_async(lambda: cluster.brokers[BrokerId(2)].controller.is_active)
        await cluster.settle()
        assert await cluster.state("t") == (2, 1, (2,))

    run(scenario, tmp_path, 1, 2, zookeeper_connect="model")
    assert caplog.text.count("This broker cannot become the controller: ") == 2


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("losses", [1, 3])
def test_an_election_whose_answer_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_stored: bool, losses: int
) -> None:
    """Whether the store has applied it or not, the only broker left becomes the controller at once."""
    caught: list[Sequence[Operation]] = []
    multi = EmbeddedSession.multi

    async def lose(session: EmbeddedSession, operations: Sequence[Operation]) -> list[OperationResult]:
        if len(caught) == losses or "/controller" not in {each.path for each in operations}:
            return await multi(session, operations)
        caught.append(operations)
        if is_stored and len(caught) == 1:
            await multi(session, operations)
        raise StoreUnavailable("the connection is lost")

    async def scenario(cluster: ModelCluster) -> None:
        monkeypatch.setattr(EmbeddedSession, "multi", lose)
        await cluster.kill(1)
        assert cluster.controlling.id == 2
        assert (await cluster.session.get("/controller_epoch"))[0] == b"2"

    run(scenario, tmp_path, 1, 2, zookeeper_connect="model")
    assert len(caught) == losses
