"""Keeps other web sites and other hosts out, and pages inside.

A browser sends requests of any site to this machine. So a request must name a host that is allowed (against DNS
rebinding); the browser's own mark of cross-site requests is obeyed; and a change needs a header that other sites cannot
send without asking first, which is never allowed. Pages may load nothing but the console's own files.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CHANGE_HEADER: Final = "x-barnabas-console"
LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1")
# A login changes nothing in the cluster.
SESSION_PATHS: Final = ("/api/login", "/api/logout")
_READING: Final = ("GET", "HEAD")
_OWN_SITES: Final = ("same-origin", "none")

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    def __init__(self, app: ASGIApp, allowed_hosts: Collection[str], *, is_read_only: bool) -> None:
        self._app = app
        self._allowed_hosts = frozenset(each.lower() for each in allowed_hosts)
        self._is_read_only = is_read_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
                if scope["path"].startswith("/api/"):
                    headers["cache-control"] = "no-store"
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            answer = JSONResponse({"error": "FORBIDDEN", "message": refusal}, status_code=403)
            await answer(scope, receive, send_guarded)
            return
        await self._app(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> str | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if host_name(host) not in self._allowed_hosts:
            return f"the console does not serve the host {host[:100]!r}; start it with --allowed-host to allow it"
        if not scope["path"].startswith("/api/"):
            return None
        if headers.get("sec-fetch-site", "none") not in _OWN_SITES:
            return "requests from other web sites are refused"
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return "requests from other web sites are refused"
        if scope["method"] not in _READING:
            if headers.get(CHANGE_HEADER) is None:
                return f"a change needs the header {CHANGE_HEADER}: 1, so that no other web site can make it"
            if self._is_read_only and scope["path"] not in SESSION_PATHS:
                return "this console is read-only (--read-only)"
        return None


def host_name(host: str) -> str:
    """The name in a Host header, without the port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""
