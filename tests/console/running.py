"""A console on a free port of this process, and requests to it."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from barnabas.console.api.guard import CHANGE_HEADER, LOOPBACK_NAMES
from barnabas.console.connection import connection_to
from barnabas.console.server import build_app, serve

TIMEOUT_S: Final = 60.0
CHANGES: Final = {CHANGE_HEADER: "1", "content-type": "application/json"}


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class RunningConsole:
    """Serves on a thread, as `barnabas console` does in a process."""

    def __init__(
        self,
        bootstrap: str,
        *,
        api_timeout_ms: int = 15_000,
        settings: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        connection = connection_to(bootstrap, api_timeout_ms=api_timeout_ms, settings=settings or {})
        self._app = build_app(connection, allowed_hosts=LOOPBACK_NAMES, **options)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._ours, self._theirs = socket.socketpair()
        self._thread = threading.Thread(
            target=serve,
            args=(self._app, self._listener),
            kwargs={"supervisor_fd": self._theirs.detach()},
            name="console",
        )

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ours.close()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()
        self._listener.close()

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)

    def ask(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        connection = self.connect()
        try:
            data = None if body is None else json.dumps(body).encode()
            sent = headers if headers is not None else ({} if method == "GET" else CHANGES)
            connection.request(method, path, data, dict(sent))
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        answer = self.ask("GET", path)
        assert answer.status == 200, answer
        return answer.json()

    def change(self, method: str, path: str, body: object) -> Any:
        answer = self.ask(method, path, body)
        assert answer.status == 200, answer
        return answer.json()

    def events(self, path: str) -> Iterator[tuple[str, Any]]:
        """The events of a stream; closing the iterator closes the stream."""
        connection = self.connect()
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            assert answer.headers["content-type"].startswith("text/event-stream")
            name = ""
            while line := answer.readline():
                if line.startswith(b"event: "):
                    name = line[7:].strip().decode()
                elif line.startswith(b"data: "):
                    yield name, json.loads(line[6:])
        finally:
            connection.close()
