"""A network in memory: streams of bytes that are delayed, cut into pieces, broken and closed, all from the seed.

Each direction of a connection has its own delays. The way from one host to another can be blocked: what is sent then
arrives when it is open again, as with TCP, and new connections fail. It can also be slow, more so for some connections
than for others: what is sent on one of them is overtaken by what is sent later on another one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.errors import NetworkException
from barnabas.net.channel import NOTHING_YET
from barnabas.net.transport import Accepted, Acceptor, ListenOptions
from barnabas.primitives.file_slice import OpenFile
from tests.simulation.world import Process, World

DELAY_S_MAX: Final = 0.02
# As much may be on its way in one direction before the sender has to wait.
WINDOW_BYTES: Final = 64 * 1024
# Of all ranges of files, so many are not in memory when they are to be sent.
COLD_SHARE: Final = 0.1
EPHEMERAL_PORT: Final = 50_000


@dataclass(frozen=True, slots=True)
class Delivery:
    """A line of the transcript: bytes that arrived, or None for the end of a stream."""

    time_s: float
    stream: str
    data: bytes | None


class Network:
    def __init__(self, world: World) -> None:
        self.world = world
        self.transcript: list[Delivery] = []
        self._listening: dict[tuple[str, int], NetworkAcceptor] = {}
        self._connections: list[tuple[NetworkChannel, NetworkChannel]] = []
        self._count = 0
        # The ways from one host to another that carry nothing, each with the number of faults that block it.
        self._blocked: dict[tuple[str, str], int] = {}
        # By how much each fault delays the slowest connection of a way.
        self._slow_s: dict[tuple[str, str], list[float]] = {}

    def block(self, source: str, target: str) -> None:
        """Nothing gets from one host to the other until `unblock` was called as often."""
        self._blocked[source, target] = self._blocked.get((source, target), 0) + 1

    def unblock(self, source: str, target: str) -> None:
        self._blocked[source, target] -= 1
        if self._blocked[source, target]:
            return
        del self._blocked[source, target]
        self._forget_ended()
        for pair in self._connections:
            for channel in pair:
                channel.arrive_held()

    def slow_down(self, source: str, target: str, delay_s: float) -> None:
        """Delays each connection of a way by a part of this time, until `speed_up` is called with the same."""
        self._slow_s.setdefault((source, target), []).append(delay_s)

    def speed_up(self, source: str, target: str, delay_s: float) -> None:
        self._slow_s[source, target].remove(delay_s)

    def delay_s(self, source: str, target: str) -> float:
        return max(self._slow_s.get((source, target), ()), default=0.0) if self._slow_s else 0.0

    def reset_between(self, one: str, other: str) -> None:
        """Breaks all connections between two hosts: what was sent and has not arrived is lost."""
        self._forget_ended()
        for pair in self._connections:
            if {each.host for each in pair} == {one, other}:
                for each in pair:
                    each.reset()

    def is_blocked(self, source: str, target: str) -> bool:
        return (source, target) in self._blocked

    def transport(self, process: Process) -> NetworkTransport:
        return NetworkTransport(self, process)

    def listen(self, process: Process, port: int) -> NetworkAcceptor:
        address = (process.name, port)
        if address in self._listening:
            raise OSError(f"another process listens on {process.name}:{port}")
        acceptor = self._listening[address] = NetworkAcceptor(self, process, port)
        process.on_kill.append(acceptor.close)
        return acceptor

    def stop_listening(self, acceptor: NetworkAcceptor) -> None:
        self._listening.pop((acceptor.process.name, acceptor.port), None)

    async def connect(self, process: Process, host: str, port: int, timeout_s: float) -> NetworkChannel:
        await asyncio.sleep(process.rng.random() * DELAY_S_MAX)
        if self.is_blocked(process.name, host) or self.is_blocked(host, process.name):
            await asyncio.sleep(timeout_s)
            raise NetworkException(f"{host}:{port} cannot be reached: no answer within {timeout_s:g} s")
        acceptor = self._listening.get((host, port))
        if acceptor is None:
            raise NetworkException(f"{host}:{port} cannot be reached: Connection refused")
        self._count += 1
        name = f"{self._count} {process.name}"
        ours = NetworkChannel(self, process, f"{name} -> {host}")
        theirs = NetworkChannel(self, acceptor.process, f"{name} <- {host}")
        ours.peer, theirs.peer = theirs, ours
        self._connections.append((ours, theirs))
        acceptor.take((theirs, process.name, EPHEMERAL_PORT + self._count))
        return ours

    def cut_one(self) -> None:
        """Breaks a connection, chosen by the seed: both sides lose what is on its way."""
        self._forget_ended()
        if self._connections:
            ours, theirs = self.world.rng.choice(self._connections)
            ours.reset()
            theirs.reset()

    def _forget_ended(self) -> None:
        self._connections = [pair for pair in self._connections if not all(each.is_over for each in pair)]


class NetworkTransport:
    """The network as one process sees it."""

    def __init__(self, network: Network, process: Process) -> None:
        self._network = network
        self._process = process

    def listen(self, host: str, port: int, options: ListenOptions) -> Acceptor:
        return self._network.listen(self._process, port)

    async def connect(self, host: str, port: int, *, timeout_s: float) -> NetworkChannel:
        return await self._network.connect(self._process, host, port, timeout_s)

    def is_cached(self, file: OpenFile, position: int, count: int) -> bool:
        return self._process.rng.random() >= COLD_SHARE


class NetworkAcceptor:
    is_writable = False

    def __init__(self, network: Network, process: Process, port: int) -> None:
        self.process = process
        self.port = port
        self.waiting: deque[tuple[NetworkChannel, str, int]] = deque()
        self._network = network
        self._descriptor = process.loop.watch(self)

    def take(self, connection: tuple[NetworkChannel, str, int]) -> None:
        self.waiting.append(connection)
        self.process.loop.touch(self._descriptor)

    @property
    def is_readable(self) -> bool:
        return bool(self.waiting)

    def fileno(self) -> int:
        return self._descriptor

    def accept(self) -> Accepted:
        if not self.waiting:
            raise BlockingIOError
        channel, host, port = self.waiting.popleft()
        return Accepted(
            channel=channel,
            peer_host=host,
            peer=f"{host}:{port}",
            local=f"{self.process.name}:{self.port}",
        )

    def close(self) -> None:
        self._network.stop_listening(self)
        self.process.loop.unwatch(self._descriptor)
        for channel, _, _ in self.waiting:
            channel.close()
        self.waiting.clear()


class NetworkChannel:
    """One end of a connection. What it sends arrives at its peer later, in pieces, in order."""

    peer: NetworkChannel

    def __init__(self, network: Network, process: Process, name: str) -> None:
        self._network = network
        self._world = network.world
        self._process = process
        self._name = name
        self._descriptor = process.loop.watch(self)
        self._arrived: deque[bytes] = deque()
        self._has_ended = False
        self._is_reset = False
        self._is_closed = False
        self._is_aborted = False
        # Of the direction from here to the peer.
        self._on_its_way_bytes = 0
        self._held: list[bytes | None] = []
        self._last_delivery_s = 0.0
        # Which part of the delay of a slow way this connection has.
        self._slowness = network.world.rng.random()
        process.on_kill.append(self.close)

    @property
    def host(self) -> str:
        return self._process.name

    @property
    def is_over(self) -> bool:
        return self._is_closed or self._is_reset

    @property
    def is_readable(self) -> bool:
        return bool(self._arrived) or self._has_ended or self._is_reset

    @property
    def is_writable(self) -> bool:
        return self._is_reset or self._on_its_way_bytes < WINDOW_BYTES

    def fileno(self) -> int:
        return self._descriptor

    def receive_into(self, buffer: memoryview) -> int:
        data = self.receive(len(buffer))
        if data is None:
            return NOTHING_YET
        buffer[: len(data)] = data
        return len(data)

    def receive(self, max_bytes: int) -> bytes | None:
        if self._is_reset:
            raise ConnectionResetError("Connection reset by peer")
        if not self._arrived:
            return b"" if self._has_ended else None
        data = self._arrived.popleft()
        if len(data) > max_bytes:
            self._arrived.appendleft(data[max_bytes:])
        return data[:max_bytes]

    def has_ended(self) -> bool:
        return self._is_reset or (self._has_ended and not self._arrived)

    def send(self, parts: Sequence[bytes | bytearray | memoryview], *, more_follows: bool) -> int:
        return self._send(b"".join(parts))

    def send_file(self, file: OpenFile, position: int, count: int) -> int:
        room = WINDOW_BYTES - self._on_its_way_bytes
        return self._send(file.pread(min(count, max(room, 1)), position))

    def _send(self, data: bytes) -> int:
        if self._is_reset or not self._process.is_alive:
            raise BrokenPipeError("Broken pipe")
        taken = data[: WINDOW_BYTES - self._on_its_way_bytes]
        if data and not taken:
            raise BlockingIOError
        self._on_its_way_bytes += len(taken)
        position = 0
        rng = self._world.rng
        while position < len(taken):
            # Most pieces are whole, as on a real network; some end anywhere.
            end = len(taken) if rng.random() < 0.8 else rng.randint(position + 1, len(taken))
            self._deliver(taken[position:end])
            position = end
        return len(taken)

    def _deliver(self, data: bytes | None) -> None:
        """Has the peer receive the data, or the end of the stream, after all that was sent before."""
        rng, world = self._world.rng, self._world
        delay_s = rng.random() * DELAY_S_MAX + self._slowness * self._network.delay_s(
            self.host, self.peer.host
        )
        due_s = max(world.now_s + delay_s, self._last_delivery_s)
        self._last_delivery_s = due_s
        world.call_at(due_s, lambda: self._arrive(data))

    def arrive_held(self) -> None:
        """Has arrive what was sent while the way was blocked."""
        held, self._held = self._held, []
        for data in held:
            self._arrive(data)

    def _arrive(self, data: bytes | None) -> None:
        peer = self.peer
        if self._held or self._network.is_blocked(self._process.name, peer._process.name):
            self._held.append(data)
            return
        if data is not None:
            self._on_its_way_bytes -= len(data)
            self._process.loop.touch(self._descriptor)
        if peer.is_over or (self._is_aborted and data is not None):
            return
        self._network.transcript.append(Delivery(self._world.now_s, self._name, data))
        if data is None:
            peer._has_ended = True
        else:
            peer._arrived.append(data)
        peer._process.loop.touch(peer._descriptor)

    def reset(self) -> None:
        self._is_reset = True
        self._held.clear()
        self._process.loop.touch(self._descriptor)
        self._arrived.clear()

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._process.loop.unwatch(self._descriptor)
            if not self._is_reset:
                self._deliver(None)

    def abort(self) -> None:
        """What is on its way is lost, but the end of the stream is not."""
        self._is_aborted = True
        self.close()
