"""Names under which clients reach this machine."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})
CONNECT_TIMEOUT_S: Final = 2.0


def advertised_host(host: str) -> str:
    """The address that clients receive for a listener: its host, or a name of this machine if it listens on every
    address.
    """
    if host not in WILDCARDS:
        return host
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return "localhost"
    return name


async def why_unreachable(host: str, port: int) -> str | None:
    """Why this machine cannot connect to the advertised address; None if it can."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, port)
    except socket.gaierror:
        return "the name is not known here"
    except TimeoutError:
        return f"no connection within {CONNECT_TIMEOUT_S:g} s"
    except OSError as error:
        return error.strerror or str(error)
    writer.close()
    return None
