"""Handshakes of TLS: those of a broker's new connections, bounded in number and time, and that of a client.

A handshake needs no thread: each step runs when the socket is ready. If too many are open, the oldest ends: it is one
that makes no progress, because a usual handshake takes milliseconds.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from typing import Final

from barnabas.errors import NetworkException, SaslAuthenticationFailed
from barnabas.net.channel import Channel, PlainChannel
from barnabas.net.tls_channel import TlsChannel, explained, is_hang_up, wrap

log = logging.getLogger(__name__)

HALF_OPEN_MAX: Final = 1_000
TIMEOUT_S: Final = 10.0

OnFailure = Callable[[], object]


class TlsRefused(SaslAuthenticationFailed):
    """The handshake with a broker failed. Another attempt would fail too."""


class _Handshake:
    """`on_end` gets the socket, or the reason why there is no connection."""

    __slots__ = ("_is_reading", "_is_writing", "_loop", "_on_end", "_socket", "_timer", "has_ended", "peer")

    def __init__(
        self,
        secured: ssl.SSLSocket,
        loop: AbstractEventLoop,
        peer: str,
        timeout_s: float,
        on_end: Callable[[_Handshake, ssl.SSLSocket | None, OSError | None], None],
    ) -> None:
        self.peer = peer
        self.has_ended = False
        self._socket = secured
        self._loop = loop
        self._on_end = on_end
        self._is_reading = False
        self._is_writing = False
        self._timer: TimerHandle = loop.call_later(
            timeout_s, self.fail, TimeoutError(f"not complete after {timeout_s:g} s")
        )

    def step(self) -> None:
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            self._watch(reading=True, writing=False)
        except ssl.SSLWantWriteError:
            self._watch(reading=False, writing=True)
        except (OSError, ValueError) as error:
            self.fail(error if isinstance(error, OSError) else OSError(str(error)))
        else:
            self._end(None)

    def fail(self, error: OSError) -> None:
        self._end(error)

    def _end(self, error: OSError | None) -> None:
        self.has_ended = True
        self._watch(reading=False, writing=False)
        self._timer.cancel()
        if error is not None:
            self._socket.close()
        self._on_end(self, None if error is not None else self._socket, error)

    def _watch(self, *, reading: bool, writing: bool) -> None:
        descriptor = self._socket.fileno()
        if reading != self._is_reading:
            self._is_reading = reading
            if reading:
                self._loop.add_reader(descriptor, self.step)
            else:
                self._loop.remove_reader(descriptor)
        if writing != self._is_writing:
            self._is_writing = writing
            if writing:
                self._loop.add_writer(descriptor, self.step)
            else:
                self._loop.remove_writer(descriptor)


class Handshakes:
    """The half-open connections of a broker."""

    def __init__(
        self, loop: AbstractEventLoop, *, timeout_s: float = TIMEOUT_S, half_open_max: int = HALF_OPEN_MAX
    ) -> None:
        self._loop = loop
        self._timeout_s = timeout_s
        self._half_open_max = half_open_max
        self._half_open: dict[_Handshake, tuple[Callable[[TlsChannel | None], None], OnFailure]] = {}
        self.failed = 0

    def __len__(self) -> int:
        return len(self._half_open)

    def begin(
        self,
        channel: Channel,
        context: ssl.SSLContext,
        peer: str,
        on_end: Callable[[TlsChannel | None], None],
        on_failure: OnFailure = lambda: None,
    ) -> None:
        """Calls `on_end` with the channel, now or later, or with None if the handshake failed.

        Calls `on_failure` before if what the peer has sent was refused.
        """
        assert isinstance(channel, PlainChannel), "TLS needs a socket"
        try:
            secured = wrap(channel.take_socket(), context)
        except OSError as error:
            # The peer has gone already.
            log.debug("TLS handshake with %s failed: %s", peer, error)
            channel.close()
            on_end(None)
            return
        if len(self._half_open) >= self._half_open_max:
            oldest = next(iter(self._half_open))
            oldest.fail(
                TimeoutError(f"more than {self._half_open_max} handshakes are open, and this is the oldest")
            )
        handshake = _Handshake(secured, self._loop, peer, self._timeout_s, self._ended)
        self._half_open[handshake] = (on_end, on_failure)
        handshake.step()

    def close(self) -> None:
        for handshake in list(self._half_open):
            handshake.fail(ConnectionAbortedError("the broker stops"))

    def _ended(self, handshake: _Handshake, secured: ssl.SSLSocket | None, error: OSError | None) -> None:
        on_end, on_failure = self._half_open.pop(handshake)
        if secured is None:
            assert error is not None
            self.failed += 1
            # A client that leaves, a port scan for example, is nothing unusual.
            level = logging.DEBUG if is_hang_up(error) else logging.WARNING
            log.log(level, "TLS handshake with %s failed: %s", handshake.peer, explained(error))
            if isinstance(error, ssl.SSLError) and not is_hang_up(error):
                on_failure()
            on_end(None)
        else:
            on_end(TlsChannel(secured))


async def secure(
    channel: Channel, context: ssl.SSLContext, host: str, *, peer: str, timeout_s: float
) -> TlsChannel:
    """TLS around a client's connection. Raises NetworkException, or TlsRefused, and closes the channel then."""
    assert isinstance(channel, PlainChannel), "TLS needs a socket"
    loop = asyncio.get_running_loop()
    done: asyncio.Future[TlsChannel] = loop.create_future()

    def ended(_: _Handshake, secured: ssl.SSLSocket | None, error: OSError | None) -> None:
        if done.done():
            if secured is not None:
                secured.close()
        elif secured is not None:
            done.set_result(TlsChannel(secured))
        else:
            assert error is not None
            done.set_exception(_failure(peer, error))

    try:
        secured = wrap(channel.take_socket(), context, server_hostname=host)
    except OSError as error:
        channel.close()
        raise _failure(peer, error) from None
    handshake = _Handshake(secured, loop, peer, timeout_s, ended)
    handshake.step()
    try:
        return await done
    except asyncio.CancelledError:
        if not handshake.has_ended:
            handshake.fail(ConnectionAbortedError("cancelled"))
        raise


def _failure(peer: str, error: OSError) -> NetworkException | TlsRefused:
    text = f"the TLS handshake with {peer} failed: {explained(error)}"
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
        return TlsRefused(text)
    return NetworkException(text)
