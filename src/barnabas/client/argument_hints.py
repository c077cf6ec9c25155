"""Arguments that have another name in other clients: a call with one says which to use."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

C = TypeVar("C")

# Names of arguments in other clients, and ours.
OTHER_NAMES: Final = {
    "config": "configs",
    "num_partitions": "partitions",
    "operation_timeout": "timeout_ms",
    "replica_assignment": "assignment",
    "replica_assignments": "assignment",
    "request_timeout": "timeout_ms",
    "request_timeout_ms": "timeout_ms",
    "timeout": "timeout_ms",
    "timeout_s": "timeout_ms",
    "topic_configs": "configs",
}


def refuse_other_names(call: str, keywords: Iterable[str], known: Mapping[str, object]) -> None:
    """Raises TypeError for the name of another client, where the call has the argument under its own name."""
    for name in keywords:
        ours = OTHER_NAMES.get(name)
        if ours in known and name not in known:
            unit = ", in milliseconds" if ours == "timeout_ms" else ""
            raise TypeError(f"{call}() has no argument {name}: use {ours}{unit}")


def hinting(kind: type[C]) -> type[C]:
    """Makes the constructor of a class refuse the names of other clients with a hint."""
    create: Any = kind.__init__
    known = inspect.signature(create).parameters

    def checked(self: C, /, *arguments: Any, **keywords: Any) -> None:
        refuse_other_names(kind.__name__, keywords, known)
        create(self, *arguments, **keywords)

    kind.__init__ = functools.update_wrapper(checked, create)  # type: ignore[method-assign,assignment]
    return kind
