"""Nodes that somebody has written badly, and a store that fails under an election: the cluster keeps a controller."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from barnabas.coordination.controller import controller as controllers
from barnabas.coordination.controller.controller import Controller
from barnabas.coordination.planning.topic_creation import NewTopic
from barnabas.coordination.store.contract import Create, Operation, OperationResult, StoreUnavailable
from barnabas.coordination.store.embedded import EmbeddedSession
from barnabas.errors import KafkaStorageError, TopicAlreadyExists, UnknownServerError
from barnabas.model import BrokerId, TopicPartition
from barnabas.protocol.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
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
    b'{"partitions":{"0":[2147483648]}}',
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


# The nodes that somebody makes by hand, and what the log says.
BY_HAND = [
    ({"/brokers/ids/abc": b""}, "/brokers/ids/abc is ignored: its name is no broker id. Remove the node"),
    ({"/brokers/ids/02": b"{"}, "/brokers/ids/02 is ignored"),
    ({"/brokers/ids/2147483648": b"{"}, "/brokers/ids/2147483648 is ignored"),
    ({"/brokers/ids/7": b""}, "Broker 7 counts as dead: /brokers/ids/7: no JSON"),
    ({"/brokers/ids/7": b"{}"}, "Broker 7 counts as dead: /brokers/ids/7: version is missing"),
    ({"/brokers/ids/7": b'{"rack":"\\ud800"}'}, "Broker 7 counts as dead: /brokers/ids/7: no JSON"),
    ({"/brokers/topics/a b": GOOD}, "/brokers/topics/a b: no topic can have this name"),
    (
        {BAD: GOOD, f"{BAD}/partitions": b"", f"{BAD}/partitions/00": b"", f"{BAD}/partitions/x": b""},
        "",
    ),
    ({"/admin/delete_topics/gone": b"", "/admin/delete_topics/gone/x": b""}, "/gone is not removed: it has"),
    ({"/isr_change_notification/abc": b"{"}, ""),
    ({"/isr_change_notification/abc": b"", "/isr_change_notification/abc/x": b""}, "/abc is not removed"),
    ({"/log_dir_event_notification/a": b"", "/log_dir_event_notification/a/x": b""}, "/a is not removed"),
    ({"/admin/reassign_partitions": b"{"}, "A reassignment by node is ignored: /admin/reassign_partitions"),
    (
        {"/admin/reassign_partitions": b"", "/admin/reassign_partitions/x": b""},
        "/admin/reassign_partitions is not removed",
    ),
    (
        {"/admin/preferred_replica_election": b"", "/admin/preferred_replica_election/x": b""},
        "/admin/preferred_replica_election is not removed",
    ),
    ({"/feature": b"{"}, "The finalized features are not known: /feature: no JSON"),
]


@pytest.mark.parametrize(("nodes", "logged"), BY_HAND, ids=[next(reversed(nodes)) for nodes, _ in BY_HAND])
def test_a_node_made_by_hand_stops_no_takeover(
    tmp_path: Path, nodes: Mapping[str, bytes], logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [1, 2, 3])
        if await cluster.session.exists("/feature") is not None:
            await cluster.session.delete("/feature")
        await cluster.session.multi([Create(path, data) for path, data in nodes.items()])
        await cluster.settle()
        # The controller that sees them come follows changes, and so does the next one, which finds them.
        await cluster.kill(3)
        assert await cluster.state("t") == (1, 1, (1, 2))
        await cluster.kill(1)
        assert cluster.controlling.id == 2
        assert await cluster.state("t") == (2, 2, (2,))
        await cluster.create("later", [2])
        await cluster.start_broker(4)
        assert sorted(cluster.brokers[BrokerId(2)].live) == [2, 4]

    run(scenario, tmp_path, 1, 2, 3, zookeeper_connect="model")
    assert logged in caplog.text
    assert "Traceback" not in caplog.text


def test_a_mended_registration_counts(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [2, 1])
        path = "/brokers/ids/2"
        whole, _ = await cluster.session.get(path)
        await cluster.session.set(path, b"{")
        await cluster.settle()
        assert await cluster.state("t") == (1, 1, (1,))
        await cluster.session.set(path, whole)
        await cluster.settle()
        assert sorted(cluster.brokers[BrokerId(1)].live) == [1, 2]

    run(scenario, tmp_path, 1, 2, zookeeper_connect="model")


def test_no_features_are_written_over_those_that_cannot_be_read(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [1, 2])
        await cluster.session.set("/feature", b"{")
        await cluster.kill(1)
        await cluster.create("u", [2])
        assert (await cluster.session.get("/feature"))[0] == b"{"

    run(scenario, tmp_path, 1, 2, zookeeper_connect="model")


def test_a_block_of_producer_ids_that_cannot_be_read_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.session.set("/latest_producer_id_block", b"{")
        request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=cluster.brokers[BrokerId(1)].epoch)
        answer = await cluster.controller.allocate_producer_ids(request)
        assert answer.error_code == UnknownServerError.code

    run(scenario, tmp_path, 1, zookeeper_connect="model")
    assert "No producer ids can be allocated: /latest_producer_id_block: no JSON" in caplog.text


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
