"""Requests of a partition's side of transactions, with the fields that tests care about."""

from __future__ import annotations

import time
from typing import Any

from barnabas.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
)
from barnabas.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from barnabas.protocol.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from barnabas.protocol.messages.end_txn_request import EndTxnRequest
from barnabas.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id_request import InitProducerIdRequest
from barnabas.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas.records.header import iterate_headers
from barnabas.records.reader import decode_batch
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import batch, fetch, produce_request
from tests.waiting import wait_until

READ_COMMITTED = 1


def new_batch(*values: bytes, **options: Any) -> bytes:
    """Markers have the time of the broker. Were the records years older, the marker would begin a segment."""
    return batch(*values, **{"timestamp": time.time_ns() // 1_000_000, **options})


def data_values(records: bytes | memoryview | None) -> list[bytes | None]:
    """The values in the records of an answer, markers left out."""
    data = bytes(records or b"")
    found: list[bytes | None] = []
    position = 0
    for header in iterate_headers(data):
        if not header.is_control:
            found += [record.value for record in decode_batch(data, position, header=header)]
        position += header.size_bytes
    return found


def produce_in_transaction(
    client: RawClient,
    topic: str,
    *values: bytes,
    producer_id: int,
    sequence: int,
    producer_epoch: int = 0,
    transactional_id: str | None = "transaction",
    version: int = 11,
    partition: int = 0,
    acks: int = -1,
    topic_id: bytes = bytes(16),
) -> Any:
    """The partition's answer."""
    records = new_batch(
        *values,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    request = produce_request(topic, records, partition=partition, acks=acks, topic_id=topic_id)
    request.transactional_id = transactional_id
    return client.ask("Produce", version, request).responses[0].partition_responses[0]


def write_markers(
    client: RawClient,
    topic: str,
    *partitions: int,
    producer_id: int,
    commit: bool,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
    version: int = 2,
) -> dict[int, int]:
    """The error of each partition."""
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=list(partitions))],
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
    )
    [answer] = client.ask("WriteTxnMarkers", version, WriteTxnMarkersRequest(markers=[marker])).markers
    assert answer.producer_id == producer_id
    [answers] = answer.topics
    assert answers.name == topic
    return {each.partition_index: each.error_code for each in answers.partitions}


def read_committed(client: RawClient, topic: str, offset: int = 0, **options: Any) -> Any:
    """The partition's answer."""
    return fetch(client, topic, offset, isolation_level=READ_COMMITTED, **options)


def describe_producers(client: RawClient, topic: str, partition: int = 0) -> Any:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[partition])])
    [answers] = client.ask("DescribeProducers", 0, request).topics
    assert answers.name == topic
    [answer] = answers.partitions
    assert answer.partition_index == partition
    return answer


def latest_offset(client: RawClient, topic: str, *, isolation_level: int, version: int = 7) -> int:
    return offset_for_time(client, topic, -1, isolation_level=isolation_level, version=version)


def offset_for_time(
    client: RawClient, topic: str, timestamp: int, *, isolation_level: int, version: int = 7
) -> int:
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[
            ListOffsetsTopic(
                name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
            )
        ],
    )
    [answer] = client.ask("ListOffsets", version, request).topics[0].partitions
    assert answer.error_code == 0
    offset: int = answer.offset
    return offset


def delete_records(client: RawClient, topic: str, offset: int) -> Any:
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
            )
        ],
        timeout_ms=30_000,
    )
    return client.ask("DeleteRecords", 2, request).topics[0].partitions[0]


def txn_offset_commit_request(
    group_id: str,
    offsets: dict[tuple[str, int], int],
    *,
    producer_id: int,
    producer_epoch: int = 0,
    transactional_id: str = "transaction",
    joined: Any = None,
    member_id: str = "",
    generation_id: int = -1,
    instance_id: str | None = None,
    metadata: str = "",
) -> TxnOffsetCommitRequest:
    topics: dict[str, TxnOffsetCommitRequestTopic] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, TxnOffsetCommitRequestTopic(name=topic)).partitions.append(
            TxnOffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=metadata
            )
        )
    request = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        topics=list(topics.values()),
        member_id=member_id,
        generation_id=generation_id,
        group_instance_id=instance_id,
    )
    if joined is not None:
        request.member_id, request.generation_id = joined.member_id, joined.generation_id
    return request


def commit_in_transaction(
    client: RawClient,
    group_id: str,
    offsets: dict[tuple[str, int], int],
    *,
    version: int = 4,
    **options: Any,
) -> dict[tuple[str, int], int]:
    """The error of each partition."""
    response = client.ask("TxnOffsetCommit", version, txn_offset_commit_request(group_id, offsets, **options))
    return {
        (topic.name, partition.partition_index): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }


def stable_offset(client: RawClient, group_id: str, topic: str, partition: int = 0) -> int | str:
    """What is committed, or the error."""
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=group_id,
                topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])],
            )
        ],
        require_stable=True,
    )
    [answer] = client.ask("OffsetFetch", 9, request).groups[0].topics[0].partitions
    return answer.committed_offset if answer.error_code == 0 else f"error {answer.error_code}"


def init_producer(client: RawClient, transactional_id: str, *, timeout_ms: int = 600_000) -> tuple[int, int]:
    """The id and epoch of a producer; has the topic of transactions made, and waits for their coordinator."""
    client.ask("FindCoordinator", 3, FindCoordinatorRequest(key=transactional_id, key_type=1))
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    answers: list[Any] = []

    def is_done() -> bool:
        answers.append(client.ask("InitProducerId", 5, request))
        return answers[-1].error_code not in (
            CoordinatorNotAvailable.code,
            CoordinatorLoadInProgress.code,
            NotCoordinator.code,
            ConcurrentTransactions.code,
        )

    wait_until(is_done)
    assert answers[-1].error_code == 0, answers[-1]
    return answers[-1].producer_id, answers[-1].producer_epoch


def add_partitions(
    client: RawClient, transactional_id: str, producer: tuple[int, int], topic: str, *partitions: int
) -> None:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
    )
    response = client.ask("AddPartitionsToTxn", 3, request)
    [answers] = response.results_by_topic_v3_and_below
    codes = {each.partition_error_code for each in answers.results_by_partition}
    assert codes == {0}, response


def add_offsets(client: RawClient, transactional_id: str, producer: tuple[int, int], group_id: str) -> None:
    request = AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        group_id=group_id,
    )
    assert client.ask("AddOffsetsToTxn", 3, request).error_code == 0


def end_transaction(
    client: RawClient,
    transactional_id: str,
    producer: tuple[int, int],
    *,
    commit: bool,
    version: int = 4,
) -> Any:
    return client.ask(
        "EndTxn",
        version,
        EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=commit,
        ),
    )
