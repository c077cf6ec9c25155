"""The clients for asyncio, on the same core as the blocking ones: they run on the caller's loop, without a thread."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from barnabas.client.admin.admin import AsyncAdmin as Admin
    from barnabas.client.consumer.aio import AsyncConsumer as Consumer
    from barnabas.client.producer.aio import AsyncProducer as Producer

__all__ = ["Admin", "Consumer", "Producer"]

# Public names by the module and the name there, loaded at first use.
_LAZY: Final[dict[str, tuple[str, str]]] = {
    "Admin": ("barnabas.client.admin.admin", "AsyncAdmin"),
    "Consumer": ("barnabas.client.consumer.aio", "AsyncConsumer"),
    "Producer": ("barnabas.client.producer.aio", "AsyncProducer"),
}


def __getattr__(name: str) -> object:
    found = _LAZY.get(name)
    if found is None:
        raise AttributeError(f"module 'barnabas.aio' has no attribute {name!r}")
    module, attribute = found
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
