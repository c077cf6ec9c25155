"""Questions to transaction coordinators on other brokers, and the answers as the leader of a partition gets them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from barnabas.broker.coordinators import remote_verification
from barnabas.broker.coordinators.remote_verification import Question, RemoteVerification
from barnabas.broker.waiting.tasks import Tasks
from barnabas.errors import (
    ClusterAuthorizationFailed,
    ConcurrentTransactions,
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaError,
    NetworkException,
    RequestTimedOut,
    TransactionAbortable,
    UnsupportedVersion,
)
from barnabas.model import BrokerId, ProducerEpoch, ProducerId, TopicPartition
from barnabas.protocol.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from tests.broker.coordinators.other_brokers import OtherBrokers

COORDINATOR = BrokerId(2)
PARTITIONS = (TopicPartition("a", 0), TopicPartition("a", 1))

Results = dict[TopicPartition, KafkaError | None]


class Leader:
    """A broker that asks."""

    def __init__(self) -> None:
        self.brokers = OtherBrokers()
        self.tasks = Tasks()
        self.verification = RemoteVerification(self.brokers, self.tasks, timeout_ms=30_000)

    def ask(self, id_: str = "id", *, epoch: int = 0, adds: bool = False) -> list[Results]:
        results: list[Results] = []
        self.verification.ask(
            COORDINATOR,
            Question(id_, ProducerId(7), ProducerEpoch(epoch), PARTITIONS, adds, results.append),
        )
        return results


def run(test: Callable[[Leader], Awaitable[None]]) -> None:
    async def start() -> None:
        leader = Leader()
        await test(leader)
        await leader.tasks.stop()

    asyncio.run(start())


def answer(codes: tuple[int, int] = (0, 0), *ids: str) -> AddPartitionsToTxnResponse:
    topic = AddPartitionsToTxnTopicResult(
        name="a",
        results_by_partition=[
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
            for index, code in enumerate(codes)
        ],
    )
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(transactional_id=each, topic_results=[topic]) for each in ids or ("id",)
        ]
    )


def kinds(results: list[Results]) -> list[type[KafkaError] | None]:
    [answers] = results
    errors = [answers[key] for key in PARTITIONS]
    return [None if error is None else type(error) for error in errors]


def test_a_question_is_about_the_partitions_of_one_producer() -> None:
    async def test(leader: Leader) -> None:
        for adds in (False, True):
            results = leader.ask(epoch=3, adds=adds)
            sent = await leader.brokers.answer(answer())
            assert (sent.broker_id, sent.api_name) == (COORDINATOR, "AddPartitionsToTxn")
            [asked] = sent.request.transactions
            assert (asked.transactional_id, asked.producer_id, asked.producer_epoch) == ("id", 7, 3)
            assert asked.verify_only is not adds
            assert [(topic.name, topic.partitions) for topic in asked.topics] == [("a", [0, 1])]
            assert kinds(results) == [None, None]

    run(test)


def test_each_partition_has_its_own_answer() -> None:
    async def test(leader: Leader) -> None:
        results = leader.ask()
        await leader.brokers.answer(answer((0, TransactionAbortable.code)))
        assert kinds(results) == [None, TransactionAbortable]

    run(test)


def test_questions_that_come_during_a_request_go_together() -> None:
    async def test(leader: Leader) -> None:
        first = leader.ask("first")
        await leader.brokers.next()
        second, third = leader.ask("second"), leader.ask("third")
        await leader.brokers.answer(answer((0, 0), "first"))
        sent = await leader.brokers.answer(answer((ConcurrentTransactions.code, 0), "third", "second"))
        assert [each.transactional_id for each in sent.request.transactions] == ["second", "third"]
        assert kinds(first) == [None, None]
        assert kinds(second) == kinds(third) == [ConcurrentTransactions, None]

    run(test)


def test_a_client_that_repeats_itself_and_one_that_is_fenced() -> None:
    async def test(leader: Leader) -> None:
        leader.ask("other")
        await leader.brokers.next()
        first = leader.ask(epoch=1)
        repeated = leader.ask(epoch=1)
        assert kinds(first) == [NetworkException, NetworkException]
        newer = leader.ask(epoch=2)
        assert kinds(repeated) == [InvalidProducerEpoch, InvalidProducerEpoch]
        older = leader.ask(epoch=1)
        assert kinds(older) == [InvalidProducerEpoch, InvalidProducerEpoch]
        await leader.brokers.answer(answer((0, 0), "other"))
        sent = await leader.brokers.answer(answer())
        assert [each.producer_epoch for each in sent.request.transactions] == [2]
        assert kinds(newer) == [None, None]

    run(test)


def test_requests_that_fail() -> None:
    async def test(leader: Leader) -> None:
        failures: list[tuple[KafkaError, type[KafkaError] | None]] = [
            (NetworkException("gone"), NetworkException),
            (RequestTimedOut("late"), NetworkException),
            # An older broker is not asked again and again.
            (UnsupportedVersion("old"), None),
        ]
        for error, expected in failures:
            results = leader.ask()
            await leader.brokers.answer(error)
            assert kinds(results) == [expected, expected]
        for code, kind in ((ClusterAuthorizationFailed.code, InvalidTxnState), (51, ConcurrentTransactions)):
            results = leader.ask()
            await leader.brokers.answer(AddPartitionsToTxnResponse(error_code=code))
            assert kinds(results) == [kind, kind]
        results = leader.ask()
        await leader.brokers.answer(answer((0, 0), "another"))
        assert kinds(results) == [NetworkException, NetworkException]

    run(test)


def test_not_too_many_questions_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_verification, "WAITING_MAX", 2)

    async def test(leader: Leader) -> None:
        leader.ask("first")
        await leader.brokers.next()
        waiting = [leader.ask(f"id-{number}") for number in range(3)]
        assert waiting[:2] == [[], []]
        assert kinds(waiting[2]) == [NetworkException, NetworkException]

    run(test)
