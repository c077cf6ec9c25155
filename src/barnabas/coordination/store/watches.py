"""The watches of one session: where they are set, and the watchers to call for an event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
    """Watchers by path and kind. A dictionary serves as a set that keeps the order of arrival."""

    __slots__ = ("_by_path", "_recursive")

    def __init__(self) -> None:
        # Most events concern unwatched paths: one look into one map has to settle them.
        self._by_path: dict[str, dict[WatchKind, dict[Watcher, None]]] = {}
        self._recursive: dict[str, dict[Watcher, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_path or self._recursive)

    def add(self, kind: WatchKind, path: str, watcher: Watcher) -> None:
        if kind is WatchKind.RECURSIVE:
            self._recursive.setdefault(path, {})[watcher] = None
        else:
            self._by_path.setdefault(path, {}).setdefault(kind, {})[watcher] = None

    def remove(self, path: str, watcher: Watcher) -> None:
        kinds = self._by_path.get(path, {})
        for kind, watchers in list(kinds.items()):
            watchers.pop(watcher, None)
            if not watchers:
                del kinds[kind]
        if not kinds:
            self._by_path.pop(path, None)
        recursive = self._recursive.get(path, {})
        recursive.pop(watcher, None)
        if not recursive:
            self._recursive.pop(path, None)

    def clear(self) -> None:
        self._by_path.clear()
        self._recursive.clear()

    def take(self, event: EventType, path: str) -> Iterable[Watcher]:
        """The watchers to call, each once; one-shot watches are used up."""
        kinds = self._by_path.get(path)
        if kinds is None and not self._recursive:
            return ()
        called: dict[Watcher, None] = {}
        if kinds is not None:
            for kind in _ONE_SHOT_KINDS[event]:
                called.update(kinds.pop(kind, {}))
            called.update(kinds.get(WatchKind.PERSISTENT, {}))
            if not kinds:
                del self._by_path[path]
        if event is not EventType.NODE_CHILDREN_CHANGED:
            for above in _with_ancestors(path) if self._recursive else ():
                called.update(self._recursive.get(above, {}))
        return called


def _with_ancestors(path: str) -> Iterator[str]:
    yield path
    while path != "/":
        path = parent_of(path)
        yield path
