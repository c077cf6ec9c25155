"""Records that take long to validate, convert or search: the worker process does it, and clients notice nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.errors import RequestTimedOut
from barnabas.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records.header import iterate_headers
from barnabas.records.layout import MAGIC_V1, CompressionType
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import (
    batch,
    create_topic,
    fetch,
    fetch_request,
    produce,
    produce_request,
    values,
)
from tests.broker.running import RunningBroker
from tests.records.many_records import many_records
from tests.waiting import wait_until

# Well above what is opened on the event loop, and well below what a batch may expand to.
LARGE = [b"%06d" % number + bytes(994) for number in range(2_000)]
SMALL = b"small"
TIMESTAMP = 1_700_000_000_000


@pytest.fixture(scope="module")
def large() -> bytes:
    return batch(*LARGE, compression=CompressionType.ZSTD)


def workers(parent: int = os.getpid()) -> list[int]:
    """Worker processes of this one."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
            command = status.with_name("cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == parent and b"barnabas.records.worker" in command and fields[0] != "Z":
            found.append(int(status.parent.name))
    return found


def fetched_values(client: RawClient, topic: str, offset: int, **options: int) -> list[bytes | None]:
    return values(fetch(client, topic, offset, max_bytes=8 << 20, **options).records)


def test_a_large_batch_is_converted(client: RawClient, large: bytes) -> None:
    create_topic(client, "gzip", compression_type="gzip")
    assert produce(client, "gzip", batch(SMALL)).base_offset == 0
    answer = produce(client, "gzip", large)
    assert (answer.error_code, answer.base_offset) == (0, 1), answer
    assert produce(client, "gzip", batch(SMALL)).base_offset == 1 + len(LARGE)
    data = fetch(client, "gzip", 1, max_bytes=8 << 20).records
    header = iterate_headers(bytes(data))[0]
    assert (header.compression, header.base_offset) == (CompressionType.GZIP, 1)
    assert header.partition_leader_epoch >= 0
    assert values(data) == [*LARGE, SMALL]


def test_a_large_batch_for_a_compacted_topic(client: RawClient, large: bytes) -> None:
    create_topic(client, "compacted", cleanup_policy="compact")
    assert produce(client, "compacted", large).base_offset == 0
    assert fetched_values(client, "compacted", 0) == LARGE
    refused = produce(client, "compacted", many_records(100_000, CompressionType.GZIP)[:-1] + b"x")
    assert refused.error_code != 0
    assert produce(client, "compacted", batch(SMALL)).base_offset == len(LARGE)


@pytest.mark.slow
def test_large_batches_of_old_formats(client: RawClient) -> None:
    create_topic(client, "old")
    old = batch(*LARGE, magic=MAGIC_V1, compression=CompressionType.GZIP)
    assert produce(client, "old", old, version=2).base_offset == 0
    assert fetched_values(client, "old", 0) == LARGE
    # And the other way round.
    found = fetch(client, "old", 0, version=2, max_bytes=8 << 20)
    assert {header.magic for header in iterate_headers(bytes(found.records))} == {MAGIC_V1}
    assert values(found.records) == LARGE


@pytest.mark.slow
def test_all_partitions_of_a_request_in_its_order(client: RawClient, large: bytes) -> None:
    """One partition that is named twice shows the order."""
    create_topic(client, "order", 2, compression_type="gzip")
    pieces = [(0, large), (1, batch(SMALL)), (0, batch(SMALL)), (1, large)]
    data = [PartitionProduceData(index=index, records=records) for index, records in pieces]
    request = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name="order", partition_data=data)]
    )
    response = client.ask("Produce", 9, request)
    answers = response.responses[0].partition_responses
    assert [(each.index, each.error_code, each.base_offset) for each in answers] == [
        (0, 0, 0),
        (1, 0, 0),
        (0, 0, len(LARGE)),
        (1, 0, 1),
    ]
    assert fetched_values(client, "order", 0) == [*LARGE, SMALL]
    assert fetched_values(client, "order", 0, partition=1) == [SMALL, *LARGE]


def test_an_idempotent_producer(client: RawClient) -> None:
    """Sequences count as ever, and a batch that is sent again is recognised."""
    create_topic(client, "idempotent", compression_type="gzip")
    first = batch(*LARGE, compression=CompressionType.ZSTD, base_sequence=0, producer_id=77, producer_epoch=0)
    second = batch(SMALL, base_sequence=len(LARGE), producer_id=77, producer_epoch=0)
    for records in (first, second):
        client.send("Produce", 9, produce_request("idempotent", records))
    assert [client.receive_frame() for _ in range(2)]
    assert produce(client, "idempotent", first).base_offset == 0
    assert produce(client, "idempotent", second).base_offset == len(LARGE)
    assert fetched_values(client, "idempotent", 0) == [*LARGE, SMALL]


def test_without_acknowledgement(client: RawClient, broker: RunningBroker, large: bytes) -> None:
    create_topic(client, "unacknowledged", compression_type="gzip")
    with broker.client() as other:
        other.send("Produce", 9, produce_request("unacknowledged", large, acks=0))
        other.send("Produce", 9, produce_request("unacknowledged", batch(SMALL), acks=0))
        # Answers come in order: behind this one both are written.
        assert produce(other, "unacknowledged", batch(SMALL)).base_offset == len(LARGE) + 1
    assert fetched_values(client, "unacknowledged", 0) == [*LARGE, SMALL, SMALL]


@pytest.mark.slow
def test_others_write_to_the_partition_meanwhile(
    client: RawClient, broker: RunningBroker, large: bytes
) -> None:
    create_topic(client, "shared", compression_type="gzip")
    with broker.client() as other:
        offsets = []
        for _ in range(5):
            other.send("Produce", 9, produce_request("shared", large))
            offsets += [produce(client, "shared", batch(SMALL)).base_offset for _ in range(5)]
            other.receive_frame()
    found = fetched_values(client, "shared", 0)
    small_at = [offset for offset, value in enumerate(found) if value == SMALL]
    assert small_at == offsets
    assert [value for value in found if value != SMALL] == LARGE * 5


def test_a_time_is_found_in_a_large_batch(client: RawClient, large: bytes) -> None:
    create_topic(client, "times")
    for _ in range(3):
        assert produce(client, "times", large).error_code == 0

    def find(timestamp: int) -> tuple[int, int]:
        asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name="times", partitions=[asked])]
        )
        answer = client.ask("ListOffsets", 7, request).topics[0].partitions[0]
        assert answer.error_code == 0
        return answer.timestamp, answer.offset

    assert find(TIMESTAMP + 1_234) == (TIMESTAMP + 1_234, 1_234)
    assert find(TIMESTAMP - 5) == (TIMESTAMP, 0)
    assert find(TIMESTAMP + len(LARGE)) == (-1, -1)
    assert find(-3) == (TIMESTAMP + len(LARGE) - 1, len(LARGE) - 1)


def test_an_old_fetch_does_not_wait_for_what_is_there(client: RawClient) -> None:
    create_topic(client, "zstd")
    assert produce(client, "zstd", batch(*LARGE, compression=CompressionType.ZSTD)).error_code == 0
    found = fetch(client, "zstd", 0, version=2, max_bytes=8 << 20)
    # Version 2 knows no zstd.
    assert (found.error_code, bytes(found.records)) == (76, b"")


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[RunningBroker]:
    others = set(workers())
    with RunningBroker(tmp_path / "data") as running:
        yield running
    assert set(workers()) == others


def wait_for_worker(others: set[int]) -> int:
    return wait_until(lambda: [pid for pid in workers() if pid not in others])[0]


def test_a_worker_that_is_killed_and_one_that_runs_when_the_broker_stops(
    own_broker: RunningBroker, large: bytes
) -> None:
    others = set(workers())
    endless = many_records(3_000_000, CompressionType.ZSTD)
    with own_broker.client() as client:
        create_topic(client, "gzip", compression_type="gzip")
        client.send("Produce", 9, produce_request("gzip", endless))
        killed = wait_for_worker(others)
        os.kill(killed, signal.SIGKILL)
        client.receive_frame()
        answer = produce(client, "gzip", large)
        assert (answer.error_code, answer.base_offset) == (0, 0)
        client.send("Produce", 9, produce_request("gzip", endless))
        wait_for_worker(others)


def test_a_request_has_a_share_of_the_worker(
    own_broker: RunningBroker, large: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.broker.requests.conversions.REQUEST_SHARE_NS", 1)
    with own_broker.client() as client:
        create_topic(client, "gzip", 3, compression_type="gzip")
        data = [PartitionProduceData(index=index, records=large) for index in range(3)]
        data.append(PartitionProduceData(index=2, records=batch(SMALL)))
        request = ProduceRequest(
            acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(name="gzip", partition_data=data)]
        )
        answers = client.ask("Produce", 9, request).responses[0].partition_responses
        assert [each.error_code for each in answers] == [0, RequestTimedOut.code, RequestTimedOut.code, 0]


def test_a_queue_that_is_full(
    own_broker: RunningBroker, large: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.broker.requests.conversions.WAITING_MAX_JOBS", 0)
    with own_broker.client() as client:
        create_topic(client, "gzip", compression_type="gzip")
        assert produce(client, "gzip", large).error_code == RequestTimedOut.code
        assert produce(client, "gzip", batch(SMALL)).base_offset == 0
        create_topic(client, "plain")
        assert produce(client, "plain", batch(*LARGE, compression=CompressionType.GZIP)).error_code == 0
        # What cannot be converted now is asked for again.
        answer = (
            client.ask("Fetch", 2, fetch_request("plain", 0, max_bytes=8 << 20)).responses[0].partitions[0]
        )
        assert (answer.error_code, bytes(answer.records)) == (0, b"")
