"""Changes of many topics, in pieces: each is a separate change of the cluster, and other requests run in between.

Clients are answered for each topic, so a request may succeed in part. A topic that is named twice is refused: all of
its occurrences are in one piece, where the controller sees them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, TypeVar

from barnabas.broker.waiting.turns import Turns

T = TypeVar("T")
R = TypeVar("R")

# The number of topics and partitions in a piece. A client that changes no more has one change. A deletion costs less
# for each of them, and more for all: it writes the checkpoints of the log directories.
PIECE_SIZE: Final = 500
DELETION_SIZE: Final = 1_500


async def change_in_pieces(
    turns: Turns,
    items: Sequence[T],
    name_of: Callable[[T], str],
    size_of: Callable[[T], int],
    change: Callable[[Sequence[T]], Awaitable[Sequence[R]]],
    *,
    size_max: int = PIECE_SIZE,
) -> list[R]:
    """The results of all items, in their order."""
    results: dict[int, R] = {}
    for piece in pieces(items, name_of, size_of, size_max):
        if results:
            await turns.next()
        changed = await change([items[index] for index in piece])
        results.update(zip(piece, changed, strict=True))
    return [results[index] for index in range(len(items))]


def pieces(
    items: Sequence[T], name_of: Callable[[T], str], size_of: Callable[[T], int], size_max: int
) -> Iterator[list[int]]:
    """The indexes of the items of each piece."""
    counts = Counter(map(name_of, items))
    piece = [index for index, item in enumerate(items) if counts[name_of(item)] > 1]
    size = len(piece)
    for index, item in enumerate(items):
        if counts[name_of(item)] > 1:
            continue
        # What a client says about a topic may be nonsense.
        item_size = 1 + max(size_of(item), 0)
        if piece and size + item_size > size_max:
            yield piece
            piece, size = [], 0
        piece.append(index)
        size += item_size
    if piece:
        yield piece
