"""Translates the offsets of consumer groups to the cluster of a mirror.

At intervals a thread reads the committed offsets of the selected groups in the source cluster, translates them by the
offset map, and commits them in the target cluster, with their metadata. As in Kafka's MirrorMaker

- a group that has members in the target cluster is not changed: brokers reject offsets that come from none of them;
- offsets only increase;
- an offset beyond the mirrored records becomes the end of the copy, and an offset that the map cannot translate is
  skipped.

This runs in a thread of its own, because groups move while no records arrive. Errors are logged and retried at the next
interval: the mirror of the records does not depend on them.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.errors import AdminErrors
from barnabas.client.admin.results import CommittedOffset, GroupListing
from barnabas.errors import GroupIdNotFound, KafkaError, UnknownMemberId
from barnabas.model import TopicPartition
from barnabas.spark.mirror.offsets import OffsetMap

log = logging.getLogger(__name__)

# Of groups of consumers, and of those that have never had a member.
PROTOCOL_TYPES: Final = frozenset({"consumer", ""})
CLOSE_TIMEOUT_S: Final = 30.0


class GroupMirror:
    """Brings the groups that `chosen` matches as a whole, all but `own_group`, from one cluster to the other."""

    def __init__(
        self,
        source_settings: Mapping[str, str],
        target_settings: Mapping[str, str],
        offset_map: OffsetMap,
        *,
        chosen: re.Pattern[str],
        own_group: str,
    ) -> None:
        self._source_settings = source_settings
        self._target_settings = target_settings
        self._offset_map = offset_map
        self._chosen = chosen
        self._own_group = own_group
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, interval_ms: int) -> None:
        self._thread = threading.Thread(
            target=self._run, args=(interval_ms / 1000,), name=f"groups of {self._own_group}", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Ends after one more round, which finds what groups have committed up to now."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(CLOSE_TIMEOUT_S)
            if self._thread.is_alive():
                log.warning("offsets of groups are not mirrored for the last time: a cluster does not answer")

    def _run(self, interval_s: float) -> None:
        with ExitStack() as stack:
            source = stack.enter_context(Admin(self._source_settings))
            target = stack.enter_context(Admin(self._target_settings))
            is_last = False
            while not is_last:
                is_last = self._stopping.wait(interval_s)
                self.sync(source, target)

    def sync(self, source: Admin, target: Admin) -> None:
        """One round."""
        try:
            listings = source.list_groups()
        except (KafkaError, AdminErrors) as error:
            log.warning("offsets of groups are not mirrored now: %s", error)
            return
        for listing in listings:
            if self._is_chosen(listing):
                try:
                    self._sync_group(source, target, listing.group_id)
                except (KafkaError, AdminErrors) as error:
                    if all(isinstance(each, UnknownMemberId) for each in _errors(error)):
                        log.debug("group %s has members over there, and goes its own way", listing.group_id)
                    else:
                        log.warning("offsets of group %s are not mirrored now: %s", listing.group_id, error)

    def _is_chosen(self, listing: GroupListing) -> bool:
        return (
            listing.protocol_type in PROTOCOL_TYPES
            and listing.group_id != self._own_group
            and self._chosen.fullmatch(listing.group_id) is not None
        )

    def _sync_group(self, source: Admin, target: Admin, group: str) -> None:
        translated = dict(self._translated(source.list_group_offsets(group)))
        if not translated:
            return
        try:
            there = target.list_group_offsets(group, list(translated))
        except GroupIdNotFound:
            there = {}
        ahead = {
            partition: committed
            for partition, committed in translated.items()
            if partition not in there or there[partition].offset < committed.offset
        }
        if ahead:
            target.alter_group_offsets(group, ahead)

    def _translated(
        self, here: Mapping[TopicPartition, CommittedOffset]
    ) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        for partition, committed in here.items():
            found = self._offset_map.translate(partition, committed.offset)
            if found is not None:
                # The epoch is one of a leader here.
                yield found[0], CommittedOffset(offset=found[1], metadata=committed.metadata)


def _errors(error: KafkaError | AdminErrors) -> tuple[Exception, ...]:
    return error.exceptions if isinstance(error, AdminErrors) else (error,)
