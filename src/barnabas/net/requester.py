"""The requesting side of a connection: requests go out at once, responses come back in the order of the requests.

A request goes out behind the requests that wait for a response, up to a bound. A broker answers in order, so a response
always belongs to the oldest request. Any failure (the end of the stream, bytes that are not a response, a request
without a response in time) ends the connection, and every request in progress gets the reason: it is unknown whether
the broker has carried it out.

All calls happen on the loop. A callback must not raise; it may send further requests.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop, TimerHandle
from collections import deque
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Any, Final

from barnabas.errors import KafkaError, NetworkException, RequestTimedOut
from barnabas.net.channel import Channel, receive_frames
from barnabas.net.outbox import Outbox
from barnabas.primitives.file_slice import OpenFile
from barnabas.protocol.apis import Api
from barnabas.protocol.codec import decode, decode_prefix, encode, encode_parts
from barnabas.protocol.frames import FrameReader
from barnabas.protocol.message import Message
from barnabas.protocol.messages.request_header import RequestHeader
from barnabas.protocol.messages.response_header import ResponseHeader

log = logging.getLogger(__name__)

MAX_IN_FLIGHT: Final = 1_000
MAX_RESPONSE_BYTES: Final = 512 * 1024 * 1024
READS_A_TURN: Final = 8
CORRELATION_ID_MASK: Final = 0x7FFF_FFFF

_SIZE: Final = Struct(">i")

# The answer, or None with the reason why there is none.
OnDone = Callable[[Any, KafkaError | None], None]


class _Waiting:
    """A request that has no answer yet."""

    __slots__ = ("api", "correlation_id", "deadline_s", "on_done", "sent_s", "version")

    def __init__(
        self, api: Api, version: int, correlation_id: int, sent_s: float, deadline_s: float, on_done: OnDone
    ) -> None:
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.sent_s = sent_s
        self.deadline_s = deadline_s
        self.on_done = on_done


class Requester:
    __slots__ = (
        "_channel",
        "_client_id",
        "_correlation_id",
        "_frames",
        "_held",
        "_held_back",
        "_is_reading",
        "_is_writing",
        "_loop",
        "_on_close",
        "_outbox",
        "_reader",
        "_sending",
        "_timer",
        "_timer_s",
        "_waiting",
        "closed_by",
        "last_active_s",
        "peer",
    )

    def __init__(
        self,
        channel: Channel,
        *,
        loop: AbstractEventLoop,
        receive_buffer: bytearray,
        client_id: str | None,
        peer: str,
        on_close: Callable[[Requester], None],
        max_response_bytes: int = MAX_RESPONSE_BYTES,
    ) -> None:
        self.peer = peer
        # Why the connection ended; None while it is open.
        self.closed_by: KafkaError | None = None
        self.last_active_s: float = loop.time()
        self._channel = channel
        # As in `Connection`.
        self._held_back: Callable[[], bool] | None = getattr(channel, "holds_back", None)
        self._loop = loop
        self._client_id = client_id
        self._on_close = on_close
        self._reader = FrameReader(max_frame_bytes=max_response_bytes, receive_buffer=receive_buffer)
        self._frames: deque[bytes] = deque()
        self._outbox = Outbox(_no_files)
        self._waiting: deque[_Waiting] = deque()
        # The requests that wait until the session is renewed; None while there is nothing to wait for.
        self._held: deque[Callable[[], None]] | None = None
        # The callbacks of requests that expect no response, until these are sent.
        self._sending: list[OnDone] = []
        self._correlation_id = 0
        self._timer: TimerHandle | None = None
        self._timer_s: float = 0.0
        self._is_reading = False
        self._is_writing = False

    def open(self) -> None:
        self._loop.add_reader(self._channel.fileno(), self._on_readable)
        self._is_reading = True
        if self._held_back is not None:
            self._loop.call_soon(self._on_held_back)

    @property
    def in_flight(self) -> int:
        return len(self._waiting) if self._held is None else len(self._waiting) + len(self._held)

    @property
    def pending_bytes(self) -> int:
        """Bytes of requests that the system has not taken yet."""
        return self._outbox.pending_bytes

    def is_idle_since(self, time_s: float) -> bool:
        """Whether nothing was sent or received since then, nor waits for that."""
        return not self._waiting and not self._sending and self._held is None and self.last_active_s < time_s

    def send(
        self,
        api: Api,
        version: int,
        body: Message,
        on_done: OnDone,
        *,
        timeout_s: float,
        expects_response: bool = True,
        is_ahead: bool = False,
    ) -> None:
        """Sends a request. Calls `on_done` once, later: with the response, or with None and the reason.

        A request without a response is done when the system has taken all its bytes. Raises EncodeError.
        """
        if self.closed_by is not None:
            self._loop.call_soon(on_done, None, self.closed_by)
            return
        if self._held is not None and not is_ahead:
            held = partial(
                self.send, api, version, body, on_done, timeout_s=timeout_s, expects_response=expects_response
            )
            self._held.append(held)
            return
        assert len(self._waiting) < MAX_IN_FLIGHT, "the caller bounds what is under way"
        correlation_id = self._correlation_id
        header_version = api.request_header_version(version)
        header = encode(
            RequestHeader(
                request_api_key=api.key,
                request_api_version=version,
                correlation_id=correlation_id,
                client_id=self._client_id if header_version > 0 else "",
            ),
            header_version,
        )
        # Records are sent from where they are; small parts are joined with the header.
        parts = encode_parts(body, version)
        size = len(header)
        for part in parts:
            size += len(part)
        first = parts[0]
        assert isinstance(first, bytes)
        self._outbox.add(_SIZE.pack(size) + header + first)
        for part in parts[1:]:
            self._outbox.add(part)
        self._correlation_id = (correlation_id + 1) & CORRELATION_ID_MASK
        if expects_response:
            now_s = self._loop.time()
            deadline_s = now_s + timeout_s
            self._waiting.append(_Waiting(api, version, correlation_id, now_s, deadline_s, on_done))
            self._watch_deadline(deadline_s)
        else:
            # No response will show that the connection is in use.
            self.last_active_s = self._loop.time()
            self._sending.append(on_done)
        if not self._is_writing:
            self._flush()

    def hold(self) -> None:
        """From now on only requests that are `ahead` go out, until `release`."""
        if self._held is None:
            self._held = deque()

    def release(self) -> None:
        """Sends the requests that have come meanwhile; after the end of the connection they get its reason."""
        held = self._held
        self._held = None
        while held:
            held.popleft()()

    def close(self, reason: KafkaError | None = None, *, aborts: bool = False) -> None:
        """Ends the connection. Requests in progress get the reason, later on the loop.

        With `aborts`, a request that has not arrived by now never arrives. A request that is sent again on another
        connection could otherwise arrive once more, after later ones.
        """
        if self.closed_by is not None:
            return
        error = (
            reason if reason is not None else NetworkException(f"the connection to {self.peer} was closed")
        )
        self.closed_by = error
        if self._is_reading:
            self._loop.remove_reader(self._channel.fileno())
        if self._is_writing:
            self._loop.remove_writer(self._channel.fileno())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._outbox.clear()
        if aborts:
            self._channel.abort()
        else:
            self._channel.close()
        waiting = list(self._waiting)
        self._waiting.clear()
        for each in waiting:
            self._loop.call_soon(each.on_done, None, error)
        self._end_sending(error)
        self.release()
        self._on_close(self)

    def _on_held_back(self) -> None:
        if self.closed_by is None:
            self._on_readable()

    def _on_readable(self) -> None:
        self.last_active_s = self._loop.time()
        try:
            for _ in range(READS_A_TURN):
                if self.closed_by is not None or not self._receive():
                    break
            if self._held_back is not None and self.closed_by is None and self._held_back():
                self._loop.call_soon(self._on_held_back)
        except KafkaError as kafka_error:
            self.close(NetworkException(f"{self.peer} sent bytes that are no answer: {kafka_error}"))
        except OSError as system_error:
            self.close(NetworkException(f"the connection to {self.peer} was lost: {system_error}"))

    def _receive(self) -> bool:
        """One read; whether more is expected at once, which is the rest of an answer that has begun to come."""
        frames = self._frames
        count = receive_frames(self._channel, self._reader, frames)
        if count <= 0:
            if count == 0:
                self.close(NetworkException(f"{self.peer} closed the connection"))
            return False
        while frames:
            self._answer(frames.popleft())
        if self._reader.error is not None:
            raise self._reader.error
        return self._reader.in_frame

    def _answer(self, frame: bytes) -> None:
        if not self._waiting:
            raise NetworkException("an answer to no request")
        oldest = self._waiting[0]
        api = oldest.api
        header, position = decode_prefix(ResponseHeader, frame, api.response_header_version(oldest.version))
        if header.correlation_id != oldest.correlation_id:
            raise NetworkException(
                f"the answer to request {header.correlation_id} came in place of that to {oldest.correlation_id}"
            )
        body = _decode_body(api, oldest.version, frame, position)
        self._waiting.popleft()
        oldest.on_done(body, None)

    def _flush(self) -> None:
        try:
            is_all_sent = self._outbox.flush(self._channel)
        except BlockingIOError:
            is_all_sent = False
        except OSError as error:
            self.close(NetworkException(f"the connection to {self.peer} was lost: {error}"))
            return
        if is_all_sent and self._sending:
            self._end_sending(None)
        if is_all_sent == self._is_writing:
            self._is_writing = not is_all_sent
            if is_all_sent:
                self._loop.remove_writer(self._channel.fileno())
            else:
                self._loop.add_writer(self._channel.fileno(), self._flush)

    def _end_sending(self, error: KafkaError | None) -> None:
        sending = self._sending
        self._sending = []
        for on_done in sending:
            self._loop.call_soon(on_done, None, error)

    def _watch_deadline(self, deadline_s: float) -> None:
        if self._timer is not None:
            if self._timer_s <= deadline_s:
                return
            self._timer.cancel()
        self._timer_s = deadline_s
        self._timer = self._loop.call_at(deadline_s, self._on_deadline)

    def _on_deadline(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        now_s = self._loop.time()
        first_s = min(each.deadline_s for each in self._waiting)
        if first_s > now_s:
            self._watch_deadline(first_s)
            return
        late = next(each for each in self._waiting if each.deadline_s <= now_s)
        waited_ms = round((now_s - late.sent_s) * 1000)
        self.close(
            RequestTimedOut(
                f"{self.peer} did not answer a {late.api.name} request within {waited_ms} ms"
                " (request.timeout.ms); the connection was closed"
            ),
            aborts=True,
        )


def _no_files(file: OpenFile, position: int, count: int) -> bool:
    raise AssertionError("a request has no slices of files")


def _decode_body(api: Api, version: int, frame: bytes, position: int) -> Message:
    if api.name == "ApiVersions" and version > 0 and frame[position : position + 2] == b"\x00\x23":
        # A broker that does not know the version answers UNSUPPORTED_VERSION in the form of version 0.
        version = 0
    message: Message = decode(api.response_class(), frame, version, position)
    return message
