"""One connection: frames in, one request at a time, replies out in the order of the requests.

As in Apache Kafka, a connection has at most one request in progress: it takes the next request when it has written the
reply to the last one. Clients may send ahead. These bytes wait in the receive buffer and in the kernel, so the
connection soon stops reading from a client that does not read its replies, and no memory grows with what a peer does.

The connection calls its handler with itself and a frame. The handler calls `reply` exactly once, at once or later;
`reply()` without parts is for requests that want no response. An exception of a handler closes its connection and no
other. A handler that replies later may set `on_hang_up`, which is called if the peer ends its stream before the reply,
and if the connection closes. A peer that still reads gets the reply. The handler need not wait any longer for a peer
that is gone.
"""

from __future__ import annotations

import contextlib
import logging
from asyncio import AbstractEventLoop, TimerHandle
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Final

from barnabas.errors import KafkaError
from barnabas.net.channel import Channel, receive_frames
from barnabas.net.outbox import ColdRange, IsCached, Outbox, Part
from barnabas.net.page_cache import read_ahead
from barnabas.net.request_memory import SMALL_BYTES, RequestMemory
from barnabas.protocol.frames import FrameReader

log = logging.getLogger(__name__)

# A connection that always has more to read yields to the others after this many reads. A large frame takes two.
READS_A_TURN: Final = 16
# The first reply of a turn is written at once, the others together, up to this size: waking up a client costs about as
# much as a small request.
REPLIES_TOGETHER_BYTES: Final = 256 * 1024

FrameHandler = Callable[["Connection", bytes], None]
CloseListener = Callable[["Connection"], None]


class Shared:
    """The parts that all connections of a broker share."""

    __slots__ = ("executor", "is_cached", "loop", "memory", "on_close", "small_memory")

    def __init__(
        self,
        loop: AbstractEventLoop,
        executor: Executor,
        memory: RequestMemory,
        small_memory: RequestMemory,
        is_cached: IsCached,
        on_close: CloseListener,
    ) -> None:
        self.loop = loop
        self.executor = executor
        self.memory = memory
        self.small_memory = small_memory
        self.is_cached = is_cached
        self.on_close = on_close


class Connection:
    __slots__ = (
        "_channel",
        "_executor",
        "_frames",
        "_handler",
        "_has_replied",
        "_held_back",
        "_held_bytes",
        "_in_turn",
        "_is_awaiting_reply",
        "_is_cold",
        "_is_reading",
        "_is_starved",
        "_is_writing",
        "_loop",
        "_memory",
        "_on_close",
        "_outbox",
        "_reader",
        "_resume",
        "_small_memory",
        "context",
        "is_closed",
        "last_active_s",
        "local",
        "on_hang_up",
        "peer",
    )

    def __init__(
        self,
        channel: Channel,
        shared: Shared,
        *,
        reader: FrameReader,
        handler: FrameHandler,
        peer: str,
        local: str,
    ) -> None:
        loop = shared.loop
        self.peer = peer
        self.local = local
        self.is_closed = False
        self.last_active_s = loop.time()
        # The handler's state for this client: its session, its principal, its software.
        self.context: object = None
        # Of the request under way, which is to be answered soon, if at all.
        self.on_hang_up: Callable[[], object] | None = None
        self._channel = channel
        # Whether the channel has received bytes for which no event will come: only TLS does that.
        self._held_back: Callable[[], bool] | None = getattr(channel, "holds_back", None)
        self._loop = loop
        self._executor = shared.executor
        self._reader = reader
        self._handler = handler
        self._on_close = shared.on_close
        # How much of the memory for large or small requests the current request holds, and whether it waits for more.
        self._memory = shared.memory
        self._small_memory = shared.small_memory
        self._held_bytes = 0
        self._is_starved = False
        self._outbox = Outbox(shared.is_cached)
        self._frames: deque[bytes] = deque()
        self._resume: TimerHandle | None = None
        self._has_replied = False
        self._is_awaiting_reply = False
        self._is_cold = False
        self._is_reading = False
        self._is_writing = False
        self._in_turn = False

    def open(self) -> None:
        self._watch_reading(True)
        if self._held_back is not None:
            # The client's first request may have come with the end of the TLS handshake.
            self._loop.call_soon(self._on_held_back)

    def use(self, handler: FrameHandler, *, max_frame_bytes: int) -> None:
        """From the next frame on, another handler and bound: clients that are not authenticated may do less."""
        self._handler = handler
        self._reader.set_max_frame_bytes(max_frame_bytes)

    @property
    def pending_bytes(self) -> int:
        return self._outbox.pending_bytes

    @property
    def is_awaiting_reply(self) -> bool:
        return self._is_awaiting_reply

    def is_idle_since(self, time_s: float) -> bool:
        """Whether the connection was inactive since that time of the loop.

        A client that waits for our reply is not idle.
        """
        return self.last_active_s < time_s and not (
            self._is_awaiting_reply or self._is_cold or self._resume or self._is_starved
        )

    def reply(self, parts: Sequence[Part] = (), delay_s: float = 0.0) -> None:
        """Answers the request under way. With a delay, the connection is not read from for that long (a throttle)."""
        if self.is_closed:
            return
        assert self._is_awaiting_reply, "a request is answered once"
        self._is_awaiting_reply = False
        self.on_hang_up = None
        if self._held_bytes:
            self._release_memory()
        for part in parts:
            self._outbox.add(part)
        if delay_s > 0.0:
            assert self._resume is None
            self._resume = self._loop.call_later(delay_s, self._end_of_throttle)
        if not self._in_turn:
            self._take_turn()

    def close(self, reason: str | None = None, ending: str = "by the broker") -> None:
        """Ends the connection. A reason is a warning to people; an ending is nothing unusual."""
        if self.is_closed:
            return
        self.is_closed = True
        if reason is not None:
            log.warning("connection from %s closed: %s", self.peer, reason)
        else:
            log.debug("Connection from %s to %s closed: %s", self.peer, self.local, ending)
        self._watch_reading(False)
        self._watch_writing(False)
        if self._resume is not None:
            self._resume.cancel()
            self._resume = None
        self._frames.clear()
        self._outbox.clear()
        self._channel.close()
        self._release_memory()
        self._hang_up()
        self._on_close(self)

    def _on_readable(self) -> None:
        if self._is_busy():
            # The connection does not read now; the turn that ends the waiting watches again.
            self._watch_reading(False)
            if self.on_hang_up is not None and self._channel.has_ended():
                self._hang_up()
            return
        self.last_active_s = self._loop.time()
        self._take_turn(is_readable=True)

    def _hang_up(self) -> None:
        on_hang_up = self.on_hang_up
        if on_hang_up is not None:
            self.on_hang_up = None
            on_hang_up()

    def _on_writable(self) -> None:
        self.last_active_s = self._loop.time()
        self._take_turn()

    def _end_of_throttle(self) -> None:
        self._resume = None
        self._take_turn()

    def _is_busy(self) -> bool:
        return self._is_awaiting_reply or self._is_writing or self._is_cold or self._resume is not None

    def _take_turn(self, is_readable: bool = False) -> None:
        """Reads, handles and writes until there is nothing to do, the connection must wait, or its turn is over."""
        assert not self._in_turn
        self._in_turn = True
        try:
            self._run_turn(is_readable)
        except (ConnectionResetError, BrokenPipeError):
            self.close(None, "reset by the client")
        except KafkaError as kafka_error:
            self.fail(f"{kafka_error.name}: {kafka_error}")
        except OSError as system_error:
            self.close(str(system_error))
        except Exception:
            log.exception("connection from %s: a request failed in an unforeseen way", self.peer)
            self.fail(None)
        finally:
            self._in_turn = False

    def fail(self, reason: str | None, ending: str = "by the broker") -> None:
        """Ends the connection at a request that failed.

        The requests before it were answered: sends what can be sent at once.
        """
        if self.is_closed:
            return
        with contextlib.suppress(OSError, KafkaError, ColdRange):
            self._outbox.flush(self._channel)
        self.close(reason, ending)

    def _run_turn(self, is_readable: bool) -> None:
        if not self._flush():
            return
        reads = 0
        expects_more = is_readable
        self._has_replied = False
        while True:
            self._handle_frames()
            if self.is_closed:
                return
            if self._is_busy():
                # A connection that cannot write now continues when the socket is writable, and handles the received
                # frames then.
                if not self._is_writing:
                    self._flush()
                return
            if self._outbox.pending_bytes >= REPLIES_TOGETHER_BYTES and not self._flush():
                return
            if self._frames:
                continue
            if self._reader.error is not None:
                raise self._reader.error
            if reads == READS_A_TURN or not expects_more or not self._receive():
                break
            # A small request is seldom followed by another one: another read costs more than waiting for the event.
            expects_more = len(self._frames) > 1 or self._reader.is_among_large
            reads += 1
        self._end_turn()

    def _end_turn(self) -> None:
        if not self.is_closed and self._flush():
            self._watch_reading(not self._is_starved)
            if self._held_back is not None and not self._is_starved and self._held_back():
                self._loop.call_soon(self._on_held_back)

    def _on_held_back(self) -> None:
        # A busy connection looks again at the end of its turn.
        if not self.is_closed and not self._is_busy():
            self._on_readable()

    def _handle_frames(self) -> None:
        frames = self._frames
        while frames and not self._is_awaiting_reply and self._resume is None and not self.is_closed:
            if self._outbox.pending_bytes >= REPLIES_TOGETHER_BYTES:
                return
            self._is_awaiting_reply = True
            self._handler(self, frames.popleft())
            if not self._has_replied and self._outbox.pending_bytes:
                # The client continues with this reply, and sends more, while the handler works on the next requests.
                self._has_replied = True
                if not self._flush():
                    return

    def _receive(self) -> bool:
        """One read; False if there are no bytes, or the stream has ended."""
        reader = self._reader
        if reader.payload_bytes < 0:
            if self._small_memory.is_full:
                # The system keeps the rest of a request until there is room for it.
                reader.receive_size_alone()
        elif (
            reader.arrived_bytes or reader.payload_bytes > SMALL_BYTES or self._small_memory.is_full
        ) and not self._reserve_memory():
            self._is_starved = True
            return False
        count = receive_frames(self._channel, self._reader, self._frames)
        if count == 0:
            reason = "it ended within a request" if self._reader.in_frame else None
            self.fail(reason, "by the client")
        return count > 0

    def _reserve_memory(self) -> bool:
        """Reserves memory for the next part of the current request; False if there is no room."""
        reader = self._reader
        wanted_bytes = reader.arrived_bytes + reader.missing_bytes - self._held_bytes
        if wanted_bytes > 0:
            memory = self._memory if reader.payload_bytes > SMALL_BYTES else self._small_memory
            if not memory.take(self, wanted_bytes, reader.payload_bytes):
                return False
            self._held_bytes += wanted_bytes
        return True

    def _release_memory(self) -> None:
        held_bytes = self._held_bytes
        self._held_bytes = 0
        if held_bytes or self._is_starved:
            self._is_starved = False
            memory = self._small_memory if self._small_memory.has(self) else self._memory
            memory.give_back(self, held_bytes)

    def memory_is_free(self) -> None:
        """There is room for what the request waits for."""
        self._is_starved = False
        if not self._is_busy():
            self._watch_reading(True)
            if self._held_back is not None:
                self._loop.call_soon(self._on_held_back)

    def _flush(self) -> bool:
        """True if everything is written; otherwise an event will call this again."""
        if self._is_cold:
            return False
        try:
            if self._outbox.flush(self._channel):
                if self._is_writing:
                    self._watch_writing(False)
                return True
        except BlockingIOError:
            pass
        except ColdRange as cold:
            self._read_ahead(cold)
            return False
        self._watch_writing(True)
        return False

    def _read_ahead(self, cold: ColdRange) -> None:
        self._is_cold = True
        self._watch_writing(False)
        reading = self._loop.run_in_executor(
            self._executor, read_ahead, cold.part.file, cold.position, cold.count
        )

        def warmed(_: object) -> None:
            self._is_cold = False
            # A broker that stops cancels what its threads have not begun, and closes its connections.
            error = None if reading.cancelled() else reading.exception()
            if self.is_closed or reading.cancelled():
                return
            if error is not None:
                self.close(f"{cold.part} could not be read: {error}")
                return
            self._outbox.trust_next_chunk()
            self._take_turn()

        reading.add_done_callback(warmed)

    def _watch_reading(self, wanted: bool) -> None:
        if wanted == self._is_reading:
            return
        self._is_reading = wanted
        if wanted:
            self._loop.add_reader(self._channel.fileno(), self._on_readable)
        else:
            self._loop.remove_reader(self._channel.fileno())

    def _watch_writing(self, wanted: bool) -> None:
        if wanted == self._is_writing:
            return
        self._is_writing = wanted
        if wanted:
            self._loop.add_writer(self._channel.fileno(), self._on_writable)
        else:
            self._loop.remove_writer(self._channel.fileno())
