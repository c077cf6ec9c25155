"""The watches of one session: where they are set, and the watchers to call for an event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum, auto
from typing import Final

from barnabas.coordination.store.contract import EventType, Watcher


class WatchKind(Enum):
    # On a path without a node.
    ABSENT = auto()
    DATA = auto()
    CHILDREN = auto()


_KINDS: Final = {
    EventType.NODE_CREATED: (WatchKind.ABSENT,),
    EventType.NODE_DELETED: (WatchKind.DATA, WatchKind.CHILDREN),
    EventType.NODE_DATA_CHANGED: (WatchKind.DATA,),
    EventType.NODE_CHILDREN_CHANGED: (WatchKind.CHILDREN,),
}


class WatchTable:
    """Watchers by path and kind. A dictionary serves as a set that keeps the order of arrival."""

    __slots__ = ("_by_path",)

    def __init__(self) -> None:
        # Most events concern unwatched paths: one look into one map has to settle them.
        self._by_path: dict[str, dict[WatchKind, dict[Watcher, None]]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_path)

    def __iter__(self) -> Iterator[tuple[WatchKind, str]]:
        """Where there are watches, and of which kind."""
        for path, kinds in self._by_path.items():
            for kind in kinds:
                yield kind, path

    def add(self, kind: WatchKind, path: str, watcher: Watcher) -> None:
        self._by_path.setdefault(path, {}).setdefault(kind, {})[watcher] = None

    def clear(self) -> None:
        self._by_path.clear()

    def take(self, event: EventType, path: str) -> Iterable[Watcher]:
        """The watchers to call, each once. Their watches are used up."""
        kinds = self._by_path.get(path)
        if kinds is None:
            return ()
        called: dict[Watcher, None] = {}
        for kind in _KINDS[event]:
            called.update(kinds.pop(kind, {}))
        if not kinds:
            del self._by_path[path]
        return called
