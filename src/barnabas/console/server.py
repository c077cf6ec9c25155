"""Builds the console and serves it, until a signal or the end of the process that has started it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount
from starlette.routing import Route as WebRoute
from starlette.staticfiles import StaticFiles

from barnabas.clock import SystemClock
from barnabas.console.api.access import Access, ClusterAccess, OpenAccess, ProxyAccess
from barnabas.console.api.call import BODY_BYTES_MAX, Call, Console, Pipelines, Schemas, parse_body
from barnabas.console.api.errors import describe_error
from barnabas.console.api.guard import Guard
from barnabas.console.api.openapi import document
from barnabas.console.api.routes import ROUTES, Route
from barnabas.console.api.streams import Streams
from barnabas.console.connection import Connection
from barnabas.console.sampling import Sampler
from barnabas.console.search.masking import NO_MASKS, Masks
from barnabas.errors import InvalidRequest

log = logging.getLogger("barnabas.console")

PAGES: Final = Path(__file__).parent / "pages"
# Users who look at these will search.
WARMING_PATHS: Final = ("/api/topics/{topic}", "/api/topics/{topic}/records")
CONNECTIONS_MAX: Final = 128
HEADER_BYTES_MAX: Final = 32 << 10
STOP_S: Final = 2
LOOPBACK_ADDRESSES: Final = ("127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Who may use the console: `none`, `proxy` (it names the user in a header) or `cluster` (SASL users)."""

    kind: str = "none"
    user_header: str = "x-forwarded-user"
    trusted_proxies: Sequence[str] = LOOPBACK_ADDRESSES


NO_LOGIN: Final = Login()


def build_app(
    connection: Connection,
    *,
    allowed_hosts: Sequence[str],
    is_read_only: bool = False,
    may_read_files: bool = True,
    sample_interval_s: float = 10.0,
    masks: Masks = NO_MASKS,
    pipelines: Pipelines | None = None,
    schemas: Schemas | None = None,
    login: Login = NO_LOGIN,
    metrics_urls: Sequence[str] = (),
) -> Starlette:
    def new_console(reached: Connection, user: str | None = None) -> Console:
        return Console(
            connection=reached,
            sampler=Sampler(reached, SystemClock(), interval_s=sample_interval_s, metrics_urls=metrics_urls),
            is_read_only=is_read_only,
            may_read_files=may_read_files,
            masks=masks,
            pipelines=pipelines,
            schemas=schemas,
            user=user,
        )

    access = _new_access(login, connection, new_console)
    streams = Streams()

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        running = asyncio.create_task(access.run())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await streams.pool.close()
            await access.close()

    async def index(request: Request) -> Response:
        return FileResponse(PAGES / "index.html", headers={"cache-control": "no-cache"})

    async def openapi(request: Request) -> Response:
        return JSONResponse(document())

    return Starlette(
        routes=[
            *(
                WebRoute(each.path, _endpoint(each, access, streams), methods=[each.method])
                for each in ROUTES
            ),
            WebRoute("/api/openapi.json", openapi),
            WebRoute("/", index),
            Mount("/assets", StaticFiles(directory=PAGES / "assets")),
        ],
        middleware=[Middleware(Guard, allowed_hosts=allowed_hosts, is_read_only=is_read_only)],
        lifespan=lifespan,
    )


def _new_access(
    login: Login, connection: Connection, new_console: Callable[[Connection, str | None], Console]
) -> Access:
    if login.kind == "cluster":
        return ClusterAccess(new_console, connection)
    console = new_console(connection, None)
    if login.kind == "proxy":
        return ProxyAccess(console, login.user_header, login.trusted_proxies)
    return OpenAccess(console)


def _endpoint(route: Route, access: Access, streams: Streams) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            console = None if route.access else await access.console_of(request)
            call = Call(
                path={name: str(value) for name, value in request.path_params.items()},
                query=dict(request.query_params),
                body=parse_body(await _body(request)) if route.method != "GET" else {},
            )
            if console is None:
                answer: Response = await getattr(access, route.access)(request, call)
                return answer
            if route.stream:
                opened: Response = await getattr(streams, route.stream)(console, call)
                return opened
            if route.path in WARMING_PATHS:
                streams.pool.warm()
            assert route.handler is not None
            if route.method != "GET" and console.user is not None:
                log.info("%r: %s %r", console.user, request.method, request.url.path)
            result = await run_in_threadpool(route.handler, console, call)
            return Response(json.dumps(result), media_type="application/json")
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as error:
            return _failed(request, error)

    return endpoint


def _failed(request: Request, error: Exception) -> Response:
    status, form = describe_error(error)
    if status == 500:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return JSONResponse(form, status_code=status)


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_BYTES_MAX:
            raise InvalidRequest(f"the body is larger than {BODY_BYTES_MAX} bytes")
    return bytes(body)


def serve(
    app: Starlette,
    listener: socket.socket,
    *,
    supervisor_fd: int | None = None,
    certificate: str | None = None,
    key: str | None = None,
) -> None:
    """Serves until SIGINT or SIGTERM, or until the other end of the supervisor's socket closes.

    `certificate` and `key` are files in PEM; with them the console speaks TLS.
    """
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=CONNECTIONS_MAX,
        h11_max_incomplete_event_size=HEADER_BYTES_MAX,
        timeout_graceful_shutdown=STOP_S,
        http="h11",
        ws="none",
        lifespan="on",
        proxy_headers=False,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    server = uvicorn.Server(config)

    async def run() -> None:
        if supervisor_fd is not None:
            _stop_with(supervisor_fd, server)
        await server.serve(sockets=[listener])

    asyncio.run(run())


def _stop_with(supervisor_fd: int, server: Any) -> None:
    supervisor = socket.socket(fileno=supervisor_fd)
    loop = asyncio.get_running_loop()

    def stop() -> None:
        # The parent never sends anything: a readable socket means its end.
        loop.remove_reader(supervisor)
        supervisor.close()
        server.should_exit = True

    loop.add_reader(supervisor, stop)
