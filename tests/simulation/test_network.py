"""The simulated network: order, back-pressure, breaks and ends."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.errors import NetworkException
from barnabas.net.channel import Channel
from barnabas.net.transport import ListenOptions
from tests.simulation.network import WINDOW_BYTES, Network
from tests.simulation.world import Process, World


class Pair:
    """A client and a server that are connected."""

    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed)
        self.network = Network(self.world)
        self.client, self.server = self.world.process("client"), self.world.process("server")
        acceptor = self.network.transport(self.server).listen("server", 1, ListenOptions())
        connecting = self.network.transport(self.client).connect("server", 1, timeout_s=1)
        self.ours: Channel = self.world.run(self.client, connecting)
        self.theirs = acceptor.accept().channel

    def read_until(self, process: Process, channel: Channel, size_bytes: int) -> bytes:
        async def read() -> bytes:
            loop = process.loop
            received = bytearray()
            while len(received) < size_bytes:
                readable = loop.create_future()
                loop.add_reader(channel.fileno(), readable.set_result, None)
                await readable
                loop.remove_reader(channel.fileno())
                data = channel.receive(1 << 20)
                if not data:
                    break
                received += data
            return bytes(received)

        return self.world.run(process, read())


def test_bytes_arrive_later_in_pieces_and_in_order() -> None:
    pair = Pair()
    sent = bytes(range(256)) * 100
    for start in range(0, len(sent), 500):
        pair.ours.send([sent[start : start + 500]], more_follows=False)
    assert pair.theirs.receive(10) is None
    assert pair.read_until(pair.server, pair.theirs, len(sent)) == sent
    assert pair.world.now_s > 0
    arrived = [each.data for each in pair.network.transcript if each.data is not None]
    assert b"".join(arrived) == sent
    assert len(arrived) > len(sent) // 500
    pair.world.close()


def test_a_sender_waits_for_room() -> None:
    pair = Pair()
    data = bytes(2 * WINDOW_BYTES)
    assert pair.ours.send([data], more_follows=False) == WINDOW_BYTES
    with pytest.raises(BlockingIOError):
        pair.ours.send([data], more_follows=False)
    assert len(pair.read_until(pair.server, pair.theirs, WINDOW_BYTES)) == WINDOW_BYTES
    assert pair.ours.send([data], more_follows=False) == WINDOW_BYTES
    pair.world.close()


def test_the_end_of_a_stream_comes_after_its_bytes() -> None:
    pair = Pair()
    pair.ours.send([b"last words"], more_follows=False)
    pair.ours.close()
    assert pair.read_until(pair.server, pair.theirs, 1_000) == b"last words"
    assert pair.theirs.has_ended()
    pair.world.close()


def test_a_cut_connection_loses_what_is_on_its_way() -> None:
    pair = Pair()
    pair.ours.send([b"lost"], more_follows=False)
    pair.network.cut_one()
    pair.world.run(pair.server, asyncio.sleep(1))
    with pytest.raises(ConnectionResetError):
        pair.theirs.receive(10)
    with pytest.raises(BrokenPipeError):
        pair.ours.send([b"more"], more_follows=False)
    pair.world.close()


def test_the_peer_of_a_killed_process_sees_the_end() -> None:
    pair = Pair()
    pair.server.kill()
    assert pair.read_until(pair.client, pair.ours, 1) == b""
    with pytest.raises(NetworkException, match="refused"):
        pair.world.run(pair.client, pair.network.transport(pair.client).connect("server", 1, timeout_s=1))
    pair.world.close()


def test_a_way_is_open_again_when_all_faults_are_over() -> None:
    pair = Pair()
    way = ("client", "server")
    for _ in range(2):
        pair.network.block(*way)
    pair.ours.send([b"held"], more_follows=False)
    pair.network.unblock(*way)
    pair.world.run(pair.server, asyncio.sleep(1))
    assert pair.theirs.receive(10) is None
    pair.network.unblock(*way)
    assert pair.theirs.receive(10) == b"held"
    pair.network.slow_down(*way, 3.0)
    pair.network.slow_down(*way, 1.0)
    pair.network.speed_up(*way, 3.0)
    assert pair.network.delay_s(*way) == 1.0
    pair.network.speed_up(*way, 1.0)
    assert pair.network.delay_s(*way) == 0.0
    pair.world.close()
