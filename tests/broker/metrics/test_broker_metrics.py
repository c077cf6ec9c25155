from __future__ import annotations

import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import errors
from barnabas.broker.replication.topic_metrics import METRICS, BrokerTopicMetrics
from barnabas.protocol.messages.delete_topics_request import DeleteTopicsRequest
from barnabas.protocol.messages.init_producer_id_request import InitProducerIdRequest
from tests.broker.group_requests import commit, wait_for_coordinator
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import batch, create_topic, fetch, fetch_request, produce
from tests.broker.running import RunningBroker
from tests.waiting import wait_until

TOPICS = "kafka_server_brokertopicmetrics_"
REQUESTS = "kafka_network_requestmetrics_"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    settings = {"barnabas.metrics.port": "0"}
    with RunningBroker(tmp_path_factory.mktemp("broker"), settings) as running:
        yield running


def metrics(broker: RunningBroker) -> dict[str, float]:
    """All metrics as Prometheus gets them, by name and labels."""
    with urllib.request.urlopen(
        f"http://127.0.0.1:{broker.server.metrics_port}/metrics", timeout=60
    ) as answer:
        lines = answer.read().decode().splitlines()
    return {
        name: float(value)
        for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    }


def of_topic(broker: RunningBroker, topic: str) -> dict[str, float]:
    found = metrics(broker)
    return {
        name: found[key]
        for name in METRICS
        if (key := f'{TOPICS}{name.replace("_", "")}_total{{topic="{topic}"}}') in found
    }


def test_what_is_produced_and_fetched_is_counted_by_topic(broker: RunningBroker, client: RawClient) -> None:
    create_topic(client, "counted", partitions=2)
    records = batch(b"a", b"b", b"c")
    for partition in (0, 1):
        assert produce(client, "counted", records, partition=partition).error_code == 0
    assert len(fetch(client, "counted", 0, partition=1).records) == len(records)
    assert of_topic(broker, "counted") == {
        "messages_in": 6,
        "bytes_in": 2 * len(records),
        "bytes_out": len(records),
        "bytes_rejected": 0,
        "total_produce_requests": 2,
        "failed_produce_requests": 0,
        "total_fetch_requests": 1,
        "failed_fetch_requests": 0,
        "produce_message_conversions": 0,
        "fetch_message_conversions": 0,
        "replication_bytes_in": 0,
        "replication_bytes_out": 0,
    }


def test_bytes_out_are_those_that_are_sent(broker: RunningBroker, client: RawClient) -> None:
    create_topic(client, "waited-for")
    records = batch(b"a")
    client.send("Fetch", 12, fetch_request("waited-for", 0, max_wait_ms=600_000, min_bytes=len(records) + 1))
    with broker.client() as other:
        # The fetch reads this and waits for more.
        produce(other, "waited-for", records)
        produce(other, "waited-for", records)
    client.receive_frame()
    assert of_topic(broker, "waited-for")["bytes_out"] == 2 * len(records)


def test_records_in_other_formats_are_counted(broker: RunningBroker, client: RawClient) -> None:
    create_topic(client, "old")
    assert produce(client, "old", batch(b"a", b"b", magic=1), version=2).error_code == 0
    fetch(client, "old", 0, version=2)
    found = of_topic(broker, "old")
    assert found["messages_in"] == 2
    assert found["produce_message_conversions"] == 2
    assert found["fetch_message_conversions"] == 2


def test_only_failures_that_are_not_in_the_order_of_things_are_failures(
    broker: RunningBroker, client: RawClient
) -> None:
    create_topic(client, "failing", max_message_bytes="100", cleanup_policy="compact")
    large = batch(bytes(200))
    assert produce(client, "failing", large).error_code == errors.MessageTooLarge.code
    assert fetch(client, "failing", 7).error_code == errors.OffsetOutOfRange.code
    found = of_topic(broker, "failing")
    assert (found["total_produce_requests"], found["failed_produce_requests"]) == (1, 0)
    assert found["bytes_rejected"] == len(large)
    assert (found["total_fetch_requests"], found["failed_fetch_requests"]) == (1, 0)
    assert (found["bytes_in"], found["messages_in"]) == (0, 0)

    out_of_order = batch(b"a", producer_id=1, producer_epoch=0, base_sequence=5)
    assert (
        produce(client, "failing", batch(b"a", producer_id=1, producer_epoch=0, base_sequence=0)).error_code
        == 0
    )
    assert produce(client, "failing", out_of_order).error_code == errors.OutOfOrderSequenceNumber.code
    found = of_topic(broker, "failing")
    assert (found["total_produce_requests"], found["failed_produce_requests"]) == (3, 1)


def test_a_topic_takes_its_metrics_along_and_leaves_the_sum(broker: RunningBroker, client: RawClient) -> None:
    total = TOPICS + "bytesin_total"
    before = metrics(broker)[total]
    create_topic(client, "gone")
    assert of_topic(broker, "gone") == {}, "nobody has used it yet"
    records = batch(b"a")
    produce(client, "gone", records)
    assert of_topic(broker, "gone")["bytes_in"] == len(records)
    client.ask("DeleteTopics", 5, DeleteTopicsRequest(topic_names=["gone"], timeout_ms=60_000))
    assert of_topic(broker, "gone") == {}
    assert metrics(broker)[total] == before + len(records)
    create_topic(client, "gone")
    produce(client, "gone", records)
    produce(client, "gone", records)
    assert of_topic(broker, "gone")["bytes_in"] == 2 * len(records)
    assert metrics(broker)[total] == before + 3 * len(records)


def test_metrics_of_topics_are_kept_by_their_name() -> None:
    books = BrokerTopicMetrics()
    books.of("a").bytes_in += 5
    books.of("a").total_produce_requests += 1
    books.of("b").bytes_in += 7
    assert list(books.readings("bytes_in")) == [({}, 12), ({"topic": "a"}, 5)]
    books.remove("a")
    books.remove("never there")
    assert list(books.readings("bytes_in")) == [({}, 12)]
    assert books.of("a").bytes_in == 0


def test_flushes_are_timed(tmp_path: Path) -> None:
    flushes = "kafka_log_logflushstats_logflushtime_seconds_count"
    with RunningBroker(tmp_path, {"barnabas.metrics.port": "0"}) as running, running.client() as client:
        create_topic(client, "unflushed")
        produce(client, "unflushed", batch(b"a"))
        before = metrics(running)[flushes]
        create_topic(client, "flushed", flush_messages="1")
        for _ in range(3):
            produce(client, "flushed", batch(b"a"))
        assert metrics(running)[flushes] == before + 3


def test_requests_are_counted_and_measured_by_api(broker: RunningBroker, client: RawClient) -> None:
    key = '{request="InitProducerId"}'
    before = metrics(broker)
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000)
    client.ask("InitProducerId", 4, request)
    after = metrics(broker)
    for name in ("requests_total", "requestbytes_count", "totaltime_seconds_count"):
        assert after[REQUESTS + name + key] == before[REQUESTS + name + key] + 1, name
    # A header, no transactional id, the time-out, and ids of which there are none.
    assert 20 < after[REQUESTS + "requestbytes_sum" + key] - before[REQUESTS + "requestbytes_sum" + key] < 100
    assert after[REQUESTS + "errors_total" + key] == before[REQUESTS + "errors_total" + key]


def test_requests_that_end_in_an_error_of_their_own_are_counted(
    broker: RunningBroker, client: RawClient
) -> None:
    before = metrics(broker)
    # No session has this epoch.
    answer = client.ask("Fetch", 12, fetch_request("any", 0, session_epoch=5))
    assert answer.error_code != 0
    errors_of = REQUESTS + 'errors_total{request="%s"}'
    after = metrics(broker)
    assert after[errors_of % "Fetch"] == before[errors_of % "Fetch"] + 1


@pytest.mark.slow
def test_requests_of_clients_that_have_gone_do_not_wait(broker: RunningBroker, client: RawClient) -> None:
    """Lists of purgatories may hold requests that have ended: these are not counted."""
    create_topic(client, "awaited", partitions=2)
    produce(client, "awaited", batch(b"a"))
    waiting = 'kafka_server_delayedoperationpurgatory_{}{{delayedOperation="Fetch"}}'
    count, size = waiting.format("numdelayedoperations"), waiting.format("purgatorysize")
    for _ in range(20):
        with broker.client() as gone:
            gone.send("Fetch", 12, fetch_request("awaited", 1, max_wait_ms=600_000))
            wait_until(lambda: metrics(broker)[count] == 1)
            assert metrics(broker)[size] == 1
        wait_until(lambda: metrics(broker)[count] == 0)
    assert metrics(broker)[size] == 0


def test_how_far_groups_are_behind(broker: RunningBroker, client: RawClient) -> None:
    create_topic(client, "behind", partitions=2)
    for partition in (0, 1):
        produce(client, "behind", batch(b"a", b"b", b"c"), partition=partition)
    wait_for_coordinator(client, "late")
    assert set(commit(client, "late", {("behind", 0): 1, ("behind", 1): 3}).values()) == {0}
    found = metrics(broker)
    lag = 'kafka_consumergroup_lag{{consumergroup="late",topic="behind",partition="{}"}}'
    assert found[lag.format(0)] == 2
    assert found[lag.format(1)] == 0
    assert found['kafka_consumergroup_lag_sum{consumergroup="late"}'] == 2
    produce(client, "behind", batch(b"d"), partition=1)
    assert metrics(broker)[lag.format(1)] == 1
    client.ask("DeleteTopics", 5, DeleteTopicsRequest(topic_names=["behind"]))
    assert not [name for name in metrics(broker) if '"late"' in name]


def test_the_process_is_told_of_as_prometheus_clients_do(broker: RunningBroker) -> None:
    found = metrics(broker)
    assert found["process_start_time_seconds"] == pytest.approx(process_start_s(), abs=1.0)
    assert found["process_resident_memory_bytes"] < found["process_virtual_memory_bytes"]
    assert 3 < found["process_open_fds"] <= found["process_max_fds"]
    assert 0 < found["process_cpu_seconds_total"] <= metrics(broker)["process_cpu_seconds_total"]


def process_start_s() -> float:
    with Path("/proc/stat").open() as file:
        boot_s = next(int(line.split()[1]) for line in file if line.startswith("btime"))
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return boot_s + ticks / os.sysconf("SC_CLK_TCK")
