"""Requests that cost far more than they weigh: whoever sends them waits, and nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.model import TimestampMs
from barnabas.protocol.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from barnabas.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.elect_leaders_request import ElectLeadersRequest
from barnabas.protocol.messages.end_txn_request import EndTxnRequest
from barnabas.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata_request import MetadataRequest
from barnabas.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas.records.builder import BatchBuilder
from barnabas.records.layout import MAGIC_V1, CompressionType
from tests.broker.group_requests import wait_for_coordinator
from tests.broker.record_requests import batch, create_topic, fetch_request, produce
from tests.broker.transaction_requests import add_offsets, init_producer, txn_offset_commit_request
from tests.clients.broker_process import BrokerProcess
from tests.hostile.stalls import IS_COMPILED, NORMAL_TOPIC, attackers, framed, normal_p99_ms
from tests.records.many_records import many_records
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

MIB = 1 << 20
NOW_MS = TimestampMs(1_700_000_000_000)
P99_MAX_MS = 50.0
# To take a request of 19,000 partitions apart, and to put the answer together, is one step each. Without a compiler
# each takes ten times as long.
WIDE_P99_MAX_MS = P99_MAX_MS if IS_COMPILED else 600.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("stalls") / "data") as running:
        with running.client() as client:
            create_topic(client, NORMAL_TOPIC)
            create_topic(client, "gzip", 60, compression_type="gzip")
            create_topic(client, "compacted", 60, cleanup_policy="compact")
            create_topic(client, "plain", 60)
            create_topic(client, "wide", 1_000)
        yield running
        assert "Traceback" not in running.log_text(), running.log_text()
        assert running.stop() == 0


def to_all_partitions(topic: str, records: bytes, version: int) -> bytes:
    data = [PartitionProduceData(index=index, records=records) for index in range(60)]
    request = ProduceRequest(
        acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )
    return framed("Produce", version, request)


def expanding(compression: CompressionType, size_bytes: int = 120 * MIB) -> bytes:
    """One record that becomes as large."""
    return batch(bytes(size_bytes), compression=compression)


def test_nothing(broker: BrokerProcess) -> None:
    """What the others are to be compared with."""
    assert normal_p99_ms(broker, "no attack") < P99_MAX_MS


def test_batches_that_expand_where_another_compression_is_asked_for(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    request = to_all_partitions("gzip", expanding(CompressionType.ZSTD), 9)
    assert len(request) < 240_000
    with attackers(broker, tmp_path, request, 3):
        assert normal_p99_ms(broker, "3 x 60 batches of zstd, 120 MiB each, to a topic of gzip") < P99_MAX_MS


def test_batches_that_expand_where_keys_are_looked_at(broker: BrokerProcess, tmp_path: Path) -> None:
    request = to_all_partitions("compacted", expanding(CompressionType.GZIP), 9)
    with attackers(broker, tmp_path, request, 2):
        assert normal_p99_ms(broker, "2 x 60 batches of gzip, 120 MiB each, compacted") < P99_MAX_MS
    request = to_all_partitions("compacted", many_records(1_000_000, CompressionType.ZSTD), 9)
    with attackers(broker, tmp_path, request, 2):
        assert normal_p99_ms(broker, "2 x 60 batches of 1,000,000 records, compacted") < P99_MAX_MS


def test_messages_of_an_old_format(broker: BrokerProcess, tmp_path: Path) -> None:
    """Messages of magic 1 are built anew, one by one."""
    messages = BatchBuilder(magic=MAGIC_V1, compression=CompressionType.GZIP)
    for _ in range(100_000):
        messages.append(NOW_MS, b"", b"")
    request = to_all_partitions("plain", bytes(messages.build()), 2)
    with attackers(broker, tmp_path, request, 2):
        assert normal_p99_ms(broker, "2 x 60 wrappers of 100,000 messages of magic 1") < P99_MAX_MS
    single = BatchBuilder(magic=MAGIC_V1)
    for _ in range(1_500):
        single.append(NOW_MS, b"", b"")
    request = to_all_partitions("plain", bytes(single.build()), 2)
    with attackers(broker, tmp_path, request, 2):
        assert normal_p99_ms(broker, "2 x 60 x 1,500 messages of magic 1") < P99_MAX_MS


def test_compaction_of_batches_that_expand(tmp_path: Path) -> None:
    """The cleaner's thread shares the interpreter with the event loop, and opens every batch twice."""
    keyed = BatchBuilder(compression=CompressionType.ZSTD)
    for index in range(50_000):
        keyed.append(NOW_MS, b"%d" % index, bytes(100))
    records = bytes(keyed.build())
    settings = {"log.cleaner.backoff.ms": "50", "log.cleaner.dedupe.buffer.size": str(32 * MIB)}
    with BrokerProcess(tmp_path / "data", settings) as broker:
        with broker.client() as client:
            create_topic(client, NORMAL_TOPIC)
            create_topic(
                client,
                "cleaned",
                cleanup_policy="compact",
                min_cleanable_dirty_ratio="0.001",
                segment_bytes=str(2 * len(records)),
            )
        data = [PartitionProduceData(index=0, records=records)]
        topic = TopicProduceData(name="cleaned", partition_data=data)
        request = framed("Produce", 9, ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[topic]))
        checkpoint = tmp_path / "data" / "cleaner-offset-checkpoint"
        with attackers(broker, tmp_path, request, 1):
            wait_until(checkpoint.exists, what="the first compaction")
            before = checkpoint.read_text()
            assert normal_p99_ms(broker, "compaction of batches of 50,000 records") < P99_MAX_MS
            assert checkpoint.read_text() != before, "nothing was compacted meanwhile"
        assert "Traceback" not in broker.log_text(), broker.log_text()


def test_fetches_by_old_clients(broker: BrokerProcess, tmp_path: Path) -> None:
    """Their records are converted to a format of their time."""
    with broker.client() as client:
        for _ in range(5):
            answer = produce(client, "plain", many_records(1_000_000, CompressionType.GZIP), partition=1)
            assert answer.error_code == 0
        request = fetch_request("plain", answer.base_offset, partition=1)
    with attackers(broker, tmp_path, framed("Fetch", 2, request), 3):
        assert normal_p99_ms(broker, "3 x fetches of version 2 of compressed batches") < P99_MAX_MS


def test_a_look_for_a_time_in_batches_that_expand(broker: BrokerProcess, tmp_path: Path) -> None:
    with broker.client() as client:
        for _ in range(20):
            assert produce(client, "plain", expanding(CompressionType.ZSTD), partition=2).error_code == 0
    asked = ListOffsetsPartition(partition_index=2, timestamp=1_700_000_000_000)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="plain", partitions=[asked])])
    with attackers(broker, tmp_path, framed("ListOffsets", 7, request), 3):
        assert normal_p99_ms(broker, "3 x ListOffsets by time in batches of 120 MiB") < P99_MAX_MS


def test_fetches_of_many_partitions(broker: BrokerProcess, tmp_path: Path) -> None:
    wanted = [FetchPartition(partition=index, partition_max_bytes=1_000) for index in range(19_000)]
    request = FetchRequest(
        max_wait_ms=0, session_epoch=-1, topics=[FetchTopic(topic="wide", partitions=wanted)]
    )
    with attackers(broker, tmp_path, framed("Fetch", 12, request), 6):
        assert normal_p99_ms(broker, "6 x fetches of 19,000 partitions") < WIDE_P99_MAX_MS
    request.max_wait_ms = 200
    request.min_bytes = MIB
    request.topics[0].partitions = wanted[:1_000]
    with attackers(broker, tmp_path, framed("Fetch", 12, request), 6):
        assert normal_p99_ms(broker, "6 x fetches that wait for 1,000 partitions") < WIDE_P99_MAX_MS


def test_metadata_of_many_partitions(broker: BrokerProcess, tmp_path: Path) -> None:
    with attackers(broker, tmp_path, framed("Metadata", 9, MetadataRequest(topics=None)), 6):
        assert normal_p99_ms(broker, "6 x metadata of 1,200 partitions") < WIDE_P99_MAX_MS


def test_looks_for_offsets_of_many_partitions(broker: BrokerProcess, tmp_path: Path) -> None:
    asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(19_000)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="wide", partitions=asked)])
    with attackers(broker, tmp_path, framed("ListOffsets", 7, request), 6):
        assert normal_p99_ms(broker, "6 x ListOffsets of 19,000 partitions") < WIDE_P99_MAX_MS


def test_offsets_of_many_partitions(broker: BrokerProcess, tmp_path: Path) -> None:
    """Committed and fetched: 19,000 of them, though there are only 1,000 partitions."""
    with broker.client() as client:
        wait_for_coordinator(client, "wide")
    indexes = [number % 1_000 for number in range(19_000)]
    offsets = [OffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in indexes]
    commit = OffsetCommitRequest(
        group_id="wide", topics=[OffsetCommitRequestTopic(name="wide", partitions=offsets)]
    )
    with attackers(broker, tmp_path, framed("OffsetCommit", 8, commit), 3):
        assert normal_p99_ms(broker, "3 x commits of 19,000 offsets") < WIDE_P99_MAX_MS
    topics = [OffsetFetchRequestTopics(name="wide", partition_indexes=indexes)]
    fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="wide", topics=topics)])
    with attackers(broker, tmp_path, framed("OffsetFetch", 8, fetch), 6):
        assert normal_p99_ms(broker, "6 x fetches of 19,000 offsets") < WIDE_P99_MAX_MS


def test_deletions_in_many_partitions(broker: BrokerProcess, tmp_path: Path) -> None:
    partitions = [
        DeleteRecordsPartition(partition_index=number % 1_000, offset=0) for number in range(19_000)
    ]
    request = DeleteRecordsRequest(
        timeout_ms=30_000, topics=[DeleteRecordsTopic(name="wide", partitions=partitions)]
    )
    with attackers(broker, tmp_path, framed("DeleteRecords", 2, request), 6):
        assert normal_p99_ms(broker, "6 x deletions in 19,000 partitions") < WIDE_P99_MAX_MS


def test_topics_that_are_created_and_deleted(broker: BrokerProcess, tmp_path: Path) -> None:
    for topics, partitions in ((300, 3), (1, 5_000)):
        names = [f"created-{number}" for number in range(topics)]
        create = CreateTopicsRequest(
            topics=[
                CreatableTopic(name=each, num_partitions=partitions, replication_factor=1) for each in names
            ],
            timeout_ms=60_000,
        )
        delete = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=each) for each in names], timeout_ms=60_000
        )
        requests = framed("CreateTopics", 7, create) + framed("DeleteTopics", 6, delete)
        with attackers(broker, tmp_path, requests, 1):
            what = f"{topics:,} topics of {partitions:,} partitions, created and deleted"
            assert normal_p99_ms(broker, what) < WIDE_P99_MAX_MS


def test_transactions_over_many_partitions(broker: BrokerProcess, tmp_path: Path) -> None:
    """They are added, and then each gets a marker."""
    with broker.client() as client:
        producer_id, epoch = init_producer(client, "wide")
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="wide",
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="wide", partitions=list(range(1_000)))],
    )
    end = EndTxnRequest(
        transactional_id="wide", producer_id=producer_id, producer_epoch=epoch, committed=True
    )
    requests = framed("AddPartitionsToTxn", 3, add) + framed("EndTxn", 3, end)
    with attackers(broker, tmp_path, requests, 1):
        assert normal_p99_ms(broker, "transactions over 1,000 partitions") < WIDE_P99_MAX_MS
    topic = WritableTxnMarkerTopic(name="wide", partition_indexes=list(range(1_000)))
    markers = [
        WritableTxnMarker(producer_id=number, transaction_result=True, topics=[topic]) for number in range(15)
    ]
    request = framed("WriteTxnMarkers", 1, WriteTxnMarkersRequest(markers=markers))
    with attackers(broker, tmp_path, request, 3):
        assert normal_p99_ms(broker, "3 x 15,000 markers") < WIDE_P99_MAX_MS


def test_offsets_of_many_partitions_in_a_transaction(broker: BrokerProcess, tmp_path: Path) -> None:
    with broker.client() as client:
        producer_id, epoch = producer = init_producer(client, "offsets")
        wait_for_coordinator(client, "offsets")
        add_offsets(client, "offsets", producer, "offsets")
    commit = txn_offset_commit_request(
        "offsets",
        {("wide", index): 1 for index in range(1_000)},
        producer_id=producer_id,
        producer_epoch=epoch,
        transactional_id="offsets",
    )
    commit.topics = commit.topics * 19
    with attackers(broker, tmp_path, framed("TxnOffsetCommit", 3, commit), 3):
        assert normal_p99_ms(broker, "3 x 19,000 offsets in a transaction") < WIDE_P99_MAX_MS


def test_offsets_with_much_metadata(broker: BrokerProcess, tmp_path: Path) -> None:
    with broker.client() as client:
        wait_for_coordinator(client, "notes")
    offsets = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=1, committed_metadata="ä" * 4_000
        )
        for index in range(1_000)
    ]
    topics = [OffsetCommitRequestTopic(name="wide", partitions=offsets)]
    commit = framed("OffsetCommit", 8, OffsetCommitRequest(group_id="notes", topics=topics))
    fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="notes", topics=None)])
    with attackers(broker, tmp_path, commit + framed("OffsetFetch", 8, fetch), 1):
        assert normal_p99_ms(broker, "1,000 offsets with 8 KB of metadata each") < WIDE_P99_MAX_MS


def test_changes_of_many_settings(broker: BrokerProcess, tmp_path: Path) -> None:
    for number in range(2):
        resources = [
            AlterConfigsResource(
                resource_type=32,
                resource_name=f"group-{each}",
                configs=[AlterableConfig(name="consumer.session.timeout.ms", value=str(45_000 + number))],
            )
            for each in range(3_000)
        ]
        entries = [
            EntryData(
                entity=[EntityData(entity_type="client-id", entity_name=f"client-{each}")],
                ops=[OpData(key="producer_byte_rate", value=1e9 + number)],
            )
            for each in range(3_000)
        ]
        requests = (
            framed("IncrementalAlterConfigs", 1, IncrementalAlterConfigsRequest(resources=resources))
            + framed("AlterClientQuotas", 1, AlterClientQuotasRequest(entries=entries))
            + framed("ElectLeaders", 2, ElectLeadersRequest(topic_partitions=None))
        )
        with attackers(broker, tmp_path, requests, 1):
            assert normal_p99_ms(broker, "settings of 3,000 groups and quotas") < WIDE_P99_MAX_MS


def test_a_bomb_is_refused_with_an_error_that_says_so(broker: BrokerProcess) -> None:
    bomb = batch(bytes(160 * MIB), compression=CompressionType.ZSTD)
    with broker.client() as client:
        before_bytes = broker.rss_bytes()
        answer = produce(client, "compacted", bomb)
        # Clients split a batch that is too large, and send it again.
        assert answer.error_code == 10, answer
        assert "expand" in answer.error_message
        assert broker.rss_bytes() - before_bytes < 30 * MIB
