"""What peers can have the broker remember: half of requests, sessions, lines of its log. All of it has a bound."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.errors import MessageTooLarge
from barnabas.protocol.messages.api_versions_request import ApiVersionsRequest
from barnabas.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from tests.broker.record_requests import batch, create_topic, produce
from tests.clients.broker_process import BrokerProcess
from tests.waiting import wait_until

MIB = 1 << 20
REQUEST_MAX_BYTES = 104_857_600
WAIT_S = 60
SESSIONS = 60
SESSION_PARTITIONS = 9_000


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as running:
        yield running
        assert "Traceback" not in running.log_text(), running.log_text()
        assert running.stop() == 0


def send_until_it_stops(connected: socket.socket, data: memoryview) -> int:
    """How much the broker takes before it stops reading."""
    connected.setblocking(False)
    sent = 0
    stalled_since_s = time.monotonic()
    while sent < len(data) and time.monotonic() - stalled_since_s < 0.5:
        try:
            sent += connected.send(data[sent : sent + MIB])
            stalled_since_s = time.monotonic()
        except BlockingIOError:
            time.sleep(0.005)
    return sent


@pytest.mark.slow
def test_half_sent_requests(own_broker: BrokerProcess) -> None:
    """12 of 100 MB would be 1.2 GB. Others are served, and when they wait, those that do not get on are closed."""
    with own_broker.client() as client, contextlib.ExitStack() as stack:
        create_topic(client, "topic")
        before_bytes = own_broker.rss_bytes()
        half = memoryview(struct.pack(">i", REQUEST_MAX_BYTES) + bytes(REQUEST_MAX_BYTES - 1_000))
        sent_bytes = 0
        for _ in range(12):
            connected = stack.enter_context(socket.create_connection(("127.0.0.1", own_broker.port)))
            sent_bytes += send_until_it_stops(connected, half)
            client.ask(
                "ApiVersions", 3, ApiVersionsRequest(client_software_name="a", client_software_version="b")
            )
            assert produce(client, "topic", batch(bytes(10_000))).error_code == 0
        held_bytes = own_broker.rss_bytes() - before_bytes
        print(f"{sent_bytes >> 20} MiB were taken, {held_bytes >> 20} MiB are held")
        # The bound, the one that may always go on, and what the system's buffers took.
        assert held_bytes < 300 * MIB
        # A large request has a part of the room to itself.
        began_s = time.monotonic()
        answer = produce(client, "topic", batch(bytes(900_000)))
        assert answer.error_code == 0
        print(f"a request of 900 KB was answered after {time.monotonic() - began_s:.1f} s")
        own_broker.wait_for_line("others wait for memory", WAIT_S)
    wait_until(
        lambda: own_broker.rss_bytes() - before_bytes <= 150 * MIB, "memory is not given back", poll_s=0.1
    )


@pytest.mark.slow
def test_fetch_sessions(own_broker: BrokerProcess) -> None:
    """300 sessions of 9,000 partitions would be a gigabyte. Where there is no room, a fetch has no session."""
    wanted = [
        FetchPartition(partition=index, partition_max_bytes=1_000) for index in range(SESSION_PARTITIONS)
    ]
    request = FetchRequest(
        max_wait_ms=0, session_epoch=0, topics=[FetchTopic(topic="topic", partitions=wanted)]
    )
    with own_broker.client() as client:
        create_topic(client, "topic", 10)
        before_bytes = own_broker.rss_bytes()
        sessions = 0
        for _ in range(SESSIONS):
            response = client.ask("Fetch", 12, request)
            assert response.error_code == 0
            assert len(response.responses[0].partitions) == SESSION_PARTITIONS
            sessions += response.session_id != 0
        held_bytes = own_broker.rss_bytes() - before_bytes
        print(f"{sessions} sessions of {SESSION_PARTITIONS:,} partitions, {held_bytes >> 20} MiB are held")
        assert 0 < sessions < SESSIONS
        assert held_bytes < 200 * MIB


@pytest.mark.slow
def test_lines_about_bad_frames(own_broker: BrokerProcess) -> None:
    start_s = time.monotonic()
    for _ in range(1_000):
        with socket.create_connection(("127.0.0.1", own_broker.port), timeout=WAIT_S) as connected:
            connected.sendall(struct.pack(">i", -5))
            with contextlib.suppress(ConnectionResetError):
                assert connected.recv(1) == b""
    text = own_broker.log_text()
    lines = [line for line in text.splitlines() if "a size cannot be negative" in line]
    # A hundred in a second, of which the first and the last may be begun.
    assert 100 <= len(lines) <= 100 * (time.monotonic() - start_s + 2)
    with socket.create_connection(("127.0.0.1", own_broker.port), timeout=WAIT_S) as connected:
        time.sleep(1.1)
        connected.sendall(struct.pack(">i", -5))
    own_broker.wait_for_line("more like this suppressed)", WAIT_S)


def test_refused_records(own_broker: BrokerProcess) -> None:
    """Requests of 8 MB whose records are too large for the topic: nothing of them is kept."""
    records = batch(bytes(8 * MIB))
    with own_broker.client() as client:
        create_topic(client, "refusing")
        assert produce(client, "refusing", records).error_code == MessageTooLarge.code
        before_bytes = own_broker.rss_bytes()
        for _ in range(12):
            assert produce(client, "refusing", records).error_code == MessageTooLarge.code
        assert own_broker.rss_bytes() - before_bytes < 32 * MIB
