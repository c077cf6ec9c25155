"""Where a broker is reached."""

from __future__ import annotations

from typing import NamedTuple


class Node(NamedTuple):
    """Where a broker is reached."""

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"
