"""The partition's side of transactions on a running broker: markers, isolation, offsets of groups.

Here no coordinator is asked about transactions, so that each of them is just what the test writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.clock import ManualClock
from barnabas.errors import (
    NONE,
    FencedInstanceId,
    IllegalGeneration,
    InvalidGroupId,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTopicException,
    InvalidTxnState,
    NotLeaderOrFollower,
    OffsetMetadataTooLarge,
    TransactionalIdAuthorizationFailed,
    TransactionCoordinatorFenced,
    UnknownMemberId,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from barnabas.protocol.apis import api_for_name
from barnabas.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas.protocol.requests import decode_response
from tests.broker.group_requests import (
    commit,
    delete_groups,
    fetch_offsets,
    join_alone,
    listed,
    wait_for_coordinator,
)
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import batch, create_topic, fetch, fetch_request, produce, produce_request
from tests.broker.running import RunningBroker
from tests.broker.transaction_requests import (
    READ_COMMITTED,
    commit_in_transaction,
    data_values,
    delete_records,
    describe_producers,
    latest_offset,
    new_batch,
    offset_for_time,
    produce_in_transaction,
    read_committed,
    stable_offset,
    write_markers,
)

SETTINGS = {
    "transaction.partition.verification.enable": "false",
    "offsets.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("broker"), SETTINGS) as running:
        yield running


@pytest.mark.parametrize("version", range(3))
def test_markers_decide_what_is_seen(client: RawClient, version: int) -> None:
    topic = f"decided-{version}"
    create_topic(client, topic)
    produce(client, topic, new_batch(b"before"))
    produce_in_transaction(client, topic, b"a", b"b", producer_id=1, sequence=0)
    produce_in_transaction(client, topic, b"c", producer_id=2, sequence=0)
    answer = read_committed(client, topic)
    assert data_values(answer.records) == [b"before"]
    assert (answer.last_stable_offset, answer.high_watermark) == (1, 4)
    assert data_values(fetch(client, topic, 0).records) == [b"before", b"a", b"b", b"c"]

    assert write_markers(client, topic, 0, producer_id=1, commit=True, version=version) == {0: NONE}
    answer = read_committed(client, topic)
    assert data_values(answer.records) == [b"before", b"a", b"b"]
    assert (answer.last_stable_offset, answer.aborted_transactions) == (3, [])

    assert write_markers(client, topic, 0, producer_id=2, commit=False, version=version) == {0: NONE}
    answer = read_committed(client, topic)
    assert answer.last_stable_offset == answer.high_watermark == 6
    assert [(each.producer_id, each.first_offset) for each in answer.aborted_transactions] == [(2, 3)]
    assert fetch(client, topic, 0).aborted_transactions is None


def test_several_markers_in_one_request(client: RawClient) -> None:
    create_topic(client, "several", 2)
    for partition in range(2):
        produce_in_transaction(client, "several", b"a", producer_id=1, sequence=0, partition=partition)
    produce_in_transaction(client, "several", b"b", producer_id=2, sequence=0)
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer_id,
                transaction_result=True,
                topics=[
                    WritableTxnMarkerTopic(name="several", partition_indexes=[0, partition]),
                    WritableTxnMarkerTopic(name="absent", partition_indexes=[0]),
                ],
            )
            for producer_id, partition in ((1, 1), (2, 7))
        ]
    )
    response = client.ask("WriteTxnMarkers", 1, request)
    assert {
        (marker.producer_id, topic.name, partition.partition_index): partition.error_code
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    } == {
        (1, "several", 0): NONE,
        (1, "several", 1): NONE,
        (1, "absent", 0): UnknownTopicOrPartition.code,
        (2, "several", 0): NONE,
        (2, "several", 7): UnknownTopicOrPartition.code,
        (2, "absent", 0): UnknownTopicOrPartition.code,
    }
    assert data_values(read_committed(client, "several").records) == [b"a", b"b"]
    assert client.ask("WriteTxnMarkers", 1, WriteTxnMarkersRequest()).markers == []


def test_markers_that_are_refused(client: RawClient) -> None:
    create_topic(client, "refused")
    produce_in_transaction(client, "refused", b"a", producer_id=1, producer_epoch=5, sequence=0)
    options: dict[str, Any] = {"producer_id": 1, "commit": True}
    assert write_markers(client, "refused", 0, producer_epoch=4, **options) == {0: InvalidProducerEpoch.code}
    # From transaction version 2 on the epoch of the marker is a later one.
    assert write_markers(client, "refused", 0, producer_epoch=5, transaction_version=2, **options) == {
        0: InvalidProducerEpoch.code
    }
    assert latest_offset(client, "refused", isolation_level=READ_COMMITTED) == 0
    # What version 1 does not tell counts as version 0.
    assert write_markers(
        client, "refused", 0, producer_epoch=5, coordinator_epoch=3, version=1, **options
    ) == {0: NONE}
    produce_in_transaction(client, "refused", b"b", producer_id=1, producer_epoch=5, sequence=1)
    assert write_markers(client, "refused", 0, producer_epoch=5, coordinator_epoch=2, **options) == {
        0: TransactionCoordinatorFenced.code
    }
    assert write_markers(
        client, "refused", 0, producer_epoch=6, coordinator_epoch=3, transaction_version=2, **options
    ) == {0: NONE}
    assert produce_in_transaction(
        client, "refused", b"c", producer_id=1, producer_epoch=5, sequence=2
    ).error_code == (InvalidProducerEpoch.code)


def test_a_waiting_fetch_is_answered_when_the_transaction_ends(
    broker: RunningBroker, client: RawClient
) -> None:
    create_topic(client, "waiting")
    produce_in_transaction(client, "waiting", b"a", producer_id=1, sequence=0)
    with broker.client() as consumer:
        request = fetch_request("waiting", 0, isolation_level=READ_COMMITTED, max_wait_ms=2**31 - 1)
        consumer.send("Fetch", 12, request)
        # Neither more of the transaction nor of others lets it see anything.
        produce_in_transaction(client, "waiting", b"b", producer_id=1, sequence=1)
        produce(client, "waiting", new_batch(b"c"))
        assert data_values(fetch(client, "waiting", 0).records) == [b"a", b"b", b"c"]
        write_markers(client, "waiting", 0, producer_id=1, commit=True)
        answer = decode_response(api_for_name("Fetch"), 12, consumer.receive_frame()).body
        [partition] = answer.responses[0].partitions
        assert data_values(partition.records) == [b"a", b"b", b"c"]
        assert partition.last_stable_offset == 4


def test_offsets_by_time_end_at_the_first_open_transaction(client: RawClient) -> None:
    create_topic(client, "times")
    produce(client, "times", new_batch(b"a", timestamp=1_000))
    produce_in_transaction(client, "times", b"b", producer_id=1, sequence=0)
    for version in range(2, 12):
        assert latest_offset(client, "times", isolation_level=READ_COMMITTED, version=version) == 1
        assert latest_offset(client, "times", isolation_level=0, version=version) == 2
        assert offset_for_time(client, "times", 2_000, isolation_level=READ_COMMITTED, version=version) == -1
        assert offset_for_time(client, "times", 2_000, isolation_level=0, version=version) == 1
        assert offset_for_time(client, "times", 1_000, isolation_level=READ_COMMITTED, version=version) == 0
    write_markers(client, "times", 0, producer_id=1, commit=False)
    assert latest_offset(client, "times", isolation_level=READ_COMMITTED) == 3


def test_records_of_an_open_transaction_can_be_deleted(client: RawClient) -> None:
    create_topic(client, "deleted")
    produce_in_transaction(client, "deleted", b"a", b"b", producer_id=1, sequence=0)
    produce(client, "deleted", new_batch(b"c"))
    assert delete_records(client, "deleted", 1).low_watermark == 1
    answer = read_committed(client, "deleted", 1)
    assert (answer.error_code, answer.log_start_offset, answer.last_stable_offset) == (NONE, 1, 1)
    assert delete_records(client, "deleted", -1).low_watermark == 3
    assert describe_producers(client, "deleted").active_producers[0].current_txn_start_offset == 0
    produce(client, "deleted", new_batch(b"d"))
    assert latest_offset(client, "deleted", isolation_level=READ_COMMITTED) == 3
    write_markers(client, "deleted", 0, producer_id=1, commit=False)
    answer = read_committed(client, "deleted", 3)
    assert data_values(answer.records) == [b"d"]
    assert answer.last_stable_offset == 5


def test_producers_are_described(client: RawClient) -> None:
    create_topic(client, "described")
    assert describe_producers(client, "described").active_producers == []
    produce(client, "described", new_batch(b"a"))
    produce(
        client,
        "described",
        new_batch(b"a", b"b", producer_id=1, producer_epoch=3, base_sequence=0, timestamp=1_000),
    )
    produce_in_transaction(client, "described", b"c", producer_id=2, sequence=0)
    first, second = sorted(
        describe_producers(client, "described").active_producers, key=lambda each: each.producer_id
    )
    assert (first.producer_id, first.producer_epoch, first.last_sequence) == (1, 3, 1)
    assert (first.last_timestamp, first.coordinator_epoch, first.current_txn_start_offset) == (1_001, -1, -1)
    assert (second.producer_id, second.current_txn_start_offset) == (2, 3)
    write_markers(client, "described", 0, producer_id=2, commit=True, coordinator_epoch=9)
    _, second = sorted(
        describe_producers(client, "described").active_producers, key=lambda each: each.producer_id
    )
    assert (second.coordinator_epoch, second.current_txn_start_offset, second.last_sequence) == (9, -1, 0)


def test_partitions_with_hanging_transactions_are_counted(tmp_path: Path) -> None:
    clock = ManualClock()
    with RunningBroker(tmp_path, SETTINGS, clock=clock) as broker, broker.client() as client:
        create_topic(client, "hanging", 2)
        name = "kafka_server_replicamanager_partitionswithlatetransactionscount"

        async def count() -> str:
            [line] = [
                line for line in broker.server.broker.metrics.render().splitlines() if line.startswith(name)
            ]
            return line.removeprefix(name)

        records = batch(
            b"a",
            timestamp=clock.now_ms(),
            producer_id=1,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        request = produce_request("hanging", records, acks=-1)
        request.transactional_id = "transaction"
        assert client.ask("Produce", 9, request).responses[0].partition_responses[0].error_code == NONE
        # A quarter of an hour is the longest that a transaction may last, and some time to end it comes on top.
        clock.advance_ms(20 * 60_000)
        assert broker.call(count).strip() == "0"
        clock.advance_ms(1)
        assert broker.call(count).strip() == "1"
        write_markers(client, "hanging", 0, producer_id=1, commit=False)
        assert broker.call(count).strip() == "0"


@pytest.mark.parametrize(
    ("topic", "partition", "error"),
    [
        ("absent", 0, UnknownTopicOrPartition),
        ("described-not", 1, UnknownTopicOrPartition),
        ("described-not", -1, UnknownTopicOrPartition),
        ("no/name", 0, InvalidTopicException),
        ("", 0, InvalidTopicException),
    ],
)
def test_producers_that_cannot_be_described(
    client: RawClient, topic: str, partition: int, error: type[UnknownTopicOrPartition]
) -> None:
    if topic == "described-not" and partition == 1:
        create_topic(client, topic)
    assert describe_producers(client, topic, partition).error_code == error.code


def test_records_of_a_transaction_need_its_id(client: RawClient) -> None:
    create_topic(client, "nameless")
    answer = produce_in_transaction(
        client, "nameless", b"a", producer_id=1, sequence=0, transactional_id=None
    )
    assert answer.error_code == TransactionalIdAuthorizationFailed.code
    assert latest_offset(client, "nameless", isolation_level=0) == 0


def test_records_of_two_producers_are_no_transaction(client: RawClient) -> None:
    create_topic(client, "mixed", 2)
    request = ProduceRequest(
        transactional_id="transaction",
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name="mixed",
                partition_data=[
                    PartitionProduceData(
                        index=index,
                        records=new_batch(
                            b"a", producer_id=index, producer_epoch=0, base_sequence=0, is_transactional=True
                        ),
                    )
                    for index in range(2)
                ],
            )
        ],
    )
    [answers] = client.ask("Produce", 9, request).responses
    assert [each.error_code for each in answers.partition_responses] == [InvalidProducerIdMapping.code] * 2


def test_records_outside_the_transaction_that_is_open(client: RawClient) -> None:
    create_topic(client, "outside")
    produce_in_transaction(client, "outside", b"a", producer_id=1, sequence=0)
    records = new_batch(b"b", producer_id=1, producer_epoch=0, base_sequence=1)
    assert produce(client, "outside", records).error_code == InvalidTxnState.code
    # A transactional id does not make a transaction of records that are not part of one.
    request = produce_request("outside", new_batch(b"c"), acks=-1)
    request.transactional_id = "transaction"
    assert client.ask("Produce", 9, request).responses[0].partition_responses[0].error_code == NONE


@pytest.mark.parametrize("version", range(5))
def test_offsets_of_a_transaction_take_effect_with_it(client: RawClient, version: int) -> None:
    topic, group = f"offsets-{version}", f"group-{version}"
    create_topic(client, topic)
    wait_for_coordinator(client, group)
    for commit_it, expected in ((False, -1), (True, 5)):
        assert commit_in_transaction(client, group, {(topic, 0): 5}, version=version, producer_id=1) == {
            (topic, 0): NONE
        }
        assert fetch_offsets(client, group, {topic: [0]}) == {(topic, 0): -1}
        assert stable_offset(client, group, topic) == f"error {UnstableOffsetCommit.code}"
        for index in range(2):
            assert write_markers(client, "__consumer_offsets", index, producer_id=1, commit=commit_it) == {
                index: NONE
            }
        assert fetch_offsets(client, group, {topic: [0]}) == {(topic, 0): expected}
        assert stable_offset(client, group, topic) == expected


def test_the_later_commit_counts_whichever_way_it_came(client: RawClient) -> None:
    create_topic(client, "later")
    wait_for_coordinator(client, "later")
    commit_in_transaction(client, "later", {("later", 0): 5}, producer_id=1)
    assert commit(client, "later", {("later", 0): 3}) == {("later", 0): NONE}
    for index in range(2):
        write_markers(client, "__consumer_offsets", index, producer_id=1, commit=True)
    assert fetch_offsets(client, "later", {"later": [0]}) == {("later", 0): 3}


def test_pending_offsets_survive_a_restart(tmp_path: Path) -> None:
    with RunningBroker(tmp_path, SETTINGS) as broker, broker.client() as client:
        create_topic(client, "topic")
        wait_for_coordinator(client, "group")
        commit_in_transaction(client, "group", {("topic", 0): 5}, producer_id=1)
    with RunningBroker(tmp_path, SETTINGS) as broker, broker.client() as client:
        wait_for_coordinator(client, "group")
        assert stable_offset(client, "group", "topic") == f"error {UnstableOffsetCommit.code}"
        for index in range(2):
            write_markers(client, "__consumer_offsets", index, producer_id=1, commit=True)
    with RunningBroker(tmp_path, SETTINGS) as broker, broker.client() as client:
        wait_for_coordinator(client, "group")
        assert stable_offset(client, "group", "topic") == 5


def test_a_deleted_group_takes_its_pending_offsets_along(client: RawClient) -> None:
    create_topic(client, "gone")
    wait_for_coordinator(client, "gone")
    commit_in_transaction(client, "gone", {("gone", 0): 5}, producer_id=1)
    assert delete_groups(client, "gone") == {"gone": NONE}
    for index in range(2):
        write_markers(client, "__consumer_offsets", index, producer_id=1, commit=True)
    assert fetch_offsets(client, "gone", {"gone": [0]}) == {("gone", 0): -1}


@pytest.mark.parametrize("version", range(5))
def test_offsets_that_are_refused_one_by_one(client: RawClient, version: int) -> None:
    topic = f"partly-{version}"
    create_topic(client, topic)
    wait_for_coordinator(client, topic)
    offsets = {(topic, 0): 1, (topic, 1): 2, ("absent", 0): 3}
    assert commit_in_transaction(client, topic, offsets, version=version, producer_id=1) == {
        (topic, 0): NONE,
        (topic, 1): UnknownTopicOrPartition.code,
        ("absent", 0): UnknownTopicOrPartition.code,
    }
    assert commit_in_transaction(client, topic, {("absent", 0): 3}, version=version, producer_id=1) == {
        ("absent", 0): UnknownTopicOrPartition.code
    }
    assert commit_in_transaction(
        client, topic, {(topic, 0): 1}, version=version, producer_id=1, metadata="x" * 4097
    ) == {(topic, 0): OffsetMetadataTooLarge.code}


@pytest.mark.parametrize("version", range(5))
def test_producers_that_may_not_commit(client: RawClient, version: int) -> None:
    topic = f"fenced-{version}"
    create_topic(client, topic)
    wait_for_coordinator(client, topic)
    where = (topic, 0)
    assert commit_in_transaction(client, "", {where: 1}, version=version, producer_id=1) == {
        where: InvalidGroupId.code
    }
    commit_in_transaction(client, topic, {where: 1}, version=version, producer_id=20, producer_epoch=3)
    assert commit_in_transaction(
        client, topic, {where: 1}, version=version, producer_id=20, producer_epoch=2
    ) == {where: InvalidProducerEpoch.code}


@pytest.mark.parametrize("version", [3, 4])
def test_members_that_may_not_commit(client: RawClient, version: int) -> None:
    topic = f"members-{version}"
    create_topic(client, topic)
    wait_for_coordinator(client, topic)
    where = (topic, 0)

    def error(**options: Any) -> int:
        return commit_in_transaction(client, topic, {where: 1}, version=version, producer_id=1, **options)[
            where
        ]

    assert error(generation_id=0, member_id="nobody") == IllegalGeneration.code
    joined = join_alone(client, topic, instance_id="instance")
    assert error(joined=joined) == NONE
    # Who does not say for which member it commits is an older producer.
    assert error() == NONE
    assert error(member_id="nobody", generation_id=joined.generation_id) == UnknownMemberId.code
    assert error(member_id=joined.member_id, generation_id=joined.generation_id + 1) == IllegalGeneration.code
    assert (
        error(member_id="other", generation_id=joined.generation_id, instance_id="instance")
        == FencedInstanceId.code
    )


def test_markers_for_groups_whose_coordinator_is_elsewhere(tmp_path: Path) -> None:
    with RunningBroker(tmp_path, SETTINGS) as broker, broker.client() as client:
        wait_for_coordinator(client, "elsewhere")
        assert write_markers(client, "__consumer_offsets", 7, producer_id=1, commit=True) == {
            7: UnknownTopicOrPartition.code
        }

        async def unload() -> None:
            broker.server.broker.groups.shell_at(1).unload()

        listed(client)
        broker.call(unload)
        assert write_markers(client, "__consumer_offsets", 1, producer_id=1, commit=True) == {
            1: NotLeaderOrFollower.code
        }


@pytest.mark.parametrize(
    ("producer", "error"), [((-1, 0), InvalidProducerIdMapping), ((1, -1), InvalidProducerEpoch)]
)
def test_transactions_without_a_producer(
    client: RawClient, producer: tuple[int, int], error: type[InvalidProducerIdMapping | InvalidProducerEpoch]
) -> None:
    name = f"without-{error.code}"
    create_topic(client, name)
    wait_for_coordinator(client, name)
    options = {"producer_id": producer[0], "producer_epoch": producer[1]}
    assert write_markers(client, name, 0, commit=True, **options) == {0: error.code}
    assert latest_offset(client, name, isolation_level=0) == 0
    for version in range(6):
        assert commit_in_transaction(client, name, {(name, 0): 1}, version=version, **options) == {
            (name, 0): error.code
        }
    assert stable_offset(client, name, name) == -1
