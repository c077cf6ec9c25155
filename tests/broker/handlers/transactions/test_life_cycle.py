"""Coordinators of transactions that come, go, and wait for their records to be written by replicas."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker.coordinators.transaction_shell import TransactionShell
from barnabas.errors import (
    NONE,
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
)
from barnabas.model import BrokerId
from barnabas.protocol.apis import api_for_name
from barnabas.protocol.messages.end_txn_request import EndTxnRequest
from barnabas.protocol.requests import decode_response
from tests.broker.coordinator_requests import (
    Producer,
    add_offsets,
    add_partitions,
    ask_init,
    committed_values,
    describe_transaction,
    end,
    init,
    last_stable_offset,
    list_transactions,
    produce,
    wait_for_transaction_coordinator,
)
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import create_topic
from tests.broker.replication.roles import change_replicas
from tests.broker.running import RunningBroker
from tests.waiting import wait_until

SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
AWAY = BrokerId(99)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path / "data", SETTINGS) as running:
        yield running


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[RawClient]:
    with broker.client() as client:
        create_topic(client, "topic")
        wait_for_transaction_coordinator(client)
        yield client


def open_transaction(client: RawClient) -> Producer:
    producer = init(client, "id")
    assert produce(client, "topic", "id", producer) == NONE
    return producer


def replace_shell(broker: RunningBroker) -> TransactionShell:
    """As if the partition had just come to this broker. It is not loaded yet."""
    runtime = broker.server.broker.transactions

    async def begin() -> TransactionShell:
        before = runtime._shells[0]
        before.unload()
        shell = runtime._shells[0] = runtime._new_shell(before.partition)
        return shell

    return broker.call(begin)


def set_in_sync(broker: RunningBroker, *in_sync: BrokerId) -> None:
    """Who has to write the coordinator's records before they are committed."""
    replicas = broker.server.broker.replicas
    partition = next(iter(broker.server.broker.transactions)).partition

    async def change() -> None:
        change_replicas(replicas, partition, in_sync or [replicas.broker_id], in_sync)

    broker.call(change)


def send_commit(client: RawClient, producer: Producer) -> None:
    request = EndTxnRequest(
        transactional_id="id", producer_id=producer.id, producer_epoch=producer.epoch, committed=True
    )
    client.send("EndTxn", 5, request)


def is_pending(broker: RunningBroker) -> bool:
    """Whether a step of the transaction is written here and not committed yet."""
    [shell] = broker.server.broker.transactions
    entry = shell.coordinator.find("id")
    return entry is not None and entry.pending is not None


def received_code(client: RawClient) -> int:
    body = decode_response(api_for_name("EndTxn"), 5, client.receive_frame()).body
    return int(body.error_code)


def test_while_a_partition_is_loaded(broker: RunningBroker, client: RawClient) -> None:
    producer = open_transaction(client)
    shell = replace_shell(broker)
    in_progress = CoordinatorLoadInProgress.code
    assert ask_init(client, "id").error_code == in_progress
    assert set(add_partitions(client, "id", producer, {"topic": [0]}).values()) == {in_progress}
    assert set(add_partitions(client, "id", producer, {"topic": [0]}, version=0).values()) == {in_progress}
    assert add_offsets(client, "id", producer, "group") == in_progress
    assert end(client, "id", producer).error_code == in_progress
    assert describe_transaction(client, "id").error_code == in_progress
    listed = list_transactions(client)
    assert (listed.error_code, listed.transaction_states) == (in_progress, [])
    broker.call(lambda: shell.load(1, broker.server.broker.background))
    assert describe_transaction(client, "id").transaction_state == "Ongoing"
    assert end(client, "id", producer).error_code == NONE
    wait_until(lambda: last_stable_offset(client, "topic") == 2)
    assert committed_values(client, "topic") == [b"value"]


def test_what_was_decided_is_completed_by_whoever_has_the_partition_next(
    broker: RunningBroker, client: RawClient
) -> None:
    producer = open_transaction(client)
    shell = next(iter(broker.server.broker.transactions))
    # Its coordinator goes away before the markers are sent.
    shell._send_markers = lambda markers, epoch, then: None
    assert end(client, "id", producer).error_code == NONE
    assert describe_transaction(client, "id").transaction_state == "PrepareCommit"
    assert end(client, "id", producer).error_code == ConcurrentTransactions.code
    assert last_stable_offset(client, "topic") == 0
    following = replace_shell(broker)
    broker.call(lambda: following.load(1 << 20, broker.server.broker.background))
    wait_until(lambda: describe_transaction(client, "id").transaction_state == "CompleteCommit")
    assert committed_values(client, "topic") == [b"value"]
    assert end(client, "id", producer).error_code == NONE


def test_a_log_that_fails_leaves_no_coordinator(broker: RunningBroker, client: RawClient) -> None:
    producer = open_transaction(client)
    replicas = broker.server.broker.replicas
    partition = next(iter(broker.server.broker.transactions)).partition.topic_partition

    async def fail() -> None:
        replicas.take_offline(str(broker.directory), [partition])

    broker.call(fail)
    code = NotCoordinator.code
    assert ask_init(client, "id").error_code == code
    assert end(client, "id", producer).error_code == code
    assert describe_transaction(client, "id").error_code == code
    assert set(add_partitions(client, "id", producer, {"topic": [0]}).values()) == {code}


def test_an_end_waits_for_the_replicas(broker: RunningBroker, client: RawClient) -> None:
    producer = open_transaction(client)
    us = broker.server.broker.replicas.broker_id
    set_in_sync(broker, us, AWAY)
    with broker.client() as other:
        send_commit(other, producer)
        wait_until(lambda: is_pending(broker))
        assert end(client, "id", producer).error_code == ConcurrentTransactions.code
        assert last_stable_offset(client, "topic") == 0
        set_in_sync(broker, us)
        assert received_code(other) == NONE
    wait_until(lambda: last_stable_offset(client, "topic") == 2)
    assert committed_values(client, "topic") == [b"value"]


def test_a_producer_that_waits_for_the_replicas_is_sent_to_the_next_coordinator(
    broker: RunningBroker, client: RawClient
) -> None:
    producer = open_transaction(client)
    us = broker.server.broker.replicas.broker_id
    set_in_sync(broker, us, AWAY)
    with broker.client() as other:
        send_commit(other, producer)
        wait_until(lambda: is_pending(broker))
        assert end(client, "id", producer).error_code == ConcurrentTransactions.code
        shell = replace_shell(broker)
        set_in_sync(broker, us)
        assert received_code(other) == NotCoordinator.code
    # What was written counts all the same.
    broker.call(lambda: shell.load(1 << 20, broker.server.broker.background))
    wait_until(lambda: describe_transaction(client, "id").transaction_state == "CompleteCommit")
    assert end(client, "id", producer).error_code == NONE


def test_too_few_replicas_are_no_coordinator(broker: RunningBroker, client: RawClient) -> None:
    producer = open_transaction(client)
    us = broker.server.broker.replicas.broker_id
    set_in_sync(broker)
    assert end(client, "id", producer).error_code == CoordinatorNotAvailable.code
    assert ask_init(client, "other").error_code == CoordinatorNotAvailable.code
    set_in_sync(broker, us)
    assert end(client, "id", producer).error_code == NONE
    assert init(client, "other").epoch == 0
