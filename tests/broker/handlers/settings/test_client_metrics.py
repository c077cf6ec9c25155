"""Metrics of clients (KIP-714): subscriptions, pushes, and what becomes of them, against a running broker."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import errors
from barnabas.broker.telemetry.otlp import Sample, parse_samples
from barnabas.clock import ManualClock
from barnabas.protocol.messages.api_versions_request import ApiVersionsRequest
from barnabas.protocol.messages.get_telemetry_subscriptions_request import GetTelemetrySubscriptionsRequest
from barnabas.protocol.messages.get_telemetry_subscriptions_response import GetTelemetrySubscriptionsResponse
from barnabas.protocol.messages.push_telemetry_request import PushTelemetryRequest
from barnabas.records.compression import compress
from barnabas.records.layout import CompressionType
from tests.broker.config_requests import CLIENT_METRICS, DELETE, SET, describe, incremental
from tests.broker.raw_client import RawClient
from tests.broker.running import RunningBroker

FIVE_MINUTES_MS = 300_000
NOBODY = bytes(16)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(tmp_path: Path, clock: ManualClock) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path, clock=clock) as running:
        yield running


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[RawClient]:
    with broker.client("orders-1") as connected:
        versions = ApiVersionsRequest(client_software_name="spam", client_software_version="1.2")
        keys = {each.api_key for each in connected.ask("ApiVersions", 4, versions).api_keys}
        assert {71, 72, 74} <= keys
        yield connected


def field(number: int, payload: bytes) -> bytes:
    size = len(payload)
    return (
        bytes([number << 3 | 2])
        + (bytes([size & 0x7F | 0x80, size >> 7]) if size > 127 else bytes([size]))
        + payload
    )


def attribute(key: str, text: str) -> bytes:
    return field(1, key.encode()) + field(2, field(1, text.encode()))


def number(value: float, *attributes: tuple[str, str]) -> bytes:
    """A data point with a double."""
    tag = bytes([4 << 3 | 1])
    return tag + struct.pack("<d", value) + b"".join(field(7, attribute(*each)) for each in attributes)


def whole(value: int) -> bytes:
    """A data point with an sfixed64."""
    return bytes([6 << 3 | 1]) + struct.pack("<q", value)


def gauge(name: str, point: bytes) -> bytes:
    return field(1, name.encode()) + field(5, field(1, point))


def delta(name: str, point: bytes) -> bytes:
    return field(1, name.encode()) + field(7, field(1, point) + b"\x10\x01\x18\x01")


def payload(*metrics: bytes) -> bytes:
    resource = field(1, field(1, attribute("client_rack", "north")))
    return field(1, resource + field(2, b"".join(field(2, each) for each in metrics)))


def subscribe(client: RawClient, name: str, **settings: str) -> None:
    changes = [(key.replace("_", "."), SET, value) for key, value in settings.items()]
    assert incremental(client, CLIENT_METRICS, name, *changes) == (0, None)


def ask(client: RawClient, instance_id: bytes = NOBODY) -> GetTelemetrySubscriptionsResponse:
    request = GetTelemetrySubscriptionsRequest(client_instance_id=instance_id)
    answer: GetTelemetrySubscriptionsResponse = client.ask("GetTelemetrySubscriptions", 0, request)
    return answer


def push(
    client: RawClient,
    to: GetTelemetrySubscriptionsResponse,
    data: bytes,
    *,
    compression: int = 0,
    terminating: bool = False,
    subscription_id: int | None = None,
) -> int:
    request = PushTelemetryRequest(
        client_instance_id=to.client_instance_id,
        subscription_id=to.subscription_id if subscription_id is None else subscription_id,
        terminating=terminating,
        compression_type=compression,
        metrics=data,
    )
    return int(client.ask("PushTelemetry", 0, request).error_code)


def test_a_client_that_nobody_asks_for_metrics(client: RawClient) -> None:
    answer = ask(client)
    assert (answer.error_code, answer.requested_metrics) == (0, [])
    assert (answer.push_interval_ms, answer.telemetry_max_bytes) == (FIVE_MINUTES_MS, 1 << 20)
    assert answer.accepted_compression_types == [4, 3, 1, 2]
    assert answer.client_instance_id != NOBODY


def test_subscriptions_are_found_by_what_a_client_is(client: RawClient) -> None:
    subscribe(client, "all", metrics="org.apache.kafka.producer.", interval_ms="60000")
    subscribe(
        client,
        "mine",
        metrics="a.,b.",
        interval_ms="1000",
        match="client_id=orders-.*,client_software_name=spam",
    )
    subscribe(client, "others", metrics="c.", interval_ms="100", match="client_id=orders")
    answer = ask(client)
    assert answer.requested_metrics == ["a.", "b.", "org.apache.kafka.producer."]
    assert answer.push_interval_ms == 1_000
    subscribe(client, "here", metrics="*", match="client_source_address=127[.]0[.]0[.]1")
    # Subscriptions have changed, so the client may ask at once.
    again = ask(client, answer.client_instance_id)
    assert (again.error_code, again.requested_metrics) == (0, ["*"])
    assert again.subscription_id != answer.subscription_id
    for name in ("all", "mine", "others", "here"):
        changes = [(key, DELETE, None) for key in ("metrics", "interval.ms", "match")]
        assert incremental(client, CLIENT_METRICS, name, *changes) == (0, None)
    assert ask(client, answer.client_instance_id).requested_metrics == []


def test_pushed_values_stand_among_the_brokers_metrics(
    broker: RunningBroker, client: RawClient, clock: ManualClock
) -> None:
    subscribe(client, "all", metrics="*", interval_ms="1000")
    subscription = ask(client)
    data = payload(
        gauge("a.rate", number(1.5, ("node.id", "3"))), delta("a.total", whole(7)), gauge("b", whole(1))
    )
    nothing = payload(gauge("a.avg", number(float("nan"))), gauge("a.max", number(float("-inf"))))
    for compression in (
        CompressionType.ZSTD,
        CompressionType.LZ4,
        CompressionType.GZIP,
        CompressionType.SNAPPY,
    ):
        assert push(client, subscription, compress(data, compression), compression=compression) == 0
        clock.advance_ms(1_000)
    found = {
        labels["metric"]: (labels, value) for labels, value in broker.server.broker.client_metrics.readings()
    }
    assert {name: value for name, (_, value) in found.items()} == {"a.rate": 1.5, "a.total": 28.0, "b": 1.0}
    labels = dict(found["a.rate"][0])
    assert labels.pop("client_instance_id")
    assert labels.pop("client_source_port")
    assert labels == {
        "metric": "a.rate",
        "node_id": "3",
        "client_rack": "north",
        "client_id": "orders-1",
        "client_software_name": "spam",
        "client_software_version": "1.2",
        "client_source_address": "127.0.0.1",
    }
    assert push(client, subscription, nothing) == 0
    lines = broker.server._metrics.render().splitlines()
    told = {line.split('metric="')[1].replace('"}', "") for line in lines if 'metric="' in line}
    assert told == {"a.rate 1.5", "a.total 28", "b 1", "a.avg NaN", "a.max -Inf"}
    # A client that is not heard of any more is forgotten.
    clock.advance_ms(60_000)
    assert list(broker.server.broker.client_metrics.readings()) == []


def test_pushes_that_are_refused(client: RawClient, clock: ManualClock) -> None:
    subscribe(client, "all", metrics="*", interval_ms="1000")
    subscription = ask(client)
    assert ask(client, subscription.client_instance_id).error_code == errors.ThrottlingQuotaExceeded.code
    wrong = subscription.subscription_id ^ 1
    assert push(client, subscription, b"", subscription_id=wrong) == errors.UnknownSubscriptionId.code
    # Now it has reason to ask before its time.
    assert ask(client, subscription.client_instance_id).error_code == 0
    assert push(client, subscription, b"") == errors.ThrottlingQuotaExceeded.code
    for data, compression, code in (
        (b"", 9, errors.UnsupportedCompressionType.code),
        (b"x" * (1 << 20) + b"y", 0, errors.TelemetryTooLarge.code),
        (b"\x0a\x7f", 0, errors.InvalidRecord.code),
        (b"not zstd", 4, errors.InvalidRecord.code),
        (compress(bytes(4 << 20), CompressionType.ZSTD), 4, errors.InvalidRecord.code),
    ):
        clock.advance_ms(1_000)
        assert push(client, subscription, data, compression=compression) == code
    nobody = GetTelemetrySubscriptionsResponse(client_instance_id=NOBODY)
    assert push(client, nobody, b"") == errors.InvalidRequest.code
    # The last push may come at any time, and is the last.
    assert push(client, subscription, payload(gauge("a", number(1.0))), terminating=True) == 0
    clock.advance_ms(1_000)
    assert push(client, subscription, b"") == errors.InvalidRequest.code


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (("interval.ms", "99"), errors.InvalidRequest, "interval must be between 100 and 3600000 (1 hour)"),
        (("interval.ms", "x"), errors.InvalidConfig, "interval.ms: Not a number of type INT"),
        (("match", "client_id"), errors.InvalidConfig, "Illegal client matching pattern: client_id"),
        (("match", "user=a"), errors.InvalidConfig, "Illegal client matching pattern: user=a"),
        (("match", "client_id=("), errors.InvalidConfig, "Illegal client matching pattern: client_id=("),
        (("metrics", "a,,b"), errors.InvalidConfig, "Configuration 'metrics' values must not be empty."),
        (("nope", "1"), errors.InvalidRequest, "Unknown client metrics configuration: nope"),
    ],
)
def test_settings_that_are_refused(
    client: RawClient, change: tuple[str, str], code: type[errors.KafkaError], message: str
) -> None:
    found, text = incremental(client, CLIENT_METRICS, "s", (change[0], SET, change[1]))
    assert found == code.code
    assert message in str(text)


def test_settings_are_there_after_a_restart(tmp_path: Path) -> None:
    for is_new in (True, False):
        with RunningBroker(tmp_path) as broker, broker.client() as client:
            if is_new:
                subscribe(client, "a/b", metrics="x.", interval_ms="2000")
            entries = describe(client, CLIENT_METRICS, "a/b")
            assert (entries["interval.ms"].value, entries["interval.ms"].config_source) == ("2000", 7)
            assert ask(client).requested_metrics == ["x."]


def test_metrics_are_read_as_far_as_they_are_whole() -> None:
    data = payload(gauge("a", number(2.0)), delta("b", whole(-3)))
    rack = (("client_rack", "north"),)
    samples = [Sample("a", rack, 2.0, is_delta=False), Sample("b", rack, -3.0, is_delta=True)]
    assert parse_samples(data, 10) == samples
    assert parse_samples(data, 1) == samples[:1]
    for end in range(1, len(data)):
        with pytest.raises(errors.InvalidRecord):
            parse_samples(data[:end], 10)
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            try:
                parse_samples(bytes(flipped), 10)
            except errors.InvalidRecord:
                continue
