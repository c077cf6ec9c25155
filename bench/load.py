"""Raw load for any Kafka broker: frames that are built once and sent over plain sockets.

Real clients would otherwise dominate the measurement. Only correlation ids change from one request to the next.
"""

from __future__ import annotations

import os
import selectors
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from barnabas.model import Offset, TimestampMs
from barnabas.protocol.apis import api_for_name
from barnabas.protocol.message import Message
from barnabas.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.requests import decode_response, encode_request
from barnabas.records.builder import BatchBuilder

TIMEOUT_S: Final = 60
PRODUCE_VERSION: Final = 9
FETCH_VERSION: Final = 11
IN_FLIGHT: Final = 5


def connect(port: int) -> socket.socket:
    connected = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


def frame(api: str, version: int, body: Message) -> bytes:
    request = encode_request(api_for_name(api), version, 1, "bench", body)
    return struct.pack(">i", len(request)) + request


def read_exactly(connected: socket.socket, size: int, buffer: bytearray) -> memoryview:
    view = memoryview(buffer)[:size]
    received = 0
    while received < size:
        count = connected.recv_into(view[received:])
        if count == 0:
            raise ConnectionError("the broker has closed the connection")
        received += count
    return view


def read_frame(connected: socket.socket, buffer: bytearray) -> memoryview:
    (size,) = struct.unpack(">i", read_exactly(connected, 4, buffer))
    return read_exactly(connected, size, buffer)


def ask(connected: socket.socket, api: str, version: int, body: Message) -> Any:
    connected.sendall(frame(api, version, body))
    (size,) = struct.unpack(">i", read_exactly(connected, 4, bytearray(4)))
    answer = read_exactly(connected, size, bytearray(size))
    return decode_response(api_for_name(api), version, bytes(answer)).body


def controller_port(port: int) -> int:
    """That of the broker which creates and deletes topics, in the cluster of the broker at `port`."""
    deadline_s = time.monotonic() + TIMEOUT_S
    with connect(port) as connected:
        while time.monotonic() < deadline_s:
            answer = ask(connected, "Metadata", 4, MetadataRequest(topics=[]))
            for broker in answer.brokers:
                if broker.node_id == answer.controller_id:
                    return int(broker.port)
            time.sleep(0.05)
    raise TimeoutError(f"there is no controller after {TIMEOUT_S} s")


def leader_ports(port: int, topic: str) -> list[int]:
    """The port of the leader of each partition, in the order of the partitions."""
    with connect(port) as connected:
        answer = ask(connected, "Metadata", 4, MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))
    ports = {broker.node_id: int(broker.port) for broker in answer.brokers}
    partitions = sorted(answer.topics[0].partitions, key=lambda each: int(each.partition_index))
    return [ports[each.leader_id] for each in partitions]


def create_topic(port: int, name: str, partitions: int = 1) -> None:
    with connect(controller_port(port)) as connected:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        [answer] = ask(
            connected, "CreateTopics", 5, CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        ).topics
        assert answer.error_code in (0, 36), answer
        # A broker may have promised the topic and not made it yet.
        deadline_s = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline_s:
            found = ask(connected, "Metadata", 4, MetadataRequest(topics=None)).topics
            for each in found:
                is_there = len(each.partitions) >= partitions and all(
                    p.error_code == 0 for p in each.partitions
                )
                if each.name == name and is_there:
                    return
            time.sleep(0.05)
    raise TimeoutError(f"topic {name} is not there after {TIMEOUT_S} s")


def batch_of(size_bytes: int) -> bytes:
    """A batch of about this size, of records of 1,000 bytes."""
    builder = BatchBuilder(base_offset=Offset(0))
    count = max(1, size_bytes // 1_024)
    value = os.urandom(max(1, size_bytes // count - 20))
    # The current time: both brokers would soon delete records that are older than a week.
    now_ms = int(time.time() * 1_000)
    for index in range(count):
        builder.append(TimestampMs(now_ms + index), None, value)
    return bytes(builder.build())


def produce_frame(topic: str, batch: bytes, partition: int = 0, acks: int = 1) -> bytes:
    data = [PartitionProduceData(index=partition, records=batch)]
    body = ProduceRequest(
        acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )
    return frame("Produce", PRODUCE_VERSION, body)


def check_produced(answer: memoryview) -> None:
    error_code = produce_error(answer)
    assert error_code == 0, f"the broker answered error {error_code}"


def produce_error(answer: memoryview) -> int:
    """The error code of a Produce response for one partition."""
    response = decode_response(api_for_name("Produce"), PRODUCE_VERSION, bytes(answer)).body
    return int(response.responses[0].partition_responses[0].error_code)


def produce_for(
    port: int, topic: str, batch: bytes, duration_s: float, partition: int = 0, acks: int = 1
) -> int:
    """How many requests were answered in that time, with IN_FLIGHT of them always on their way."""
    return exchange_for(port, produce_frame(topic, batch, partition, acks), check_produced, duration_s)


def exchange_for(port: int, request: bytes, check: Callable[[memoryview], None], duration_s: float) -> int:
    """How often a request was answered in that time, with IN_FLIGHT of them always on their way."""
    with connect(port) as connected:
        return exchange_on(connected, request, check, duration_s)


def exchange_on(
    connected: socket.socket, request: bytes, check: Callable[[memoryview], None], duration_s: float
) -> int:
    buffer = bytearray(1 << 16)
    answered = 0
    connected.sendall(request * IN_FLIGHT)
    end_s = time.perf_counter() + duration_s
    while time.perf_counter() < end_s:
        # Answers come in bunches: as many as have come are read and followed by as many requests.
        answer = read_frame(connected, buffer)
        if answered == 0:
            check(answer)
        count = 1 + _more_answers(connected, buffer)
        answered += count
        connected.sendall(request * count)
    for _ in range(IN_FLIGHT):
        check(read_frame(connected, buffer))
        answered += 1
    return answered


def exchange_together(
    requests: Sequence[tuple[int, bytes]], check: Callable[[memoryview], None], duration_s: float
) -> int:
    """The same for many connections at once, each with its own port and request, in one thread."""
    answered = 0
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for port, request in requests:
            connected = stack.enter_context(connect(port))
            selector.register(connected, selectors.EVENT_READ, (request, bytearray()))
            connected.sendall(request * IN_FLIGHT)
        under_way = IN_FLIGHT * len(requests)
        end_s = time.perf_counter() + duration_s
        while under_way > 0:
            ready = selector.select(TIMEOUT_S)
            assert ready, f"no answer in {TIMEOUT_S} s"
            is_over = time.perf_counter() >= end_s
            for key, _ in ready:
                assert isinstance(key.fileobj, socket.socket)
                request, received = key.data
                received += key.fileobj.recv(1 << 16)
                count = _take_frames(received, check)
                answered += count
                if is_over:
                    under_way -= count
                else:
                    key.fileobj.sendall(request * count)
    return answered


def _take_frames(received: bytearray, check: Callable[[memoryview], None]) -> int:
    """Takes the whole responses from the received bytes and returns their number. Checks the first of each group."""
    position = count = 0
    while len(received) - position >= 4:
        end = position + 4 + int.from_bytes(received[position : position + 4], "big")
        if end > len(received):
            break
        if count == 0:
            check(memoryview(bytes(received[4:end])))
        position = end
        count += 1
    del received[:position]
    return count


def _more_answers(connected: socket.socket, buffer: bytearray) -> int:
    count = 0
    if isinstance(connected, ssl.SSLSocket):
        # What OpenSSL has decrypted. It does not look ahead in the socket.
        while count < IN_FLIGHT - 1 and connected.pending() >= 4:
            read_frame(connected, buffer)
            count += 1
        return count
    while count < IN_FLIGHT - 1:
        try:
            head = connected.recv(4, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return count
        if len(head) < 4:
            return count
        read_frame(connected, buffer)
        count += 1
    return count


def produce_latencies(port: int, topic: str, batch: bytes, count: int, acks: int = 1) -> list[float]:
    """Seconds from sending a request to its answer, one request at a time."""
    request = produce_frame(topic, batch, acks=acks)
    buffer = bytearray(1 << 16)
    latencies = []
    with connect(port) as connected:
        for _ in range(count):
            start = time.perf_counter()
            connected.sendall(request)
            read_frame(connected, buffer)
            latencies.append(time.perf_counter() - start)
    return latencies


def fetch_frame(
    topic: str, offset: int, max_bytes: int, *, partition: int = 0, max_wait_ms: int = 500
) -> bytes:
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    body = FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[asked])],
    )
    return frame("Fetch", FETCH_VERSION, body)


def fetch_for(port: int, topic: str, max_bytes: int, duration_s: float) -> int:
    """How many bytes came, the same first ones over and over: all from memory, and nothing but sending."""
    with connect(port) as connected:
        return fetch_on(connected, topic, max_bytes, duration_s)


def fetch_on(connected: socket.socket, topic: str, max_bytes: int, duration_s: float) -> int:
    request = fetch_frame(topic, 0, max_bytes)
    buffer = bytearray(max_bytes + (1 << 16))
    received = 0
    end_s = time.perf_counter() + duration_s
    connected.sendall(request)
    while time.perf_counter() < end_s:
        received += len(read_frame(connected, buffer))
        connected.sendall(request)
    read_frame(connected, buffer)
    return received


def consume_for(port: int, topic: str, partition: int, max_bytes: int, duration_s: float) -> int:
    """How many bytes of records came to a consumer that follows a partition from its beginning."""
    buffer = bytearray(max_bytes + (1 << 16))
    received = 0
    offset = 0
    with connect(port) as connected:
        end_s = time.perf_counter() + duration_s
        while time.perf_counter() < end_s:
            connected.sendall(fetch_frame(topic, offset, max_bytes, partition=partition, max_wait_ms=100))
            answer = read_frame(connected, buffer)
            records = _records_of(answer, topic)
            received += len(records)
            offset = _next_offset(records, offset)
    return received


def _records_of(answer: memoryview, topic: str) -> memoryview:
    # Correlation id, throttle time, error, session id, one topic with its name, one partition and its number.
    position = 4 + 4 + 2 + 4 + 4 + 2 + len(topic) + 4 + 4
    error_code, _, _, _, aborted = struct.unpack_from(">hqqqi", answer, position)
    assert error_code == 0, f"the broker answered error {error_code}"
    position += 30 + 16 * max(aborted, 0) + 4
    (size,) = struct.unpack_from(">i", answer, position)
    return answer[position + 4 : position + 4 + size]


def _next_offset(records: memoryview, offset: int) -> int:
    position = 0
    while position + 61 <= len(records):
        base_offset, length = struct.unpack_from(">qi", records, position)
        if position + 12 + length > len(records):
            break
        (last_delta,) = struct.unpack_from(">i", records, position + 23)
        offset = base_offset + last_delta + 1
        position += 12 + length
    return offset


def in_threads(workers: list[Callable[[], int]]) -> list[int]:
    """Runs workers at once; they mostly wait in the kernel."""
    results = [0] * len(workers)
    failures: list[BaseException] = []

    def run(index: int) -> None:
        try:
            results[index] = workers[index]()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(workers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


def cpu_seconds(*pids: int) -> float:
    """User and system time of processes so far."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1_000
    raise LookupError(f"the system does not tell the memory of process {pid}")
