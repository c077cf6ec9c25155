"""The authentication of one connection of a SASL listener, as in Kafka.

Before it is authenticated, a client may send ApiVersions and SaslHandshake, and then the messages of the mechanism: as
SaslAuthenticate requests after SaslHandshake version 1, and as bare bytes after version 0. Any other request ends the
connection. The frames come to this object first (it is the connection's handler), and go to the dispatcher if they may.
Once the client is authenticated the connection uses the dispatcher directly, so a request then costs nothing more.

If sessions have an end (`connections.max.reauth.ms`, or that of a token), a client authenticates again before it, as
the same user with the same mechanism. After the end this object takes the frames again, and refuses other requests.
"""

from __future__ import annotations

import logging
from asyncio import Task, TimerHandle, get_running_loop
from collections.abc import Callable, Mapping
from struct import Struct
from typing import Final, NamedTuple

from barnabas.broker.authentication.counts import AuthenticationCounts
from barnabas.broker.authentication.slow_server import NewSlowServer, SlowServer
from barnabas.broker.requests.session import ClientSession
from barnabas.clock import Clock
from barnabas.errors import IllegalSaslState, SaslAuthenticationFailed, UnsupportedSaslMechanism
from barnabas.net.connection import Connection, FrameHandler
from barnabas.security.sasl import Login, NewServer, SaslFailed, SaslServer

log = logging.getLogger(__name__)

SASL_HANDSHAKE_KEY: Final = 17
API_VERSIONS_KEY: Final = 18
SASL_AUTHENTICATE_KEY: Final = 36
# A client asks for versions once or twice.
API_VERSIONS_MAX: Final = 10
# No mechanism needs more messages.
MESSAGES_MAX: Final = 10
# As in Kafka, from one to the next: a client that authenticates again and again would keep the broker busy.
REAUTHENTICATION_MS_MIN: Final = 1_000
_SIZE: Final = Struct(">i")


class AuthenticationSettings(NamedTuple):
    """What the connections of a listener share."""

    servers: Mapping[str, NewServer | NewSlowServer]
    max_receive_bytes: int
    # By mechanism.
    max_reauth_ms: Mapping[str, int]
    failure_delay_s: float
    # Of authenticated clients.
    max_frame_bytes: int
    counts: AuthenticationCounts


class Authenticator:
    """Handles the frames of a connection that is not authenticated, or is to authenticate again."""

    def __init__(
        self,
        connection: Connection,
        session: ClientSession,
        settings: AuthenticationSettings,
        authenticated: FrameHandler,
        clock: Clock,
        call_later: Callable[..., TimerHandle],
    ) -> None:
        self._connection = connection
        self._session = session
        self._settings = settings
        self._authenticated = authenticated
        self._clock = clock
        self._call_later = call_later
        self._mechanism = ""
        self._server: SaslServer | SlowServer | None = None
        # The task of a bare message that a thread works on.
        self._slow_answer: Task[None] | None = None
        self._is_busy = False
        self._takes_bare_messages = False
        self._messages = 0
        self._api_versions = 0
        self._login: Login | None = None
        self._reauthentication_ms: int | None = None
        # Why the client has to go, at the next frame.
        self._refusal = ""
        self._has_session_end = False
        self._can_reauthenticate = False
        self._expiry: TimerHandle | None = None
        connection.use(self, max_frame_bytes=settings.max_receive_bytes)

    def __call__(self, connection: Connection, frame: bytes) -> None:
        if self._is_busy:
            self.count_failure()
            raise IllegalSaslState("a message came before the answer to the last one")
        if self._refusal:
            self.count_failure()
            self._call_later(self.failure_delay_s, connection.fail, self._refusal)
            return
        if self._takes_bare_messages:
            self._answer_bare(frame)
            return
        key = int.from_bytes(frame[:2], "big")
        if key == API_VERSIONS_KEY and self._server is None and self._login is None:
            self._api_versions += 1
            if self._api_versions > API_VERSIONS_MAX:
                self.count_failure()
                raise IllegalSaslState("too many ApiVersions requests before authentication")
        elif key != SASL_HANDSHAKE_KEY and (key != SASL_AUTHENTICATE_KEY or self._server is None):
            when = "after the end of the session" if self._login is not None else "before authentication"
            reason = f"a request with API key {key} came {when}"
            if self._login is not None and self._server is None:
                self._settings.counts.expired_connections_killed_count += 1
                raise IllegalSaslState(reason)
            self.count_failure()
            if self._server is None:
                raise IllegalSaslState(reason)
            self._call_later(self.failure_delay_s, self._refuse, frame, reason)
            return
        self._authenticated(connection, frame)

    @property
    def is_authenticated(self) -> bool:
        """Whether the client has logged in, and is not about to do so again."""
        return self._login is not None and self._server is None

    @property
    def mechanisms(self) -> list[str]:
        return list(self._settings.servers)

    def handshake(self, mechanism: str, version: int) -> None:
        """The client has chosen a mechanism. Raises UnsupportedSaslMechanism and IllegalSaslState."""
        if self._server is not None or self._takes_bare_messages:
            raise IllegalSaslState("SaslHandshake came within an authentication")
        if self._login is not None:
            self._begin_reauthentication()
        new_server = self._settings.servers.get(mechanism)
        if new_server is None:
            raise UnsupportedSaslMechanism(f"the listener has no mechanism {mechanism[:100]}")
        if self._login is not None and mechanism != self._mechanism:
            # As in Kafka, the client learns it with the next frame.
            self._refusal = (
                f"SASL mechanism '{mechanism}' requested by client is not supported for re-authentication of"
                f" mechanism '{self._mechanism}'"
            )
            self._connection.use(self, max_frame_bytes=self._settings.max_receive_bytes)
            return
        self._mechanism = mechanism
        self._server = new_server()
        self._messages = 0
        self._takes_bare_messages = version == 0
        self._connection.use(self, max_frame_bytes=self._settings.max_receive_bytes)

    def _begin_reauthentication(self) -> None:
        if not self._has_session_end:
            raise IllegalSaslState("the client is authenticated, and its session has no end")
        now_ms = self._clock.monotonic_ns() // 1_000_000
        last_ms = self._reauthentication_ms
        if last_ms is not None and now_ms - last_ms < REAUTHENTICATION_MS_MIN:
            raise IllegalSaslState("the client has authenticated again a moment ago")
        self._reauthentication_ms = now_ms

    def authenticate(self, message: bytes, version: int = 0) -> bytes:
        """The answer to a message of the mechanism. Raises SaslAuthenticationFailed and IllegalSaslState."""
        server = self._next_server(version)
        assert not isinstance(server, SlowServer)
        answer = server.step(message)
        if server.login is not None:
            self._succeed(server.login)
        return answer

    @property
    def is_slow(self) -> bool:
        """Whether threads work on the messages of the mechanism: then `authenticate_slowly` answers them."""
        return isinstance(self._server, SlowServer)

    async def authenticate_slowly(self, message: bytes, version: int = 0) -> bytes:
        """As `authenticate`. Another message that comes meanwhile ends the connection."""
        server = self._next_server(version)
        assert isinstance(server, SlowServer)
        self._is_busy = True
        try:
            answer = await server.step(message)
        finally:
            self._is_busy = False
        if self._connection.is_closed:
            raise SaslAuthenticationFailed("the client has closed the connection")
        if server.login is not None:
            self._succeed(server.login)
        return answer

    def _next_server(self, version: int) -> SaslServer | SlowServer:
        self._can_reauthenticate = version >= 1
        if self._server is None:
            raise IllegalSaslState("SaslAuthenticate request received after successful authentication")
        self._messages += 1
        if self._messages > MESSAGES_MAX:
            raise SaslAuthenticationFailed("Authentication failed: too many messages")
        return self._server

    @property
    def session_lifetime_ms(self) -> int:
        """How long the session lasts that has just begun; 0 without an end, or if none has begun."""
        login = self._login
        if self._server is not None or login is None:
            return 0
        max_reauth_ms = self._settings.max_reauth_ms[self._mechanism]
        lifetimes = [max_reauth_ms] if max_reauth_ms > 0 else []
        if login.expires_ms is not None:
            lifetimes.append(max(login.expires_ms - self._clock.now_ms(), 1))
        return min(lifetimes, default=0)

    @property
    def failure_delay_s(self) -> float:
        return self._settings.failure_delay_s

    def count_failure(self) -> None:
        self._settings.counts.fail(is_again=self._login is not None)

    def message_of(self, error: SaslAuthenticationFailed) -> str:
        """For the client. It tells the first authentication from others, as Kafka's does."""
        words = "during authentication"
        return str(error) if self._login is None else str(error).replace(words, "during re-authentication")

    def fail(self, error: SaslAuthenticationFailed) -> str:
        """The end of the connection, in words for the log."""
        self.count_failure()
        reason = error.log_reason if isinstance(error, SaslFailed) else error
        return f"authentication with {self._mechanism or 'SASL'} failed: {reason}"

    def _succeed(self, login: Login) -> None:
        before = self._login
        # As in Kafka, a user may log in with a delegation token before, and with a password again.
        if before is not None and before.principal[:2] != login.principal[:2]:
            raise SaslAuthenticationFailed(
                f"Cannot change principals during re-authentication from {before.principal} to {login.principal}"
            )
        # Clients that know the lifetime of a session authenticate again before its end.
        self._settings.counts.succeed(is_again=before is not None, can_again=self._can_reauthenticate)
        self._login = login
        self._server = None
        self._takes_bare_messages = False
        self._session.principal = login.principal
        log.debug("%s is authenticated as %s", self._connection.peer, login.principal)
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        lifetime_ms = self.session_lifetime_ms
        self._has_session_end = lifetime_ms > 0
        if lifetime_ms > 0:
            self._expiry = self._call_later(lifetime_ms / 1_000, self._expire)
        self._connection.use(self._authenticated, max_frame_bytes=self._settings.max_frame_bytes)

    def _expire(self) -> None:
        self._expiry = None
        if not self._connection.is_closed:
            self._connection.use(self, max_frame_bytes=self._settings.max_receive_bytes)

    def _refuse(self, frame: bytes, reason: str) -> None:
        """Ends the exchange at a request of another API: as in Kafka, with an error of its form if it has one."""
        from barnabas.broker.authentication.illegal_state import illegal_state_response

        connection = self._connection
        response = illegal_state_response(frame)
        if response is not None:
            connection.reply([_SIZE.pack(len(response)) + response])
        connection.fail(reason)

    def _answer_bare(self, message: bytes) -> None:
        if self.is_slow:
            self._slow_answer = get_running_loop().create_task(self._answer_bare_slowly(message))
            return
        try:
            answer = self.authenticate(message)
        except SaslAuthenticationFailed as error:
            self._end_bare(error)
            return
        self._reply_bare(answer)

    async def _answer_bare_slowly(self, message: bytes) -> None:
        try:
            answer = await self.authenticate_slowly(message)
        except SaslAuthenticationFailed as error:
            self._end_bare(error)
            return
        self._reply_bare(answer)

    def _reply_bare(self, answer: bytes) -> None:
        self._connection.reply([_SIZE.pack(len(answer)) + answer])

    def _end_bare(self, error: SaslAuthenticationFailed) -> None:
        """There is no form for an error here, as in Kafka: the connection ends."""
        self._call_later(self.failure_delay_s, self._connection.fail, self.fail(error))
