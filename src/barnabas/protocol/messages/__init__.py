"""The message types, one module a message, written by `tools/messages.py`; loaded when first used."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from barnabas.protocol.schema import load_schema, snake_case


@functools.cache
def message_class(name: str) -> type[Any]:
    """The type of a message by Kafka's name for it, such as "FetchRequest"; KeyError if there is none."""
    load_schema(name)
    module = importlib.import_module(f"{__name__}.{snake_case(name)}")
    found: type[Any] = getattr(module, name)
    return found
