"""The watches of one session: where they are set, and the watchers to call for an event."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from typing import Final

from barnabas.coordination.store.contract import EventType, Watcher, parent_of


class WatchKind(Enum):
    EXISTS = auto()
    DATA = auto()
    CHILDREN = auto()
    PERSISTENT = auto()
    RECURSIVE = auto()


_ONE_SHOT_KINDS: Final = {
    EventType.NODE_CREATED: (WatchKind.EXISTS,),
    EventType.NODE_DELETED: (WatchKind.EXISTS, WatchKind.DATA, WatchKind.CHILDREN),
    EventType.NODE_DATA_CHANGED: (WatchKind.EXISTS, WatchKind.DATA),
    EventType.NODE_CHILDREN_CHANGED: (WatchKind.CHILDREN,),
}


class WatchTable:
    """Watchers by kind and path. A dictionary serves as a set that keeps the order of arrival."""

    __slots__ = ("_watchers",)

    def __init__(self) -> None:
        self._watchers: dict[WatchKind, dict[str, dict[Watcher, None]]] = {kind: {} for kind in WatchKind}

    def __bool__(self) -> bool:
        return any(self._watchers.values())

    def add(self, kind: WatchKind, path: str, watcher: Watcher) -> None:
        self._watchers[kind].setdefault(path, {})[watcher] = None

    def remove(self, path: str, watcher: Watcher) -> None:
        for by_path in self._watchers.values():
            watchers = by_path.get(path)
            if watchers is not None:
                watchers.pop(watcher, None)
                if not watchers:
                    del by_path[path]

    def clear(self) -> None:
        for by_path in self._watchers.values():
            by_path.clear()

    def take(self, event: EventType, path: str) -> list[Watcher]:
        """The watchers to call, each once; one-shot watches are used up."""
        called: dict[Watcher, None] = {}
        for kind in _ONE_SHOT_KINDS[event]:
            called.update(self._watchers[kind].pop(path, {}))
        called.update(self._watchers[WatchKind.PERSISTENT].get(path, {}))
        recursive = self._watchers[WatchKind.RECURSIVE]
        if recursive and event is not EventType.NODE_CHILDREN_CHANGED:
            for above in _with_ancestors(path):
                called.update(recursive.get(above, {}))
        return list(called)


def _with_ancestors(path: str) -> Iterator[str]:
    yield path
    while path != "/":
        path = parent_of(path)
        yield path
