"""Arguments as people give them: what is meant is taken, and what is not is refused with the name of the argument.

Callers without type checks may pass anything, so converters take `object`. They raise TypeError for another type and
ValueError for a value that does not exist, with the argument, what came, and what is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, NoReturn, TypeVar

from barnabas.client.subscription import ConsumerError, as_partition
from barnabas.model import TopicPartition

E = TypeVar("E", bound=Enum)
K = TypeVar("K")
V = TypeVar("V")

PARTITION = "TopicPartition('orders', 0) or ('orders', 0)"
PARTITIONS = "[('orders', 0)]"


def refuse(argument: str, wanted: str, given: object) -> NoReturn:
    raise TypeError(f"{argument} takes {wanted}, and not {given!r}")


def as_mapping(given: object, argument: str, wanted: str) -> Mapping[Any, Any]:
    """`wanted` is an example, such as {'orders': 3}."""
    if not isinstance(given, Mapping):
        refuse(argument, f"a mapping, such as {wanted}", given)
    return given


def as_mapped(
    given: object,
    argument: str,
    wanted: str,
    key: Callable[[object, str], K],
    value: Callable[[object, str], V],
) -> dict[K, V]:
    """A mapping with converted keys and values."""
    return {
        key(each, argument): value(its, f"{argument}, for {each!r},")
        for each, its in as_mapping(given, argument, wanted).items()
    }


def as_items(given: object, argument: str, wanted: str) -> list[Any]:
    """The items of a list; a text is iterable too, but no caller means its letters."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        refuse(argument, f"a list, such as {wanted}", given)
    return list(given)


def as_texts(given: object, argument: str, wanted: str) -> list[str]:
    """Texts; a single one may come without a list."""
    items = [given] if isinstance(given, str) else as_items(given, argument, wanted)
    return [as_text(each, argument) for each in items]


def as_text(given: object, argument: str) -> str:
    if not isinstance(given, str):
        refuse(argument, "a text", given)
    return given


def as_number(given: object, argument: str) -> int:
    if isinstance(given, bool) or not isinstance(given, int):
        refuse(argument, "a whole number", given)
    return int(given)


def as_offset(given: object, argument: str) -> int:
    offset = as_number(given, argument)
    if offset < 0:
        raise ValueError(f"{argument} takes an offset of 0 or more, and not {offset}")
    return offset


def as_numbers(given: object, argument: str) -> list[int]:
    """Whole numbers, such as ids of brokers; a single one may come without a list."""
    items = [given] if isinstance(given, int) else as_items(given, argument, "[1, 2]")
    return [as_number(each, argument) for each in items]


def as_enum(given: object, argument: str, kind: type[E]) -> E:
    """A member of an enumeration, or its name as settings and tools write it, or the number of the protocol."""
    if isinstance(given, kind):
        return given
    names = ", ".join(each.name.lower() for each in kind)
    wanted = f"{kind.__name__} or one of its names ({names})"
    if isinstance(given, bool) or not isinstance(given, int | str):
        refuse(argument, wanted, given)
    name = given.strip().upper().replace("-", "_") if isinstance(given, str) else None
    for each in kind:
        if given == each.value or name == each.name:
            return each
    raise ValueError(f"{argument} takes {wanted}, and not {given!r}")


def as_enums(given: object, argument: str, kind: type[E]) -> list[E]:
    """Members or their names; a single one may come without a list."""
    wanted = f"['{min(each.name for each in kind).lower()}']"
    items = [given] if isinstance(given, str | kind) else as_items(given, argument, wanted)
    return [as_enum(each, argument, kind) for each in items]


def as_tp(given: object, argument: str) -> TopicPartition:
    try:
        return as_partition(given)
    except ConsumerError:
        refuse(argument, PARTITION, given)


def as_tps(given: object, argument: str = "partitions") -> list[TopicPartition]:
    """Partitions; a single one may come without a list."""
    if isinstance(given, TopicPartition) or (
        # A pair of a text and a number cannot be a list of partitions.
        isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str)
    ):
        return [as_tp(given, argument)]
    return [as_tp(each, argument) for each in as_items(given, argument, PARTITIONS)]
