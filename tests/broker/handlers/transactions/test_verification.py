"""Records and offsets of transactions, which the coordinator is asked about before they are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from barnabas.errors import (
    NONE,
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTxnState,
    NotEnoughReplicas,
    OutOfOrderSequenceNumber,
    TransactionAbortable,
    UnstableOffsetCommit,
)
from barnabas.protocol.apis import api_for_name
from barnabas.protocol.requests import decode_response
from tests.broker.config_requests import BROKER, SET, incremental
from tests.broker.group_requests import fetch_offsets, wait_for_coordinator
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import create_topic, produce_request
from tests.broker.running import RunningBroker
from tests.broker.transaction_requests import (
    add_offsets,
    add_partitions,
    commit_in_transaction,
    data_values,
    end_transaction,
    init_producer,
    new_batch,
    produce_in_transaction,
    read_committed,
    stable_offset,
)
from tests.waiting import wait_until

SETTINGS = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
FIRST_WITH_ABORTABLE = 11
FIRST_THAT_ADDS = 12


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("broker"), SETTINGS) as running:
        yield running


class HeldMarkers:
    """Has markers wait until they are let go, as if partitions were far away."""

    def __init__(self, broker: RunningBroker) -> None:
        self._broker = broker
        self._runtime = broker.server.broker.transactions
        self._writer = self._runtime._markers
        self._held: list[Callable[[], None]] = []
        self._runtime._markers = self

    def write_markers(self, *args: Any, **options: Any) -> None:
        self._held.append(partial(self._writer.write_markers, *args, **options))

    @property
    def count(self) -> int:
        return len(self._held)

    def let_go(self) -> None:
        async def write_all() -> None:
            self._runtime._markers = self._writer
            for write in self._held:
                write()

        self._broker.call(write_all)


def topic_id_of(client: RawClient, name: str) -> bytes:
    created: bytes = create_topic(client, name, 2).topic_id
    return created


@pytest.mark.parametrize("version", range(3, 14))
def test_records_are_taken_that_the_coordinator_knows_of(client: RawClient, version: int) -> None:
    name = f"known-{version}"
    topic_id = topic_id_of(client, name)
    producer = init_producer(client, name)
    options: dict[str, Any] = {
        "producer_id": producer[0],
        "producer_epoch": producer[1],
        "transactional_id": name,
        "version": version,
        "topic_id": topic_id,
    }
    if version < FIRST_THAT_ADDS:
        answer = produce_in_transaction(client, name, b"a", sequence=0, **options)
        abortable = version >= FIRST_WITH_ABORTABLE
        assert answer.error_code == (TransactionAbortable.code if abortable else InvalidTxnState.code)
        add_partitions(client, name, producer, name, 0, 1)
    for sequence in range(3):
        answer = produce_in_transaction(client, name, b"%d" % sequence, sequence=sequence, **options)
        assert (answer.error_code, answer.base_offset) == (NONE, sequence)
    answer = produce_in_transaction(client, name, b"other", sequence=0, partition=1, **options)
    assert answer.error_code == NONE
    # A batch that comes again is known.
    answer = produce_in_transaction(client, name, b"1", sequence=1, **options)
    assert (answer.error_code, answer.base_offset) == (NONE, 1)
    assert data_values(read_committed(client, name).records) == []
    ended = end_transaction(
        client, name, producer, commit=True, version=5 if version >= FIRST_THAT_ADDS else 4
    )
    assert ended.error_code == NONE
    wait_until(lambda: read_committed(client, name).last_stable_offset == 4)
    assert data_values(read_committed(client, name).records) == [b"0", b"1", b"2"]
    assert data_values(read_committed(client, name, partition=1).records) == [b"other"]


@pytest.mark.parametrize("version", range(3, 14))
def test_records_that_are_refused(client: RawClient, version: int) -> None:
    name = f"refused-{version}"
    topic_id = topic_id_of(client, name)
    old = init_producer(client, name)
    producer_id, epoch = init_producer(client, name)
    assert (producer_id, epoch) == (old[0], old[1] + 1)

    def error(transactional_id: str = name, **options: Any) -> int:
        options = {"producer_id": producer_id, "producer_epoch": epoch, "sequence": 0, **options}
        code: int = produce_in_transaction(
            client,
            name,
            b"a",
            transactional_id=transactional_id,
            version=version,
            topic_id=topic_id,
            **options,
        ).error_code
        return code

    assert error(producer_epoch=old[1]) == InvalidProducerEpoch.code
    assert error(transactional_id="nobody") == InvalidProducerIdMapping.code
    assert error(producer_id=producer_id + 1_000) == InvalidProducerIdMapping.code
    assert error(transactional_id="") == InvalidRequest.code
    if version >= FIRST_THAT_ADDS:
        # Each transaction counts from 0, so that nothing of it can be missing.
        assert error(sequence=3) == OutOfOrderSequenceNumber.code
        assert error() == NONE


def test_an_epoch_ends_with_its_transaction(client: RawClient) -> None:
    """Transaction version 2."""
    create_topic(client, "epochs")
    producer_id, epoch = init_producer(client, "epochs")
    for number in range(3):
        options: dict[str, Any] = {"producer_id": producer_id, "transactional_id": "epochs", "version": 12}
        for sequence in range(2):
            answer = produce_in_transaction(
                client, "epochs", b"%d" % number, producer_epoch=epoch, sequence=sequence, **options
            )
            assert answer.error_code == NONE
        ended = end_transaction(client, "epochs", (producer_id, epoch), commit=number != 1, version=5)
        assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (NONE, producer_id, epoch + 1)
        late = produce_in_transaction(client, "epochs", b"late", producer_epoch=epoch, sequence=2, **options)
        assert late.error_code == InvalidProducerEpoch.code
        epoch = ended.producer_epoch
    answer = read_committed(client, "epochs")
    assert [each.first_offset for each in answer.aborted_transactions] == [3]
    assert data_values(answer.records) == [b"0", b"0", b"1", b"1", b"2", b"2"]


def test_a_producer_writes_on_while_the_transaction_before_is_completed(tmp_path: Path) -> None:
    """The request waits, and so does what its connection has sent behind it."""
    settings = {**SETTINGS, "add.partitions.to.txn.retry.backoff.max.ms": str(2**31 - 1)}
    with RunningBroker(tmp_path, settings) as broker, broker.client() as client:
        create_topic(client, "topic")
        producer = init_producer(client, "transaction")
        options: dict[str, Any] = {
            "producer_id": producer[0],
            "transactional_id": "transaction",
            "version": 12,
        }
        answer = produce_in_transaction(
            client, "topic", b"first", producer_epoch=producer[1], sequence=0, **options
        )
        assert answer.error_code == NONE
        held = HeldMarkers(broker)
        ended = end_transaction(client, "transaction", producer, commit=True, version=5)
        assert held.count == 1
        with broker.client() as writer:
            for sequence in range(3):
                records = new_batch(
                    b"second-%d" % sequence,
                    producer_id=producer[0],
                    producer_epoch=ended.producer_epoch,
                    base_sequence=sequence,
                    is_transactional=True,
                )
                request = produce_request("topic", records, acks=-1)
                request.transactional_id = "transaction"
                writer.send("Produce", 12, request)
            assert data_values(read_committed(client, "topic").records) == []
            held.let_go()
            for offset in (2, 3, 4):
                response = decode_response(api_for_name("Produce"), 12, writer.receive_frame()).body
                [partition] = response.responses[0].partition_responses
                assert (partition.error_code, partition.base_offset) == (NONE, offset)
        producer = (producer[0], ended.producer_epoch)
        assert end_transaction(client, "transaction", producer, commit=True, version=5).error_code == NONE
        wait_until(lambda: read_committed(client, "topic").last_stable_offset == 6)


@pytest.mark.parametrize(
    ("version", "error"), [(9, NotEnoughReplicas), (11, NotEnoughReplicas), (12, ConcurrentTransactions)]
)
def test_a_producer_is_not_kept_waiting_for_long(
    tmp_path: Path, version: int, error: type[NotEnoughReplicas | ConcurrentTransactions]
) -> None:
    settings = {**SETTINGS, "add.partitions.to.txn.retry.backoff.max.ms": "0"}
    with RunningBroker(tmp_path, settings) as broker, broker.client() as client:
        create_topic(client, "topic", 2)
        producer = init_producer(client, "transaction")
        add_partitions(client, "transaction", producer, "topic", 0)
        options: dict[str, Any] = {
            "producer_id": producer[0],
            "transactional_id": "transaction",
            "version": version,
        }
        answer = produce_in_transaction(
            client, "topic", b"first", producer_epoch=producer[1], sequence=0, **options
        )
        assert answer.error_code == NONE
        held = HeldMarkers(broker)
        ended = end_transaction(
            client, "transaction", producer, commit=True, version=5 if version >= FIRST_THAT_ADDS else 4
        )
        epoch = ended.producer_epoch if version >= FIRST_THAT_ADDS else producer[1]
        answer = produce_in_transaction(
            client, "topic", b"second", producer_epoch=epoch, sequence=0, partition=1, **options
        )
        assert answer.error_code == error.code
        held.let_go()


def test_a_coordinator_that_is_not_ready(broker: RunningBroker, client: RawClient) -> None:
    create_topic(client, "unready")
    wait_for_coordinator(client, "unready")
    producer = init_producer(client, "unready")
    add_partitions(client, "unready", producer, "unready", 0)
    add_offsets(client, "unready", producer, "unready")
    shell = broker.server.broker.transactions.shell_of("unready")
    shell._is_loading = True
    try:
        for version in (9, 11, 12):
            answer = produce_in_transaction(
                client,
                "unready",
                b"a",
                producer_id=producer[0],
                producer_epoch=producer[1],
                sequence=0,
                transactional_id="unready",
                version=version,
            )
            assert answer.error_code == NotEnoughReplicas.code
        for version in range(6):
            codes = commit_in_transaction(
                client,
                "unready",
                {("unready", 0): 1},
                version=version,
                producer_id=producer[0],
                producer_epoch=producer[1],
                transactional_id="unready",
            )
            error = CoordinatorNotAvailable if version < 2 else CoordinatorLoadInProgress
            assert codes == {("unready", 0): error.code}
    finally:
        shell._is_loading = False


@pytest.mark.parametrize("version", range(6))
def test_offsets_are_part_of_a_transaction_that_the_coordinator_knows_of(
    client: RawClient, version: int
) -> None:
    name = f"offsets-{version}"
    create_topic(client, name)
    wait_for_coordinator(client, name)
    old = init_producer(client, name)
    producer = init_producer(client, name)

    def commit_offsets(**options: Any) -> int:
        options = {
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "transactional_id": name,
            **options,
        }
        return commit_in_transaction(client, name, {(name, 0): 7}, version=version, **options)[(name, 0)]

    assert commit_offsets(producer_epoch=old[1]) == InvalidProducerEpoch.code
    assert commit_offsets(transactional_id="nobody") == InvalidProducerIdMapping.code
    assert commit_offsets(transactional_id="") == InvalidRequest.code
    if version < 5:
        assert commit_offsets() == (TransactionAbortable.code if version == 4 else InvalidTxnState.code)
        add_offsets(client, name, producer, name)
    assert commit_offsets() == NONE
    assert commit_offsets() == NONE
    assert stable_offset(client, name, name) == f"error {UnstableOffsetCommit.code}"
    ended = end_transaction(client, name, producer, commit=True, version=5 if version == 5 else 4)
    assert ended.error_code == NONE
    wait_until(lambda: stable_offset(client, name, name) == 7)
    assert fetch_offsets(client, name, {name: [0]}) == {(name, 0): 7}


def test_verification_can_be_switched_off_while_the_broker_runs(
    broker: RunningBroker, client: RawClient
) -> None:
    create_topic(client, "unverified")
    producer = init_producer(client, "unverified")
    options: dict[str, Any] = {
        "producer_id": producer[0],
        "producer_epoch": producer[1],
        "transactional_id": "unverified",
        "version": 9,
    }
    setting = "transaction.partition.verification.enable"
    assert produce_in_transaction(client, "unverified", b"a", sequence=0, **options).error_code == (
        InvalidTxnState.code
    )
    try:
        assert incremental(client, BROKER, "", (setting, SET, "false"))[0] == NONE
        assert produce_in_transaction(client, "unverified", b"a", sequence=0, **options).error_code == NONE
    finally:
        incremental(client, BROKER, "", (setting, SET, "true"))


@pytest.mark.parametrize("commit", [True, False])
def test_what_was_prepared_before_a_crash_is_completed_after_it(tmp_path: Path, commit: bool) -> None:
    with RunningBroker(tmp_path, SETTINGS) as broker, broker.client() as client:
        create_topic(client, "topic", 2)
        wait_for_coordinator(client, "group")
        producer = init_producer(client, "transaction")
        options: dict[str, Any] = {"producer_id": producer[0], "producer_epoch": producer[1]}
        for partition in range(2):
            produce_in_transaction(
                client,
                "topic",
                b"a",
                sequence=0,
                partition=partition,
                transactional_id="transaction",
                version=12,
                **options,
            )
        commit_in_transaction(
            client, "group", {("topic", 0): 7}, transactional_id="transaction", version=5, **options
        )
        held = HeldMarkers(broker)
        # The client has its answer, and no partition knows of it yet.
        assert end_transaction(client, "transaction", producer, commit=commit, version=5).error_code == NONE
        assert held.count == 1
    with RunningBroker(tmp_path, SETTINGS) as broker, broker.client() as client:
        wait_for_coordinator(client, "group")
        for partition in range(2):
            wait_until(
                lambda: read_committed(client, "topic", partition=partition).last_stable_offset == 2  # noqa: B023
            )
            answer = read_committed(client, "topic", partition=partition)
            assert [each.first_offset for each in answer.aborted_transactions] == ([] if commit else [0])
        wait_until(lambda: stable_offset(client, "group", "topic") == (7 if commit else -1))
