"""Peers that send nonsense, or nothing, or too much, or leave in the middle: nobody else may notice."""

from __future__ import annotations

import contextlib
import random
import resource
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.errors import OffsetOutOfRange
from barnabas.protocol.apis import api_for_name
from barnabas.protocol.message import Message
from barnabas.protocol.messages.api_versions_request import ApiVersionsRequest
from barnabas.protocol.messages.metadata_request import MetadataRequest
from barnabas.protocol.requests import decode_response, encode_request
from barnabas.records.layout import CompressionType
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
from tests.clients.broker_process import BrokerProcess
from tests.hostile.canary import Canary
from tests.hostile.mutations import TARGET
from tests.waiting import Deadline, wait_until

MIB = 1 << 20
WAIT_S = 60
REQUEST_MAX_BYTES = 104_857_600


@pytest.fixture
def canary(broker: BrokerProcess) -> Iterator[Canary]:
    with Canary(broker) as singing:
        yield singing


def connect(broker: BrokerProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.port), timeout=WAIT_S)


@contextlib.contextmanager
def connections(broker: BrokerProcess, count: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(connect(broker)) for _ in range(count)]


def is_closed(connected: socket.socket) -> bool:
    """Waits until the broker has closed the connection; whatever it has sent before is read and dropped."""
    try:
        while connected.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True


def framed(name: str, version: int, body: Message, correlation_id: int = 1) -> bytes:
    request = encode_request(api_for_name(name), version, correlation_id, "hostile", body)
    return struct.pack(">i", len(request)) + bytes(request)


def lines_about(broker: BrokerProcess, connected: socket.socket) -> list[str]:
    host, port = connected.getsockname()
    return [line for line in broker.log_text().splitlines() if f" {host}:{port} " in line]


def open_sockets(broker: BrokerProcess) -> int:
    count = 0
    for descriptor in Path(f"/proc/{broker.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += descriptor.readlink().name.startswith("socket:")
    return count


@pytest.mark.usefixtures("canary")
@pytest.mark.parametrize(
    ("start", "reason"),
    [
        (struct.pack(">i", -1), "a size cannot be negative"),
        (struct.pack(">i", -(2**31)), "a size cannot be negative"),
        (struct.pack(">i", 2**31 - 1), "at most 104857600 bytes are allowed"),
        (struct.pack(">i", REQUEST_MAX_BYTES + 1), "at most 104857600 bytes are allowed"),
        (struct.pack(">i", 0), "8 bytes needed"),
        (b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n", "at most 104857600 bytes are allowed"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "bytes are allowed"),
    ],
)
def test_what_cannot_be_a_frame(broker: BrokerProcess, start: bytes, reason: str) -> None:
    with connect(broker) as connected:
        connected.sendall(start)
        assert is_closed(connected)
        [line] = lines_about(broker, connected)
        assert reason in line


@pytest.mark.usefixtures("canary")
def test_random_bytes(broker: BrokerProcess) -> None:
    rng = random.Random(3)
    for _ in range(300):
        with connect(broker) as connected:
            with contextlib.suppress(ConnectionError):
                connected.sendall(rng.randbytes(rng.randrange(1, 2_000)))
                connected.shutdown(socket.SHUT_WR)
            assert is_closed(connected)


@pytest.mark.usefixtures("canary")
def test_a_size_that_is_announced_costs_nothing_until_the_bytes_come(broker: BrokerProcess) -> None:
    before_bytes = broker.rss_bytes()
    with connections(broker, 200) as bombs:
        for bomb in bombs:
            bomb.sendall(struct.pack(">i", REQUEST_MAX_BYTES) + bytes(10))
        with broker.client() as client:
            # Whatever was sent before is read before this is answered.
            client.ask(
                "ApiVersions", 3, ApiVersionsRequest(client_software_name="a", client_software_version="b")
            )
        # A hundred megabytes each were announced; what is set aside for each is far below one.
        assert broker.rss_bytes() - before_bytes < 60 * MIB


@pytest.mark.usefixtures("canary")
def test_slow_and_silent_connections(broker: BrokerProcess) -> None:
    request = framed(
        "ApiVersions", 3, ApiVersionsRequest(client_software_name="a", client_software_version="b")
    )
    with connections(broker, 100) as silent, connections(broker, 100) as slow:
        for byte in request:
            for connected in slow:
                connected.sendall(bytes([byte]))
        for connected in slow:
            (size,) = struct.unpack(">i", connected.recv(4, socket.MSG_WAITALL))
            assert len(connected.recv(size, socket.MSG_WAITALL)) == size
        for connected in silent:
            connected.sendall(request[:7])
    wait_until(lambda: open_sockets(broker) < 50, "connections that have gone are given up")


@pytest.mark.slow
def test_idle_connections_are_closed_and_slow_ones_are_not(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", {"connections.max.idle.ms": "2000"}) as broker:
        with Canary(broker), connections(broker, 20) as idle:
            for connected in idle[10:]:
                connected.sendall(b"\x00\x00")
            assert all(is_closed(connected) for connected in idle)
            for connected in idle:
                [line] = lines_about(broker, connected)
                assert "closed: idle (" in line
        assert broker.stop() == 0


@pytest.mark.slow
@pytest.mark.usefixtures("canary")
def test_a_peer_that_does_not_read_its_answers(broker: BrokerProcess) -> None:
    """It is not read from either, so neither side piles up; when it reads at last, it gets all answers in order."""
    before_bytes = broker.rss_bytes()
    count = 20_000
    with connect(broker) as connected:
        connected.setblocking(False)
        unsent = memoryview(
            b"".join(framed("Metadata", 9, MetadataRequest(topics=None), number) for number in range(count))
        )
        stalled_since_s = time.monotonic()
        while unsent and time.monotonic() - stalled_since_s < 0.5:
            try:
                unsent = unsent[connected.send(unsent) :]
                stalled_since_s = time.monotonic()
            except BlockingIOError:
                time.sleep(0.01)
        assert broker.rss_bytes() - before_bytes < 20 * MIB

        received = bytearray()
        answered = 0
        deadline = Deadline(2 * WAIT_S)
        while answered < count:
            deadline.check(f"{answered} of {count} answers")
            with contextlib.suppress(BlockingIOError):
                unsent = unsent[connected.send(unsent) :] if unsent else unsent
            try:
                received += connected.recv(1 << 20)
            except BlockingIOError:
                time.sleep(0.001)
            position = 0
            while len(received) - position >= 4:
                (size,) = struct.unpack_from(">i", received, position)
                if len(received) - position < 4 + size:
                    break
                (correlation_id,) = struct.unpack_from(">i", received, position + 4)
                assert correlation_id == answered
                answered += 1
                position += 4 + size
            del received[:position]
    assert broker.rss_bytes() - before_bytes < 40 * MIB


@pytest.mark.slow
@pytest.mark.usefixtures("canary")
def test_connections_dropped_in_the_middle_of_everything(broker: BrokerProcess) -> None:
    rng = random.Random(4)
    large = batch(bytes(300_000))
    with broker.client() as client:
        for partition in range(3):
            for _ in range(5):
                assert produce(client, TARGET, large, partition=partition).error_code == 0
    requests = [framed("Produce", 9, produce_request(TARGET, large, acks=acks)) for acks in (-1, 0, 1)]
    requests += [
        framed("Fetch", 12, fetch_request(TARGET, 0, max_bytes=4 * MIB)),
        framed("Fetch", 12, fetch_request(TARGET, 10_000_000, max_wait_ms=300)),
        framed("Fetch", 12, fetch_request(TARGET, 0, min_bytes=100 * MIB, max_wait_ms=300)),
        framed("Metadata", 9, MetadataRequest(topics=None)),
    ]
    abruptly = struct.pack("ii", 1, 0)
    for _ in range(500):
        with connect(broker) as connected:
            request = rng.choice(requests) * rng.choice((1, 1, 3))
            if rng.random() < 0.4:
                request = request[: rng.randrange(len(request))]
            with contextlib.suppress(ConnectionError):
                connected.sendall(request)
                if rng.random() < 0.5:
                    connected.settimeout(0.02)
                    with contextlib.suppress(TimeoutError):
                        connected.recv(rng.randrange(1, 100_000))
            if rng.random() < 0.5:
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, abruptly)
    wait_until(lambda: open_sockets(broker) < 50, "connections that have gone are given up")
    with broker.client() as client:
        assert fetch(client, TARGET, 0).error_code == 0


@pytest.mark.slow
@pytest.mark.usefixtures("canary")
def test_a_batch_that_expands_without_end(broker: BrokerProcess) -> None:
    """Where the broker has to look into a batch (a compacted topic's keys), what it unpacks has a bound."""
    with broker.client() as client:
        create_topic(client, "compacted", cleanup_policy="compact")
        before_bytes = broker.rss_bytes()
        bomb = batch(bytes(160 * MIB), compression=CompressionType.ZSTD)
        assert len(bomb) < MIB
        answer = produce(client, "compacted", bomb)
        assert answer.error_code != 0
        assert broker.rss_bytes() - before_bytes < 200 * MIB


@pytest.mark.usefixtures("canary")
def test_sizes_and_times_below_zero_in_a_fetch(broker: BrokerProcess) -> None:
    with broker.client() as client:
        # Other tests have written to the topic too.
        offset = produce(client, TARGET, batch(b"value"), partition=1).base_offset
        assert offset >= 0
        found = fetch(client, TARGET, offset, partition=1, max_bytes=-1, max_wait_ms=-1, min_bytes=-1)
        # The first batch is sent whole, however small the sizes.
        assert (found.error_code, values(found.records)) == (0, [b"value"])
        found = fetch(client, TARGET, -1, partition=1)
        assert found.error_code == OffsetOutOfRange.code


def test_pipelined_requests_of_many_kinds_are_answered_in_order(
    broker: BrokerProcess, canary: Canary
) -> None:
    """Answers that come at once wait for those before them, which may be parked."""
    with broker.client() as client:
        sent: list[tuple[str, int]] = []
        for number in range(300):
            if number % 10 == 0:
                client.send(
                    "Fetch", 12, fetch_request(TARGET, 10_000_000 if number % 20 else 0, max_wait_ms=5)
                )
                sent.append(("Fetch", 12))
            else:
                client.send("Metadata", 9, MetadataRequest(topics=[]))
                sent.append(("Metadata", 9))
        for number, (name, version) in enumerate(sent, 1):
            response = decode_response(api_for_name(name), version, client.receive_frame())
            assert response.header.correlation_id == number


@pytest.mark.slow
def test_more_connections_than_descriptors(tmp_path: Path) -> None:
    """The broker says that it cannot accept, goes on with the connections it has, and accepts again later."""
    broker = BrokerProcess(tmp_path / "data")
    broker.limits[resource.RLIMIT_NOFILE] = 120
    with broker:
        with Canary(broker):
            with contextlib.ExitStack() as stack:
                for _ in range(200):
                    # Those that are not accepted wait in the backlog, and when that is full they are not even there.
                    pending = stack.enter_context(socket.socket())
                    pending.setblocking(False)
                    pending.connect_ex(("127.0.0.1", broker.port))
                broker.wait_for_line("no connection can be accepted", WAIT_S)
            with RawClient(broker.port) as client:
                client.ask("Metadata", 9, MetadataRequest(topics=[]))
        assert "Traceback" not in broker.log_text()
        assert broker.stop() == 0
