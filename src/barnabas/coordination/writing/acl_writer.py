"""Changes ACLs in the store. As in Kafka 3.9, any broker may, and leaves a notice for the others.

The ACLs of a resource pattern are one node. It is written if it has the version that was read, and otherwise read and
changed again. A pattern without ACLs has no node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from barnabas.coordination.metadata.acl_following import AclFollower
from barnabas.coordination.metadata.acl_nodes import (
    CHANGE_PREFIXES,
    acl_path,
    decode_acls,
    encode_acl_change,
    encode_acls,
)
from barnabas.coordination.metadata.store_errors import as_kafka_error
from barnabas.coordination.store.contract import (
    BadVersion,
    Create,
    CreateMode,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    Operation,
    SetData,
    Store,
    StoreError,
)
from barnabas.coordination.writing.one_at_a_time import OneAtATime
from barnabas.errors import KafkaError
from barnabas.security.acls import OPERATIONS, PERMISSIONS, AclEntry, ResourcePattern

log = logging.getLogger(__name__)
# Kafka's logger of decisions.
audit_log = logging.getLogger("kafka.authorizer.logger")

# Each conflict means that another writer has succeeded.
CONFLICTS_MAX: Final = 100
# The store commits those that wait together; other requests run in between.
PATTERNS_AT_ONCE: Final = 64

# From the ACLs of a pattern to its next ACLs. It may run more than once.
Edit: TypeAlias = Callable[[set[AclEntry]], set[AclEntry]]


class AclWriter:
    """A change that has succeeded is in this broker's authorizer when the method returns."""

    def __init__(self, store: Store, follower: AclFollower) -> None:
        self._store = store
        self._follower = follower
        self._turns = OneAtATime()

    async def close(self) -> None:
        """Waits for the change under way and refuses later ones."""
        await self._turns.close()

    async def change(
        self, edits: Mapping[ResourcePattern, Edit], author: str
    ) -> dict[ResourcePattern, KafkaError | None]:
        """The result for each pattern. The author is for the log."""
        results: dict[ResourcePattern, KafkaError | None] = {}
        patterns = list(edits)
        for start in range(0, len(patterns), PATTERNS_AT_ONCE):
            part = {pattern: edits[pattern] for pattern in patterns[start : start + PATTERNS_AT_ONCE]}
            results.update(await self._turns.run(self._change_all(part, author)))
        return results

    async def _change_all(
        self, edits: Mapping[ResourcePattern, Edit], author: str
    ) -> dict[ResourcePattern, KafkaError | None]:
        errors = await asyncio.gather(
            *(self._change_one(pattern, edit, author) for pattern, edit in edits.items())
        )
        results = dict(zip(edits, errors, strict=True))
        try:
            # Another broker may have changed them since: what the store has now counts.
            await self._follower.refresh(pattern for pattern, error in results.items() if error is None)
        except StoreError as error:
            log.error("ACLs were stored but cannot be read: %s", error)
        return results

    async def _change_one(self, pattern: ResourcePattern, edit: Edit, author: str) -> KafkaError | None:
        path = acl_path(pattern)
        try:
            for _ in range(CONFLICTS_MAX):
                before, version = await self._read(path)
                after = edit(before)
                if after == before:
                    return None
                if await self._write(pattern, path, after, version):
                    _log_change(pattern, before, after, author)
                    return None
        except KafkaError as error:
            return error
        except StoreError as error:
            log.error("ACLs are not stored: %s", error)
            return as_kafka_error(error)
        return as_kafka_error(BadVersion(f"{path}: others change it all the time"))

    async def _read(self, path: str) -> tuple[set[AclEntry], int | None]:
        """The ACLs at a path and the version of the node, None for no node."""
        try:
            data, stat = await self._store.get(path)
        except NoNode:
            return set(), None
        return decode_acls(path, data), stat.version

    async def _write(
        self, pattern: ResourcePattern, path: str, entries: set[AclEntry], version: int | None
    ) -> bool:
        """False if another writer came first."""
        change: Operation
        if version is None:
            change = Create(path, encode_acls(entries))
        elif entries:
            change = SetData(path, encode_acls(entries), version)
        else:
            change = Delete(path, version)
        prefix = CHANGE_PREFIXES[pattern.pattern_type]
        notice = Create(prefix, encode_acl_change(pattern), CreateMode.PERSISTENT_SEQUENTIAL)
        try:
            await self._store.multi([change, notice])
        except MultiFailed as failed:
            if failed.index == 0 and isinstance(failed.error, (BadVersion, NodeExists, NoNode)):
                return False
            raise failed.error from failed
        return True


def _log_change(pattern: ResourcePattern, before: set[AclEntry], after: set[AclEntry], author: str) -> None:
    for word, entries in (("Removed", before - after), ("Added", after - before)):
        if entries:
            audit_log.info("%s ACLs of %s by %s: %s", word, pattern, author, _described(entries))


def _described(entries: Iterable[AclEntry]) -> str:
    return "; ".join(
        f"{PERMISSIONS[each.permission]} {each.principal} {OPERATIONS[each.operation]} from {each.host}"
        for each in sorted(entries)
    )
