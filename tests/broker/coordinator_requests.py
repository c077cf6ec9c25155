"""Requests to the coordinator of transactions, with the fields that tests care about."""

from __future__ import annotations

from typing import Any, NamedTuple

from barnabas.errors import ConcurrentTransactions, CoordinatorLoadInProgress
from barnabas.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from barnabas.protocol.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from barnabas.protocol.messages.end_txn_request import EndTxnRequest
from barnabas.protocol.messages.init_producer_id_request import InitProducerIdRequest
from barnabas.protocol.messages.list_transactions_request import ListTransactionsRequest
from barnabas.records.control import parse_end_txn_marker
from barnabas.records.layout import ControlRecordType
from barnabas.records.reader import iterate_batches
from tests.broker.group_requests import find
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import fetch
from tests.broker.transaction_requests import latest_offset, produce_in_transaction
from tests.waiting import wait_until

TRANSACTION = 1
READ_COMMITTED = 1


class Producer(NamedTuple):
    id: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.id}@{self.epoch}"


NOBODY = Producer(-1, -1)


def find_transaction(client: RawClient, transactional_id: str, *, version: int = 6) -> Any:
    return find(client, transactional_id, version=version, key_type=TRANSACTION)


def wait_for_transaction_coordinator(client: RawClient) -> None:
    """Has the topic created, and waits until all of its partitions are loaded."""
    wait_until(lambda: find_transaction(client, "any").error_code == 0)
    wait_until(lambda: list_transactions(client).error_code != CoordinatorLoadInProgress.code)


def ask_init(
    client: RawClient,
    transactional_id: str | None,
    *,
    expected: Producer = NOBODY,
    timeout_ms: int = 60_000,
    version: int = 5,
) -> Any:
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=expected.id,
        producer_epoch=expected.epoch,
    )
    return client.ask("InitProducerId", version, request)


def init(client: RawClient, transactional_id: str | None, **options: Any) -> Producer:
    """As a client does it: what is still being completed is waited for."""
    answers = []

    def is_answered() -> bool:
        answers.append(ask_init(client, transactional_id, **options))
        return bool(answers[-1].error_code != ConcurrentTransactions.code)

    wait_until(is_answered)
    assert answers[-1].error_code == 0, answers[-1]
    return Producer(answers[-1].producer_id, answers[-1].producer_epoch)


def add_partitions(
    client: RawClient,
    transactional_id: str,
    producer: Producer,
    topics: dict[str, list[int]],
    *,
    version: int = 5,
    verify_only: bool = False,
) -> dict[tuple[str, int], int]:
    """The error of each partition."""
    named = [AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()]
    if version >= 4:
        request = AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=transactional_id,
                    producer_id=producer.id,
                    producer_epoch=producer.epoch,
                    verify_only=verify_only,
                    topics=named,
                )
            ]
        )
        response = client.ask("AddPartitionsToTxn", version, request)
        assert response.error_code == 0
        [result] = response.results_by_transaction
        assert result.transactional_id == transactional_id
        topic_results = result.topic_results
    else:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer.id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=named,
        )
        topic_results = client.ask("AddPartitionsToTxn", version, request).results_by_topic_v3_and_below
    return {
        (topic.name, each.partition_index): each.partition_error_code
        for topic in topic_results
        for each in topic.results_by_partition
    }


def add_offsets(
    client: RawClient, transactional_id: str, producer: Producer, group_id: str, *, version: int = 4
) -> int:
    request = AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        group_id=group_id,
    )
    return int(client.ask("AddOffsetsToTxn", version, request).error_code)


def end(
    client: RawClient, transactional_id: str, producer: Producer, *, commit: bool = True, version: int = 5
) -> Any:
    request = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        committed=commit,
    )
    return client.ask("EndTxn", version, request)


def describe_transaction(client: RawClient, transactional_id: str) -> Any:
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    [described] = client.ask("DescribeTransactions", 0, request).transaction_states
    assert described.transactional_id == transactional_id
    return described


def list_transactions(
    client: RawClient,
    *,
    states: tuple[str, ...] = (),
    producer_ids: tuple[int, ...] = (),
    duration_ms: int = -1,
    pattern: str | None = None,
    version: int = 2,
) -> Any:
    request = ListTransactionsRequest(state_filters=list(states), producer_id_filters=list(producer_ids))
    if version >= 1:
        request.duration_filter = duration_ms
    if version >= 2:
        request.transactional_id_pattern = pattern
    return client.ask("ListTransactions", version, request)


def produce(
    client: RawClient,
    topic: str,
    transactional_id: str,
    producer: Producer,
    value: bytes = b"value",
    *,
    partition: int = 0,
    sequence: int = 0,
    version: int = 12,
) -> int:
    """The error; from version 12 on the partition joins the transaction by it."""
    answer = produce_in_transaction(
        client,
        topic,
        value,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        sequence=sequence,
        transactional_id=transactional_id,
        version=version,
        partition=partition,
    )
    return int(answer.error_code)


def last_stable_offset(client: RawClient, topic: str) -> int:
    return latest_offset(client, topic, isolation_level=READ_COMMITTED)


def committed_values(client: RawClient, topic: str) -> list[bytes | None]:
    """What a consumer of committed records gets to see."""
    found: list[bytes | None] = []
    offset = 0
    while True:
        answer = fetch(client, topic, offset, isolation_level=READ_COMMITTED)
        if not answer.records:
            return found
        starts = sorted((each.first_offset, each.producer_id) for each in answer.aborted_transactions)
        aborted: set[int] = set()
        for header, records in iterate_batches(bytes(answer.records)):
            offset = int(header.next_offset)
            while starts and starts[0][0] <= header.last_offset:
                aborted.add(starts.pop(0)[1])
            if header.is_control:
                marker = parse_end_txn_marker(records[0])
                if marker is not None and marker.control_type is ControlRecordType.ABORT:
                    aborted.discard(header.producer_id)
            elif header.producer_id not in aborted:
                found += [record.value for record in records]
