"""Asks transaction coordinators on other brokers whether partitions are part of a transaction, or adds them to it.

The leader of a partition asks before it appends the first batch of a transaction: AddPartitionsToTxn from version 4 on,
one request to a broker at a time. A request has each transactional id once. If another question about it comes before
its request leaves, the client has repeated itself or a new producer has taken the id; the older question is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas.broker.coordinators.destinations import Destinations, Peers, Report, report
from barnabas.broker.waiting.tasks import Tasks
from barnabas.errors import (
    NONE,
    ClusterAuthorizationFailed,
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaError,
    NetworkException,
    RequestTimedOut,
    UnsupportedVersion,
    error_for_code,
)
from barnabas.model import BrokerId, ProducerEpoch, ProducerId, TopicPartition
from barnabas.protocol.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
)

log = logging.getLogger(__name__)

TRANSACTIONS: Final = "transactions"
# Produce requests that wait for the same coordinator: far more than a broker has in flight.
WAITING_MAX: Final = 10_000


class Question(NamedTuple):
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    partitions: Sequence[TopicPartition]
    # Whether the partitions become part of the transaction, if they are not.
    adds: bool
    then: Report

    @property
    def partition_count(self) -> int:
        return len(self.partitions)

    def answer(self, error: KafkaError | None) -> None:
        report(self.then, dict.fromkeys(self.partitions, error))


class RemoteVerification:
    def __init__(self, peers: Peers, tasks: Tasks, *, timeout_ms: int) -> None:
        self._peers = peers
        self._timeout_ms = timeout_ms
        self._destinations: Destinations[Question] = Destinations(tasks, self._ask)

    def ask(self, broker_id: BrokerId, question: Question) -> None:
        """Asks the coordinator. `then` is called once, perhaps before this returns."""
        destinations = self._destinations
        before = destinations.waiting(broker_id, question.transactional_id)
        if before is None:
            if destinations.waiting_count(broker_id) >= WAITING_MAX:
                question.answer(NetworkException(f"too many requests wait for broker {broker_id}"))
            else:
                destinations.add(broker_id, question)
            return
        if before.producer_epoch > question.producer_epoch:
            question.answer(_fenced(question))
            return
        destinations.add(broker_id, question)
        is_same = before.producer_epoch == question.producer_epoch
        before.answer(NetworkException("the request was repeated") if is_same else _fenced(before))

    async def _ask(self, broker_id: BrokerId, batch: list[Question]) -> None:
        request = AddPartitionsToTxnRequest(transactions=[_request_of(each) for each in batch])
        try:
            link = self._peers.link(broker_id, TRANSACTIONS)
            answer: AddPartitionsToTxnResponse = await link.ask(
                "AddPartitionsToTxn", request, timeout_ms=self._timeout_ms
            )
        except UnsupportedVersion as error:
            # An older broker knows no verification. Its producers do without it, as in Kafka.
            log.warning("Broker %d cannot verify transactions: %s", broker_id, error)
            _answer_all(batch, None)
            return
        except RequestTimedOut as error:
            _answer_all(batch, NetworkException(str(error)))
            return
        except KafkaError as error:
            _answer_all(batch, error)
            return
        if answer.error_code == ClusterAuthorizationFailed.code:
            _answer_all(batch, InvalidTxnState("this broker may not ask the coordinator"))
        elif answer.error_code != NONE:
            _answer_all(batch, error_for_code(answer.error_code))
        else:
            results = {each.transactional_id: each for each in answer.results_by_transaction}
            for question in batch:
                _report(question, results.get(question.transactional_id))


def _answer_all(batch: Sequence[Question], error: KafkaError | None) -> None:
    for question in batch:
        question.answer(error)


def _report(question: Question, result: AddPartitionsToTxnResult | None) -> None:
    missing = NetworkException("the coordinator did not report on the partition")
    errors: dict[TopicPartition, KafkaError | None] = dict.fromkeys(question.partitions, missing)
    for topic in () if result is None else result.topic_results:
        for each in topic.results_by_partition:
            key = TopicPartition(topic.name, each.partition_index)
            if key in errors:
                code = each.partition_error_code
                errors[key] = None if code == NONE else error_for_code(code)
    report(question.then, errors)


def _fenced(question: Question) -> InvalidProducerEpoch:
    return InvalidProducerEpoch(f"{question.transactional_id} has a later epoch")


def _request_of(question: Question) -> AddPartitionsToTxnTransaction:
    topics: dict[str, list[int]] = {}
    for topic, index in question.partitions:
        topics.setdefault(topic, []).append(index)
    return AddPartitionsToTxnTransaction(
        transactional_id=question.transactional_id,
        producer_id=question.producer_id,
        producer_epoch=question.producer_epoch,
        verify_only=not question.adds,
        topics=[AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()],
    )
