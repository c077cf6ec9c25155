"""Names under which clients reach this machine."""

from __future__ import annotations

import socket
from typing import Final

from barnabas.errors import NetworkException
from barnabas.net.transport import Transport

WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})
CONNECT_TIMEOUT_S: Final = 2.0


def advertised_host(host: str) -> str:
    """The host of a listener, or a name of this machine if it listens on every address."""
    if host not in WILDCARDS:
        return host
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return "localhost"
    return name


async def why_unreachable(transport: Transport, host: str, port: int) -> str | None:
    """Why the broker cannot connect to its own advertised address; None if it can."""
    try:
        channel = await transport.connect(host, port, timeout_s=CONNECT_TIMEOUT_S)
    except NetworkException as error:
        return str(error)
    channel.close()
    return None
