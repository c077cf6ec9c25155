"""The coordinator of the groups whose records are in one partition of `__consumer_offsets`.

Loading is `replay` of all batches of the partition in their order, then `loaded`. After that requests, timers and
appends may come in any order; each method returns what the shell is to do (see `decision`). A group's own record is
written from its state, which is ahead of it, so only loading reads it back; offsets and deletions take effect when
their records have been appended, in the order of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from barnabas.errors import GroupIdNotFound, KafkaError, NonEmptyGroup
from barnabas.groups.classic_group import ClassicGroup, GroupState
from barnabas.groups.decision import Caller, Decision, TimerKey, TimerKind, code_of_failed_append
from barnabas.groups.group_table import GroupTable
from barnabas.groups.membership import Membership
from barnabas.groups.offset_store import OffsetStore
from barnabas.groups.offsets import Offsets
from barnabas.groups.rebalance import Rebalance
from barnabas.groups.records import (
    GroupMetadataRecord,
    GroupRecord,
    OffsetCommitRecord,
    OtherGroupRecord,
    group_tombstone,
    offset_tombstone,
    parse_record,
)
from barnabas.groups.settings import GroupSettings
from barnabas.model import Offset, ProducerId
from barnabas.protocol.messages.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse
from barnabas.protocol.messages.describe_groups_response import DescribedGroup, DescribedGroupMember
from barnabas.protocol.messages.list_groups_response import ListedGroup
from barnabas.records.control import parse_end_txn_marker
from barnabas.records.header import BatchHeader
from barnabas.records.layout import ControlRecordType
from barnabas.records.record import Record

_GROUP_TYPE: Final = "classic"
_FIRST_DESCRIBE_WITH_UNKNOWN_GROUP: Final = 6
# Tombstones come a batch at a time, so that other requests come in between.
CLEANUP_RECORDS_MAX: Final = 1_000
CLEANUP_PAUSE_MS: Final = 100
CLEANUP: Final = TimerKey(TimerKind.CLEANUP)


class GroupCoordinator:
    def __init__(self, settings: GroupSettings, new_uuid: Callable[[], str]) -> None:
        self._settings = settings
        self._groups = GroupTable()
        self._store = OffsetStore()
        # Groups that no record but offsets has told of so far.
        self._implied: set[str] = set()
        self.membership = Membership(self._groups, settings, Rebalance(settings), new_uuid)
        self.offsets = Offsets(self._groups, self._store, settings)

    def replay(self, header: BatchHeader, records: Iterable[Record]) -> None:
        """A batch of the partition while it is loaded. Raises InvalidRecord if a record is not what it should be."""
        producer_id = header.producer_id if header.is_transactional else None
        for record in records:
            if header.is_control:
                marker = parse_end_txn_marker(record)
                if marker is not None:
                    self.transaction_ended(
                        header.producer_id, is_committed=marker.control_type is ControlRecordType.COMMIT
                    )
                continue
            parsed = parse_record(record)
            if isinstance(parsed, OtherGroupRecord):
                self._replay_other(parsed)
            elif isinstance(parsed, GroupMetadataRecord) and parsed.value is not None:
                group_id = parsed.key.group
                self._groups.classic[group_id] = ClassicGroup.from_value(group_id, parsed.value)
                self._implied.discard(group_id)
            elif parsed is not None:
                if parsed.key.group not in self._groups.classic:
                    self._implied.add(parsed.key.group)
                self._apply(parsed, record.offset, producer_id)

    def _replay_other(self, record: OtherGroupRecord) -> None:
        if record.exists:
            self._groups.other[record.group_id] = record.group_type
            # Offsets that came before have made it a group without a protocol.
            self._groups.classic.pop(record.group_id, None)
        else:
            self._groups.other.pop(record.group_id, None)

    def loaded(self, now_ms: int) -> Decision:
        for group_id in self._implied:
            # Before 4.0 such a group was deleted by deleting its offsets.
            if not self._store.partitions(group_id):
                self._groups.classic.pop(group_id, None)
        self._implied.clear()
        decision = self.membership.loaded(now_ms)
        decision.set_timer(CLEANUP, self._settings.offsets_retention_check_interval_ms)
        return decision

    def unloaded(self, now_ms: int) -> Decision:
        """The partition is another broker's. Nothing may be asked of this coordinator any more."""
        decision = self.membership.unloaded(now_ms)
        decision.cancel_timer(CLEANUP)
        return decision

    def appended(self, decision: Decision, base_offset: Offset) -> None:
        """The records of a decision have been appended, the first at the offset."""
        producer_id = None if decision.producer is None else decision.producer.producer_id
        for index, record in enumerate(decision.records):
            if isinstance(record, OffsetCommitRecord) or record.value is None:
                self._apply(record, Offset(base_offset + index), producer_id)

    def _apply(self, record: GroupRecord, record_offset: Offset, producer_id: ProducerId | None) -> None:
        if isinstance(record, GroupMetadataRecord):
            assert record.value is None
            self._groups.classic.pop(record.key.group, None)
            return
        group_id = record.key.group
        is_known = group_id in self._groups.classic or self._groups.is_other(group_id)
        if record.value is not None and not is_known:
            # Whoever commits without being a member makes a group without a protocol.
            self._groups.classic[group_id] = ClassicGroup(group_id, record.value.commit_timestamp)
        self._store.apply(record, record_offset, producer_id)

    def transaction_ended(self, producer_id: ProducerId, *, is_committed: bool) -> None:
        """A marker has been appended."""
        self._store.end_transaction(producer_id, is_committed=is_committed)

    def expire(self, key: TimerKey, now_ms: int) -> Decision:
        """A timer is due; the shell has forgotten it."""
        return self._clean_up(now_ms) if key == CLEANUP else self.membership.expire(key, now_ms)

    def _clean_up(self, now_ms: int) -> Decision:
        """Forgets offsets that have expired, and groups that have neither members nor offsets."""
        decision = Decision()
        records: list[GroupRecord] = []
        delay_ms = self._settings.offsets_retention_check_interval_ms
        for group in self._groups.classic.values():
            expired = self.offsets.expired(group, now_ms)
            records.extend(offset_tombstone(group.group_id, *partition) for partition in expired)
            is_bare = (
                len(expired) == len(self._store.committed(group.group_id))
                and not self._store.has_open_transaction(group.group_id)
                and not group.pending_join_members
            )
            if is_bare and group.state is GroupState.EMPTY:
                records.append(group_tombstone(group.group_id))
            if len(records) > CLEANUP_RECORDS_MAX:
                # The order of tombstones within a group is kept: a group that is cut goes on in the next round.
                del records[CLEANUP_RECORDS_MAX:]
                delay_ms = CLEANUP_PAUSE_MS
                break
        decision.append(records)
        decision.set_timer(CLEANUP, delay_ms)
        return decision

    def list_groups(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[ListedGroup]:
        """Those in one of the states and of one of the types, in any case of letters; none named means any."""
        wanted_states = {state.lower() for state in states}
        wanted_types = {group_type.lower() for group_type in types}
        if wanted_types and _GROUP_TYPE not in wanted_types:
            return []
        return [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=_GROUP_TYPE,
            )
            for group in self._groups.classic.values()
            if not wanted_states or group.state.value.lower() in wanted_states
        ]

    def describe_groups(self, group_ids: Iterable[str], version: int) -> list[DescribedGroup]:
        return [self._describe(group_id, version) for group_id in group_ids]

    def _describe(self, group_id: str, version: int) -> DescribedGroup:
        group = self._groups.classic.get(group_id)
        if group is None:
            described = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
            if version >= _FIRST_DESCRIBE_WITH_UNKNOWN_GROUP:
                described.error_code = GroupIdNotFound.code
                what = "is not a classic group" if self._groups.is_other(group_id) else "not found"
                described.error_message = f"Group {group_id} {what}."
            return described
        # Before all have agreed on a protocol, none of their metadata is the one to show.
        protocol_name = group.protocol_name if group.state is GroupState.STABLE else None
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=protocol_name or "",
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=b"" if protocol_name is None else member.protocols[protocol_name],
                    member_assignment=member.assignment,
                )
                for member in group.members.values()
            ],
        )

    def delete_groups(self, caller: Caller, group_ids: Iterable[str]) -> Decision:
        decision = Decision()
        response = DeleteGroupsResponse()
        records: list[GroupRecord] = []
        for group_id in dict.fromkeys(group_ids):
            result = DeletableGroupResult(group_id=group_id)
            response.results.append(result)
            group = self._groups.classic.get(group_id)
            if self._groups.is_other(group_id) or (group is not None and group.state is not GroupState.EMPTY):
                result.error_code = NonEmptyGroup.code
            elif group is None:
                result.error_code = GroupIdNotFound.code
            else:
                records.extend(self.offsets.tombstones(group_id))
                records.append(group_tombstone(group_id))
        if records:
            decision.append(records, partial(self._groups_deleted, caller, response))
        else:
            decision.reply(caller, response)
        return decision

    def _groups_deleted(
        self, caller: Caller, response: DeleteGroupsResponse, error: KafkaError | None, now_ms: int
    ) -> Decision:
        decision = Decision()
        if error is not None:
            for result in response.results:
                result.error_code = code_of_failed_append(error)
        decision.reply(caller, response)
        return decision
