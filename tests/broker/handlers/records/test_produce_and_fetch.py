"""Produce and Fetch against a running broker, in every version, down to the error codes."""

from __future__ import annotations

import threading
import time

import pytest

from barnabas import errors
from barnabas.model import TopicPartition
from barnabas.protocol.apis import api_for_name
from barnabas.protocol.messages.fetch_request import FetchRequest
from barnabas.protocol.requests import decode_response
from barnabas.records.layout import MAGIC_V0, MAGIC_V1, MAGIC_V2, CompressionType
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
from tests.broker.transaction_requests import delete_records, offset_for_time
from tests.waiting import wait_until


@pytest.mark.parametrize("version", range(14))
def test_every_version_of_produce(client: RawClient, version: int) -> None:
    topic = f"produce-v{version}"
    topic_id = create_topic(client, topic).topic_id
    magic = MAGIC_V2 if version >= 3 else (MAGIC_V1 if version == 2 else MAGIC_V0)
    for expected_offset in (0, 3):
        answer = produce(
            client,
            topic if version < 13 else "",
            batch(b"a", b"b", b"c", magic=magic),
            version=version,
            topic_id=topic_id if version >= 13 else bytes(16),
        )
        assert answer.error_code == 0
        assert answer.base_offset == expected_offset
    assert values(fetch(client, topic, 0).records) == [b"a", b"b", b"c"] * 2


@pytest.mark.parametrize("version", range(19))
def test_every_version_of_fetch(client: RawClient, version: int) -> None:
    topic = f"fetch-v{version}"
    topic_id = create_topic(client, topic).topic_id
    produce(client, topic, batch(b"a", b"b", b"c"))
    produce(client, topic, batch(b"d", b"e", compression=CompressionType.GZIP))
    answer = fetch(
        client,
        topic if version < 13 else "",
        0,
        version=version,
        topic_id=topic_id if version >= 13 else bytes(16),
    )
    assert answer.error_code == 0
    assert answer.high_watermark == 5
    assert values(answer.records) == [b"a", b"b", b"c", b"d", b"e"]
    assert bytes(answer.records)[16] == (
        MAGIC_V2 if version >= 4 else (MAGIC_V1 if version >= 2 else MAGIC_V0)
    )


@pytest.mark.parametrize("compression", list(CompressionType))
def test_compressions_come_back_as_they_went_in(client: RawClient, compression: CompressionType) -> None:
    topic = f"compressed-{compression.label}"
    create_topic(client, topic)
    sent = batch(b"x" * 1_000, b"y" * 1_000, compression=compression)
    assert produce(client, topic, sent).error_code == 0
    received = bytes(fetch(client, topic, 0).records)
    assert received[21:] == sent[21:]


def test_a_fetch_from_the_middle_returns_the_whole_batch(client: RawClient) -> None:
    create_topic(client, "middle")
    produce(client, "middle", batch(b"a", b"b", b"c"))
    produce(client, "middle", batch(b"d"))
    assert values(fetch(client, "middle", 1).records) == [b"a", b"b", b"c", b"d"]
    assert values(fetch(client, "middle", 3).records) == [b"d"]
    assert values(fetch(client, "middle", 4).records) == []


@pytest.mark.parametrize("offset", [-1, 2, 1_000])
def test_an_offset_out_of_range(client: RawClient, offset: int) -> None:
    topic = f"range{offset}"
    create_topic(client, topic)
    produce(client, topic, batch(b"a"))
    answer = fetch(client, topic, offset, max_wait_ms=60_000)
    assert answer.error_code == errors.OffsetOutOfRange.code
    assert answer.high_watermark == -1


def test_the_first_batch_is_always_whole_and_the_rest_has_to_fit(client: RawClient) -> None:
    create_topic(client, "large")
    for _ in range(3):
        produce(client, "large", batch(b"x" * 10_000))
    assert len(values(fetch(client, "large", 0, max_bytes=100).records)) == 1
    assert len(values(fetch(client, "large", 0, max_bytes=25_000).records)) == 2
    cut = fetch(client, "large", 0, version=2, max_bytes=100).records
    assert len(cut) == 100
    assert int.from_bytes(cut[8:12], "big") > 100


def test_a_fetch_waits_for_bytes_and_is_woken_by_an_append(broker: RunningBroker, client: RawClient) -> None:
    create_topic(client, "wait")
    with broker.client() as consumer:
        consumer.send("Fetch", 12, fetch_request("wait", 0, max_wait_ms=60_000))
        produce(client, "wait", batch(b"a"))
        started_s = time.monotonic()
        assert consumer.receive_frame()
        assert time.monotonic() - started_s < 50


def test_a_fetch_that_gets_nothing_answers_after_its_time(client: RawClient) -> None:
    create_topic(client, "nothing")
    started_s = time.monotonic()
    assert values(fetch(client, "nothing", 0, max_wait_ms=120).records) == []
    assert time.monotonic() - started_s >= 0.115


def test_a_fetch_does_not_wait_on_for_a_peer_that_is_gone(broker: RunningBroker, client: RawClient) -> None:
    create_topic(client, "abandoned")
    purgatory = broker.server.broker.replicas.delayed.fetches
    key = TopicPartition("abandoned", 0)
    with broker.client() as consumer:
        consumer.send("Fetch", 12, fetch_request("abandoned", 0, max_wait_ms=2**31 - 1))
        wait_until(lambda: purgatory.watches(key))
        [waiting] = purgatory._watchers[key]
        assert not waiting.is_completed
    wait_until(lambda: waiting.is_completed)


def test_a_peer_that_sends_nothing_more_gets_its_answer_at_once(client: RawClient) -> None:
    create_topic(client, "half-closed")
    produce(client, "half-closed", batch(b"a"))
    client.send("Fetch", 12, fetch_request("half-closed", 0, max_wait_ms=2**31 - 1, min_bytes=1_000_000))
    client.end()
    answer = decode_response(api_for_name("Fetch"), 12, client.receive_frame())
    [partition] = answer.body.responses[0].partitions
    assert values(partition.records) == [b"a"]
    assert client.is_closed_by_broker()


def test_min_bytes_are_waited_for(broker: RunningBroker, client: RawClient) -> None:
    create_topic(client, "min-bytes")
    answers: list[int] = []

    def consume() -> None:
        with broker.client() as consumer:
            answer = fetch(consumer, "min-bytes", 0, max_wait_ms=60_000, min_bytes=30_000)
            answers.append(len(values(answer.records)))

    waiting = threading.Thread(target=consume)
    waiting.start()
    for _ in range(4):
        produce(client, "min-bytes", batch(b"x" * 10_000))
    waiting.join(60)
    assert answers
    assert 3 <= answers[0] <= 4


def test_sessions_tell_only_what_is_new(client: RawClient) -> None:
    create_topic(client, "session")
    produce(client, "session", batch(b"a"))
    opened = client.ask("Fetch", 12, fetch_request("session", 0, session_epoch=0))
    assert opened.session_id > 0
    assert values(opened.responses[0].partitions[0].records) == [b"a"]

    def next_fetch(epoch: int, *requests: FetchRequest) -> FetchRequest:
        request = requests[0] if requests else FetchRequest(replica_id=-1, max_bytes=1 << 20)
        request.session_id, request.session_epoch = opened.session_id, epoch
        return request

    moved_on = client.ask("Fetch", 12, next_fetch(1, fetch_request("session", 1)))
    assert moved_on.responses == []
    produce(client, "session", batch(b"b"))
    news = client.ask("Fetch", 12, next_fetch(2))
    assert values(news.responses[0].partitions[0].records) == [b"b"]
    wrong = client.ask("Fetch", 12, next_fetch(9))
    assert wrong.error_code == errors.InvalidFetchSessionEpoch.code
    unknown = FetchRequest(replica_id=-1, session_id=opened.session_id ^ 1, session_epoch=3)
    assert client.ask("Fetch", 12, unknown).error_code == errors.FetchSessionIdNotFound.code


def test_what_is_not_there(client: RawClient) -> None:
    assert produce(client, "nowhere", batch(b"a")).error_code == errors.UnknownTopicOrPartition.code
    assert fetch(client, "nowhere", 0).error_code == errors.UnknownTopicOrPartition.code
    assert fetch(client, "", 0, version=13, topic_id=b"x" * 16).error_code == errors.UnknownTopicId.code
    answer = produce(client, "", batch(b"a"), version=13, topic_id=b"x" * 16)
    assert answer.error_code == errors.UnknownTopicId.code
    create_topic(client, "one-partition")
    answer = produce(client, "one-partition", batch(b"a"), partition=7)
    assert answer.error_code == errors.UnknownTopicOrPartition.code


def test_internal_topics_are_written_to_by_the_broker_alone(broker: RunningBroker, client: RawClient) -> None:
    create_topic(client, "__consumer_offsets")
    assert produce(client, "__consumer_offsets", batch(b"a")).error_code == errors.InvalidTopicException.code
    with broker.client("__admin_client") as admin:
        assert produce(admin, "__consumer_offsets", batch(b"a"), acks=1).error_code == 0


def test_records_of_internal_topics_are_kept(client: RawClient) -> None:
    for topic in ("__consumer_offsets", "__transaction_state"):
        answer = delete_records(client, topic, -1)
        assert (answer.error_code, answer.low_watermark) == (errors.InvalidTopicException.code, -1)


def test_an_empty_log_has_a_start_and_an_end(client: RawClient) -> None:
    create_topic(client, "empty")

    def offsets() -> list[int]:
        special = {-1: 1, -2: 1, -4: 8, -5: 9, -6: 11}
        return [
            offset_for_time(client, "empty", timestamp, isolation_level=0, version=version)
            for timestamp, version in special.items()
        ]

    assert offsets() == [0, 0, 0, -1, -1]
    produce(client, "empty", batch(b"one", b"two"))
    assert delete_records(client, "empty", -1).low_watermark == 2
    assert offsets() == [2, 2, 2, -1, -1]


def test_leader_epochs_are_checked(client: RawClient) -> None:
    create_topic(client, "epochs")
    assert fetch(client, "epochs", 0, current_leader_epoch=0).error_code == 0
    assert fetch(client, "epochs", 0, current_leader_epoch=5).error_code == errors.UnknownLeaderEpoch.code


@pytest.mark.parametrize("acks", [-1, 1])
def test_acknowledged(client: RawClient, acks: int) -> None:
    create_topic(client, f"acks{acks}")
    assert produce(client, f"acks{acks}", batch(b"a"), acks=acks).error_code == 0


def test_acks_that_there_are_not(client: RawClient) -> None:
    create_topic(client, "acks2")
    assert produce(client, "acks2", batch(b"a"), acks=2).error_code == errors.InvalidRequiredAcks.code
    assert values(fetch(client, "acks2", 0).records) == []


def test_unacknowledged_records_are_written_and_failures_close_the_connection(broker: RunningBroker) -> None:
    with broker.client() as client:
        create_topic(client, "acks0")
        client.send("Produce", 9, produce_request("acks0", batch(b"a"), acks=0))
        client.send("Produce", 9, produce_request("acks0", batch(b"b"), acks=0))
        assert values(fetch(client, "acks0", 0).records) == [b"a", b"b"]
        client.send("Produce", 9, produce_request("nowhere", batch(b"a"), acks=0))
        assert client.is_closed_by_broker()


def test_bad_records_are_refused_and_leave_nothing(client: RawClient) -> None:
    create_topic(client, "bad")
    good = batch(b"a", b"b")
    flipped = bytearray(good)
    flipped[-1] ^= 1
    assert produce(client, "bad", bytes(flipped)).error_code == errors.CorruptMessage.code
    assert produce(client, "bad", good[:-1]).error_code == errors.InvalidRecord.code
    assert produce(client, "bad", None).error_code == errors.InvalidRecord.code
    assert produce(client, "bad", good + good).error_code == errors.InvalidRecord.code
    assert (
        produce(client, "bad", batch(b"a", magic=MAGIC_V1), version=3).error_code == errors.InvalidRecord.code
    )
    zstd = batch(b"a", compression=CompressionType.ZSTD)
    assert produce(client, "bad", zstd, version=6).error_code == errors.UnsupportedCompressionType.code
    assert fetch(client, "bad", 0).high_watermark == 0
    assert produce(client, "bad", good).base_offset == 0


def test_records_larger_than_the_topic_allows(client: RawClient) -> None:
    create_topic(client, "small-messages", max_message_bytes="1000")
    assert produce(client, "small-messages", batch(b"x" * 2_000)).error_code == errors.MessageTooLarge.code
    assert produce(client, "small-messages", batch(b"x" * 200)).error_code == 0


def test_idempotent_producers(client: RawClient) -> None:
    create_topic(client, "idempotent")

    def send(sequence: int, *data: bytes, epoch: int = 0) -> tuple[int, int]:
        records = batch(*data, producer_id=4_711, producer_epoch=epoch, base_sequence=sequence)
        answer = produce(client, "idempotent", records, acks=-1)
        return answer.error_code, answer.base_offset

    assert send(0, b"a", b"b") == (0, 0)
    assert send(2, b"c") == (0, 2)
    assert send(0, b"a", b"b") == (0, 0)
    assert send(9, b"late")[0] == errors.OutOfOrderSequenceNumber.code
    assert send(0, b"d", epoch=1) == (0, 3)
    assert send(3, b"old epoch")[0] == errors.InvalidProducerEpoch.code
    assert values(fetch(client, "idempotent", 0).records) == [b"a", b"b", b"c", b"d"]


def test_data_survives_a_restart(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("restart")
    with RunningBroker(directory) as running, running.client() as client:
        topic_id = create_topic(client, "kept", 3).topic_id
        for partition in range(3):
            produce(client, "kept", batch(b"p%d" % partition), partition=partition)
    with RunningBroker(directory) as running, running.client() as client:
        for partition in range(3):
            answer = fetch(client, "", 0, version=13, partition=partition, topic_id=topic_id)
            assert values(answer.records) == [b"p%d" % partition]
        assert produce(client, "kept", batch(b"more")).base_offset == 1
