"""Who may use the console, and with which rights.

Without a login, everyone acts with the client settings of the console. Behind a proxy that knows its users (OIDC), the
proxy names the user in a header, and the console logs the name with each change. With the login of the cluster, users
log in with their SASL names and passwords: the console connects to the cluster as that user, so the ACLs of the user
hold, also for searches in local files.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import logging
import secrets
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from barnabas import __version__
from barnabas.console.api.call import Call, Console, SessionState
from barnabas.console.api.errors import NotLoggedIn
from barnabas.console.connection import Connection
from barnabas.errors import InvalidRequest, SaslAuthenticationFailed, ThrottlingQuotaExceeded

log = logging.getLogger("barnabas.console")

COOKIE: Final = "barnabas-console"
SESSIONS_MAX: Final = 64
SESSION_IDLE_S_MAX: Final = 1_800.0
SESSION_S_MAX: Final = 12 * 3_600.0
EXPIRY_S: Final = 60.0
# Wrong passwords in a minute: for one user from one address, and for all users from one address, which may be a proxy.
FAILURES_MAX: Final = 10
ADDRESS_FAILURES_MAX: Final = 100
FAILURE_WINDOW_S: Final = 60.0
REMEMBERED_MAX: Final = 1_000
LOGINS_AT_ONCE_MAX: Final = 4
NAME_CHARACTERS_MAX: Final = 256


class Access(Protocol):
    """Finds the console for a request."""

    async def console_of(self, request: Request) -> Console:
        """Raises NotLoggedIn."""

    async def session(self, request: Request, call: Call) -> Response: ...

    async def log_in(self, request: Request, call: Call) -> Response: ...

    async def log_out(self, request: Request, call: Call) -> Response: ...

    async def run(self) -> None:
        """Starts what the consoles need; works until it is cancelled."""

    async def close(self) -> None: ...


def describe_session(console: Console, login: str) -> dict[str, Any]:
    return {
        "version": __version__,
        "login": login,
        "user": console.user,
        "bootstrap": console.connection.bootstrap,
        "read_only": console.is_read_only,
        "pipelines": console.pipelines is not None,
    }


class OpenAccess:
    """No login."""

    LOGIN = "none"

    def __init__(self, console: Console) -> None:
        self._console = console

    async def console_of(self, request: Request) -> Console:
        return self._console

    async def session(self, request: Request, call: Call) -> Response:
        return JSONResponse(describe_session(await self.console_of(request), self.LOGIN))

    async def log_in(self, request: Request, call: Call) -> Response:
        raise InvalidRequest("this console has no login of its own")

    async def log_out(self, request: Request, call: Call) -> Response:
        raise InvalidRequest("this console has no login of its own")

    async def run(self) -> None:
        self._console.sampler.start()
        await asyncio.Event().wait()

    async def close(self) -> None:
        await asyncio.to_thread(self._console.sampler.close)


class ProxyAccess(OpenAccess):
    """A proxy logs users in, and names them in a header. Only addresses of proxies may send requests."""

    LOGIN = "proxy"

    def __init__(self, console: Console, header: str, proxies: Collection[str]) -> None:
        super().__init__(console)
        self._header = header
        self._proxies = frozenset(proxies)

    async def console_of(self, request: Request) -> Console:
        address = "" if request.client is None else request.client.host
        if address not in self._proxies:
            raise NotLoggedIn(
                f"requests come through the proxy, and {address} is none (--trusted-proxy)", "proxy"
            )
        names = request.headers.getlist(self._header)
        if len(names) != 1 or not names[0] or len(names[0]) > NAME_CHARACTERS_MAX:
            raise NotLoggedIn(f"the proxy must name the user in the header {self._header}, once", "proxy")
        return replace(self._console, user=names[0])


class Failures:
    """Counts wrong passwords, and refuses a user with too many from one address, or an address with very many."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._times: dict[tuple[str, str | None], list[float]] = {}

    def check(self, address: str, user: str) -> None:
        for key, maximum in _counted(address, user):
            if len(self._recent(key)) >= maximum:
                raise ThrottlingQuotaExceeded("too many wrong passwords: try again in a minute")

    def add(self, address: str, user: str) -> None:
        for key, maximum in _counted(address, user):
            recent = self._recent(key)
            self._times.pop(key, None)
            while len(self._times) >= REMEMBERED_MAX:
                del self._times[next(iter(self._times))]
            self._times[key] = [*recent, self._clock()][-maximum:]

    def _recent(self, key: tuple[str, str | None]) -> list[float]:
        now_s = self._clock()
        return [each for each in self._times.get(key, ()) if now_s - each < FAILURE_WINDOW_S]


def _counted(address: str, user: str) -> tuple[tuple[tuple[str, str | None], int], ...]:
    # The address comes last, so that it is forgotten last.
    return ((address, user), FAILURES_MAX), ((address, None), ADDRESS_FAILURES_MAX)


@dataclass(slots=True)
class _Session:
    console: Console
    account: tuple[str, str]
    began_s: float
    used_s: float


class ClusterAccess:
    """Users of the cluster. A session ends by logout, after half an hour without requests, or after 12 hours."""

    def __init__(self, new_console: Callable[[Connection, str], Console], base: Connection) -> None:
        """`new_console` builds the console of a user, whose sampler is not started yet."""
        self._new_console = new_console
        self._base = base
        self._sessions: dict[bytes, _Session] = {}
        # Sessions of one user share what is sampled.
        self._accounts: dict[tuple[str, str], Console] = {}
        self._failures = Failures()
        self._logins = asyncio.Semaphore(LOGINS_AT_ONCE_MAX)

    async def console_of(self, request: Request) -> Console:
        session = await self._find(request)
        if session is None:
            raise NotLoggedIn("log in first: the session has ended, or there was none")
        session.used_s = time.monotonic()
        return session.console

    async def session(self, request: Request, call: Call) -> Response:
        session = await self._find(request)
        if session is None:
            return JSONResponse({"version": __version__, "login": "cluster", "user": None})
        return JSONResponse(describe_session(session.console, "cluster"))

    async def log_in(self, request: Request, call: Call) -> Response:
        user, password = call.body_text("user"), call.body_text("password")
        assert user is not None
        assert password is not None
        token = secrets.token_urlsafe(32)
        session = await self._open(request, user, password, _key("cookie", token))
        response = JSONResponse(describe_session(session.console, "cluster"))
        response.set_cookie(
            _cookie_name(request),
            token,
            max_age=int(SESSION_S_MAX),
            path="/",
            secure=is_encrypted(request),
            httponly=True,
            samesite="strict",
        )
        return response

    async def log_out(self, request: Request, call: Call) -> Response:
        token = request.cookies.get(_cookie_name(request))
        if token is not None:
            await self._end(_key("cookie", token))
        response = JSONResponse({"user": None})
        response.delete_cookie(
            _cookie_name(request),
            path="/",
            secure=is_encrypted(request),
            httponly=True,
            samesite="strict",
        )
        return response

    async def run(self) -> None:
        while True:
            await asyncio.sleep(EXPIRY_S)
            await self._expire()

    async def close(self) -> None:
        for key in list(self._sessions):
            await self._end(key)

    async def _find(self, request: Request) -> _Session | None:
        await self._expire()
        given = request.headers.get("authorization", "")
        if given.lower().startswith("basic "):
            key = _key("basic", given)
            if key in self._sessions:
                return self._sessions[key]
            return await self._open(request, *_basic(given), key)
        token = request.cookies.get(_cookie_name(request))
        return None if token is None else self._sessions.get(_key("cookie", token))

    async def _open(self, request: Request, user: str, password: str, key: bytes) -> _Session:
        address = "" if request.client is None else request.client.host
        self._failures.check(address, user)
        if not user or len(user) > NAME_CHARACTERS_MAX or len(password) > NAME_CHARACTERS_MAX:
            raise InvalidRequest(f"user and password have 1 to {NAME_CHARACTERS_MAX} characters")
        connection = self._base.as_user(user, password)
        async with self._logins:
            # Others may have failed meanwhile.
            self._failures.check(address, user)
            try:
                await asyncio.to_thread(_authenticate, connection)
            except SaslAuthenticationFailed:
                self._failures.add(address, user)
                log.warning("A login of %r from %s was refused", user[:40], address)
                raise NotLoggedIn("the cluster refused this name and password") from None
        while len(self._sessions) >= SESSIONS_MAX:
            await self._end(min(self._sessions, key=lambda each: self._sessions[each].used_s))
        account = (user, password)
        console = self._accounts.get(account)
        if console is None:
            console = self._new_console(connection, user)
            console.sampler.start()
            self._accounts[account] = console
        now_s = time.monotonic()
        session = _Session(replace(console, state=SessionState()), account, now_s, now_s)
        self._sessions[key] = session
        log.info("%r has logged in from %s", user, address)
        return session

    async def _expire(self) -> None:
        now_s = time.monotonic()
        for key, session in list(self._sessions.items()):
            if now_s - session.used_s > SESSION_IDLE_S_MAX or now_s - session.began_s > SESSION_S_MAX:
                await self._end(key)

    async def _end(self, key: bytes) -> None:
        session = self._sessions.pop(key, None)
        if session is None:
            return
        assert session.console.state is not None
        session.console.state.is_open = False
        if all(each.account != session.account for each in self._sessions.values()):
            console = self._accounts.pop(session.account)
            await asyncio.to_thread(console.sampler.close)


def _authenticate(connection: Connection) -> None:
    with connection.new_admin() as admin:
        admin.describe_cluster()


def _key(kind: str, secret: str) -> bytes:
    return hashlib.sha256(f"{kind}:{secret}".encode()).digest()


def _cookie_name(request: Request) -> str:
    """Browsers send the cookies of all ports of a host."""
    server = request.scope.get("server")
    return f"{COOKIE}-{server[1] if server else 0}"


def is_encrypted(request: Request) -> bool:
    """Whether the browser speaks TLS, to the console or to a proxy in front of it."""
    return request.url.scheme == "https" or request.headers.get("x-forwarded-proto", "") == "https"


def _basic(header: str) -> tuple[str, str]:
    try:
        user, colon, password = base64.b64decode(header[6:], validate=True).decode().partition(":")
    except (ValueError, binascii.Error):
        colon = ""
    if not colon:
        raise NotLoggedIn("the header authorization has no name and password")
    return user, password
