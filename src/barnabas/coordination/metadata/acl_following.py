"""Keeps a broker's ACLs up to date while it runs: reads all at start, and then those that notices name.

ACLs that cannot be read stop the start of a broker: it would allow what they deny. While it runs, such a resource keeps
the ACLs that the broker knows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from barnabas.clock import Clock
from barnabas.coordination.metadata.acl_nodes import (
    CHANGE_PREFIXES,
    ROOTS,
    TYPE_CODES,
    TYPE_NAMES,
    acl_path,
    decode_acls,
    decode_extended_change,
    decode_literal_change,
    type_path,
)
from barnabas.coordination.metadata.node_reader import MalformedNode
from barnabas.coordination.metadata.notices import Notices, latest_notice
from barnabas.coordination.store.contract import Store, children_of, ensure_path, parent_of
from barnabas.security.acls import LITERAL, PREFIXED, AclEntry, ResourcePattern
from barnabas.security.authorizer import Authorizer

log = logging.getLogger(__name__)


class AclFollower:
    """The ACLs are in the authorizer; nothing else changes them."""

    def __init__(self, store: Store, authorizer: Authorizer, clock: Clock) -> None:
        self._store = store
        self._authorizer = authorizer
        self._notices = {
            pattern_type: Notices(store, clock, CHANGE_PREFIXES[pattern_type], partial(self._handle, decode))
            for pattern_type, decode in (
                (LITERAL, decode_literal_change),
                (PREFIXED, decode_extended_change),
            )
        }

    async def begin(self) -> None:
        """Creates the nodes that ACLs are below, reads all ACLs and follows their changes. Raises StoreError."""
        for pattern_type, prefix in CHANGE_PREFIXES.items():
            await ensure_path(self._store, parent_of(prefix))
            for type_name in TYPE_NAMES.values():
                await ensure_path(self._store, type_path(pattern_type, type_name))
        latest = await self._latest()
        for error in await self._read_all():
            raise MalformedNode(f"{error}. Mend the node: without it, the broker would allow what it denies")
        await self._follow(latest)

    async def read_again(self) -> None:
        """In a new session there may be changes whose notices have expired. Raises StoreError."""
        latest = await self._latest()
        for error in await self._read_all():
            log.error("ACLs are not followed: %s. Mend the node", error)
        await self._follow(latest)

    async def close(self) -> None:
        for notices in self._notices.values():
            await notices.close()

    async def refresh(self, patterns: Iterable[ResourcePattern]) -> None:
        """Reads the ACLs of these patterns. Raises StoreError."""
        wanted = list(dict.fromkeys(patterns))
        for pattern, found in zip(wanted, await self._read(wanted), strict=True):
            if isinstance(found, MalformedNode):
                log.error("ACLs are not followed: %s. Mend the node", found)
            else:
                self._authorizer.replace(pattern, found)

    async def _latest(self) -> dict[int, int]:
        return {
            pattern_type: await latest_notice(self._store, prefix)
            for pattern_type, prefix in CHANGE_PREFIXES.items()
        }

    async def _follow(self, latest: dict[int, int]) -> None:
        for pattern_type, notices in self._notices.items():
            await notices.begin(latest[pattern_type])

    async def _read_all(self) -> list[MalformedNode]:
        """Returns why nodes cannot be read. Their resources keep the ACLs that are known."""
        patterns = []
        for pattern_type, root in ROOTS.items():
            for type_name in await children_of(self._store, root):
                code = TYPE_CODES.get(type_name.lower())
                if code is None:
                    log.warning("%s/%s is ignored: the resource type is not known", root, type_name)
                    continue
                names = await children_of(self._store, type_path(pattern_type, type_name))
                patterns += [ResourcePattern(code, name, pattern_type) for name in names]
        found = await self._read(patterns)
        for pattern in set(self._authorizer.patterns()).difference(patterns):
            self._authorizer.replace(pattern, ())
        unreadable = []
        for pattern, entries in zip(patterns, found, strict=True):
            if isinstance(entries, MalformedNode):
                unreadable.append(entries)
            else:
                self._authorizer.replace(pattern, entries)
        return unreadable

    async def _read(self, patterns: Sequence[ResourcePattern]) -> list[set[AclEntry] | MalformedNode]:
        paths = [acl_path(pattern) for pattern in patterns]
        found: list[set[AclEntry] | MalformedNode] = []
        for path, node in zip(paths, await self._store.get_all(paths), strict=True):
            try:
                found.append(set() if node is None else decode_acls(path, node[0]))
            except MalformedNode as error:
                found.append(error)
        return found

    async def _handle(
        self, decode: Callable[[str, bytes], ResourcePattern], notices: Sequence[tuple[str, bytes]]
    ) -> None:
        changed = []
        for path, data in notices:
            try:
                changed.append(decode(path, data))
            except MalformedNode as error:
                log.error("A notice of changed ACLs is ignored: %s", error)
        await self.refresh(changed)
