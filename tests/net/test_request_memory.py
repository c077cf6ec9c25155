"""What requests hold in memory before they are answered, over real sockets."""

from __future__ import annotations

import asyncio
import struct

import pytest

from barnabas.net import request_memory
from barnabas.net.connection import Connection
from barnabas.net.listener import ConnectionLimits, Connections
from tests.net.on_loop import on_loop
from tests.net.test_connection import connect, echo, frame, read_frame, serving
from tests.waiting import wait_until_async

CAPACITY_BYTES = 4 << 20
LIMITS = ConnectionLimits(queued_max_request_bytes=CAPACITY_BYTES)
WAIT_S = 30
KIB = 1024


def memory_of(connections: Connections) -> request_memory.RequestMemory:
    return connections._memory


async def send_part(writer: asyncio.StreamWriter, size_bytes: int, part_bytes: int) -> None:
    writer.write(struct.pack(">i", size_bytes) + bytes(part_bytes))
    await writer.drain()


@on_loop
async def test_what_is_held_is_what_has_come_until_it_is_answered() -> None:
    waiting: list[tuple[Connection, bytes]] = []
    async with serving(lambda connection, request: waiting.append((connection, request)), LIMITS) as (
        connections,
        listener,
    ):
        memory = memory_of(connections)
        reader, writer = await connect(listener)
        await send_part(writer, 1 << 20, 200 * KIB)
        await wait_until_async(lambda: memory.used_bytes >= 200 * KIB)
        # Announced is not held.
        assert memory.used_bytes < 600 * KIB
        writer.write(bytes((1 << 20) - 200 * KIB))
        await wait_until_async(lambda: len(waiting) == 1)
        assert memory.used_bytes == 1 << 20
        connection, request = waiting.pop()
        connection.reply([frame(b"done")])
        assert memory.used_bytes == 0
        assert await read_frame(reader) == b"done"
        assert len(request) == 1 << 20
        writer.close()


@on_loop
async def test_half_sent_requests_have_a_bound_and_small_ones_are_served() -> None:
    async with serving(echo, LIMITS) as (connections, listener):
        memory = memory_of(connections)
        senders = []
        for _ in range(12):
            _, writer = await connect(listener)
            writer.write(struct.pack(">i", 3 << 20) + bytes(2 << 20))
            senders.append(writer)
        await wait_until_async(lambda: memory.waiting >= 10)
        # The one that has begun first may always go on.
        assert memory.used_bytes <= CAPACITY_BYTES + (3 << 20)
        reader, writer = await connect(listener)
        for size_bytes in (10, 1_000, 60 * KIB, 64 * KIB):
            request = bytes(size_bytes)
            writer.write(frame(request))
            async with asyncio.timeout(WAIT_S):
                assert await read_frame(reader) == request
        for sender in senders:
            sender.close()
        await wait_until_async(lambda: memory.used_bytes == 0 and memory.waiting == 0)
        writer.close()


@on_loop
async def test_half_sent_small_requests_have_a_bound_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that come as a whole are served all the same, once those that do not get on are ended."""
    if request_memory.__file__.endswith(".py"):
        monkeypatch.setattr(request_memory, "SILENT_MAX_S", 1.0)
        monkeypatch.setattr(request_memory, "CHECK_EVERY_S", 0.05)
    async with serving(echo, LIMITS) as (connections, listener):
        memory = connections._small_memory
        bound_bytes = CAPACITY_BYTES // request_memory.SMALL_PART
        assert memory.capacity_bytes == bound_bytes
        senders = []
        for _ in range(30):
            _, writer = await connect(listener)
            await send_part(writer, 120 * KIB, 110 * KIB)
            senders.append(writer)
        await wait_until_async(lambda: memory.waiting >= 30 - bound_bytes // (110 * KIB) - 1)
        assert memory.used_bytes <= bound_bytes + 120 * KIB
        reader, writer = await connect(listener)
        for size_bytes in (10, 1_000, 60 * KIB, 1 << 20):
            request = bytes(size_bytes)
            writer.write(frame(request))
            async with asyncio.timeout(WAIT_S):
                assert await read_frame(reader) == request
        for sender in senders:
            sender.close()
        await wait_until_async(lambda: memory.used_bytes == 0 and memory.waiting == 0)
        assert memory_of(connections).used_bytes == 0
        writer.close()


@pytest.mark.slow
@on_loop
async def test_all_that_wait_are_served_in_the_end() -> None:
    async with serving(echo, LIMITS) as (connections, listener):
        request = bytes(3 << 20)

        async def ask() -> bytes:
            reader, writer = await connect(listener)
            writer.write(frame(request))
            answer = await read_frame(reader)
            writer.close()
            return answer

        async with asyncio.timeout(WAIT_S):
            answers = await asyncio.gather(*(ask() for _ in range(20)))
        assert all(answer == request for answer in answers)
        assert memory_of(connections).used_bytes == 0


@pytest.mark.slow
@on_loop
async def test_a_request_that_does_not_get_on_is_ended_when_others_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if not request_memory.__file__.endswith(".py"):
        pytest.skip("constants of compiled modules stay as they are")
    monkeypatch.setattr(request_memory, "SILENT_MAX_S", 0.2)
    monkeypatch.setattr(request_memory, "CHECK_EVERY_S", 0.05)
    async with serving(echo, LIMITS) as (connections, listener):
        memory = memory_of(connections)
        silent = []
        for _ in range(4):
            reader, writer = await connect(listener)
            await send_part(writer, 2 << 20, (2 << 20) - 10)
            silent.append((reader, writer))
        await wait_until_async(lambda: memory.waiting > 0)
        reader, writer = await connect(listener)
        writer.write(frame(bytes(1 << 20)))
        async with asyncio.timeout(WAIT_S):
            assert len(await read_frame(reader)) == 1 << 20
        assert "others wait for memory" in caplog.text
        writer.close()
        for _, each in silent:
            each.close()


@on_loop
async def test_no_bound() -> None:
    async with serving(echo) as (connections, listener):
        writers = []
        for _ in range(10):
            _, writer = await connect(listener)
            await send_part(writer, 3 << 20, 2 << 20)
            writers.append(writer)
        await wait_until_async(lambda: memory_of(connections).used_bytes >= 20 << 20)
        assert memory_of(connections).waiting == 0
        for writer in writers:
            writer.close()
