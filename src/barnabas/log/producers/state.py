"""The producers of a partition: their last batches, the open transactions, and the snapshots on disk.

The state at any offset is that of the newest snapshot below it plus the batches since. A snapshot is written when a
segment is rolled, named after the new segment's base offset, and when the log is closed. A snapshot that a crash has
damaged does not pass its checksum and is removed, and the next older one is used.

A producer is dropped when it has not written for `producer_id_expiration_ms`, unless it has an open transaction. Every
caller here holds the partition log's lock.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from barnabas.errors import InvalidProducerEpoch, InvalidTxnState
from barnabas.log.file_system import CREATE, FileSystem, NoSuchFile
from barnabas.log.names import DELETED_SUFFIX, PRODUCER_SNAPSHOT_SUFFIX, parse_segment_file, segment_file
from barnabas.log.producers.entry import (
    CompletedTransaction,
    OpenTransaction,
    ProducerEntry,
    ProducerUpdate,
    VerificationState,
)
from barnabas.log.producers.snapshot import CorruptSnapshot, decode_snapshot, encode_snapshot
from barnabas.model import NO_OFFSET, NO_TIMESTAMP, Offset

logger = logging.getLogger(__name__)

PRODUCER_ID_EXPIRATION_MS: Final = 86_400_000
# How long a transaction may be open beyond its time-out before it counts as left hanging.
LATE_TRANSACTION_BUFFER_MS: Final = 5 * 60 * 1000
NO_GUARD: Final = 0


class ProducerSettings:
    """Shared settings of the producers of all partitions. They may change while they are in use."""

    __slots__ = ("producer_id_expiration_ms", "verifies_transactions")

    def __init__(
        self,
        *,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        verifies_transactions: bool = False,
    ) -> None:
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.verifies_transactions = verifies_transactions


class ProducerState:
    """Kafka's ProducerStateManager. `map_end_offset` is the offset up to which batches are accounted for."""

    __slots__ = (
        "_directory",
        "_fs",
        "_last_guard",
        "_last_snapshot_offset",
        "_ongoing",
        "_ongoing_offsets",
        "_producers",
        "_snapshot_offsets",
        "_unreplicated",
        "_verifications",
        "map_end_offset",
        "settings",
        "where",
    )

    def __init__(
        self,
        where: str,
        directory: str,
        fs: FileSystem,
        *,
        settings: ProducerSettings | None = None,
        snapshot_offsets: list[int] | None = None,
    ) -> None:
        """`where` names the partition in messages; the snapshots are looked up in the directory unless given."""
        self.where = where
        self.settings = ProducerSettings() if settings is None else settings
        self.map_end_offset = 0
        self._directory = directory
        self._fs = fs
        self._producers: dict[int, ProducerEntry] = {}
        self._ongoing: dict[int, OpenTransaction] = {}
        self._ongoing_offsets: list[int] = []
        self._unreplicated: dict[int, OpenTransaction] = {}
        self._verifications: dict[int, VerificationState] = {}
        self._last_guard = NO_GUARD
        self._last_snapshot_offset = 0
        self._snapshot_offsets: list[int] = (
            list_snapshots(fs, directory) if snapshot_offsets is None else snapshot_offsets
        )

    @property
    def producers(self) -> Mapping[int, ProducerEntry]:
        return MappingProxyType(self._producers)

    @property
    def is_empty(self) -> bool:
        return not self._producers and not self._unreplicated

    @property
    def snapshot_offsets(self) -> tuple[int, ...]:
        return tuple(self._snapshot_offsets)

    def entry(self, producer_id: int) -> ProducerEntry | None:
        return self._producers.get(producer_id)

    def has_late_transaction(self, now_ms: int, max_transaction_timeout_ms: int) -> bool:
        if not self._ongoing_offsets:
            return False
        entry = self._producers.get(self._ongoing[self._ongoing_offsets[0]].producer_id)
        last_timestamp = NO_TIMESTAMP if entry is None else entry.last_timestamp
        return last_timestamp > 0 and (
            now_ms - last_timestamp > max_transaction_timeout_ms + LATE_TRANSACTION_BUFFER_MS
        )

    # Verification of transactions with their coordinator (KIP-890).

    def start_verification(
        self, producer_id: int, sequence: int, producer_epoch: int, now_ms: int, *, bumps_epochs: bool = False
    ) -> int:
        """A guard to present with the first batch of a transaction; NO_GUARD when one is open already.

        Raises InvalidProducerEpoch for an epoch that has been fenced.
        """
        entry = self._producers.get(producer_id)
        if entry is not None:
            self.check_fenced(entry, producer_epoch)
            if entry.is_in_transaction(producer_epoch):
                return NO_GUARD
        state = self._verifications.get(producer_id)
        if state is None:
            self._last_guard += 1
            state = VerificationState(self._last_guard, now_ms, sequence, producer_epoch, bumps_epochs)
            self._verifications[producer_id] = state
        state.observe(sequence, producer_epoch)
        return state.guard

    def is_verified(self, producer_id: int, guard: int) -> bool:
        state = self._verifications.get(producer_id)
        return state is not None and guard == state.guard

    def check_fenced(self, entry: ProducerEntry, producer_epoch: int) -> None:
        if producer_epoch < entry.producer_epoch:
            raise InvalidProducerEpoch(
                f"epoch {producer_epoch} of producer {entry.producer_id} in {self.where} is older than the last seen"
                f" epoch {entry.producer_epoch}"
            )

    def check_verified(self, producer_id: int, producer_epoch: int, guard: int) -> None:
        """Raises unless the transaction of a batch is open here, or the coordinator has just said that it is open."""
        entry = self._producers.get(producer_id)
        if entry is not None:
            if entry.is_in_transaction(producer_epoch):
                return
            self.check_fenced(entry, producer_epoch)
        if self.settings.verifies_transactions and not self.is_verified(producer_id, guard):
            raise InvalidTxnState(
                f"producer {producer_id} wrote to {self.where} outside a transaction that its coordinator knows of"
            )

    def is_of_next_transaction(self, producer_id: int, marker_epoch: int) -> bool:
        """Whether the coordinator is being asked about the transaction after the one that this marker ends.

        With transaction version 2 a marker has the epoch of the next transaction. If the coordinator is on another
        broker, the first batch of that transaction may come before the marker does.
        """
        state = self._verifications.get(producer_id)
        entry = self._producers.get(producer_id)
        return (
            state is not None
            and state.bumps_epochs
            and state.producer_epoch == marker_epoch
            and entry is not None
            and entry.producer_epoch < marker_epoch
        )

    def end_verification(self, producer_id: int) -> None:
        self._verifications.pop(producer_id, None)

    # Changes by batches.

    def prepare_update(self, producer_id: int, *, trusted: bool, checks_sequence: bool) -> ProducerUpdate:
        return ProducerUpdate(
            self.where,
            producer_id,
            self._producers.get(producer_id),
            self._verifications.get(producer_id),
            trusted=trusted,
            checks_sequence=checks_sequence,
        )

    def apply(self, update: ProducerUpdate) -> None:
        producer_id = update.updated.producer_id
        existing = self._producers.get(producer_id)
        if existing is None:
            self._producers[producer_id] = update.updated
        else:
            update.apply(existing)
        for transaction in update.started:
            self._add_ongoing(transaction)

    def complete(self, completed: CompletedTransaction) -> None:
        transaction = self._ongoing.pop(completed.first_offset, None)
        if transaction is None:
            # Two producers cannot begin at one offset; only a snapshot that is not ours can say so.
            logger.warning(
                "a transaction of %s from offset %d ends twice", self.where, completed.first_offset
            )
            return
        del self._ongoing_offsets[bisect_left(self._ongoing_offsets, completed.first_offset)]
        transaction.last_offset = completed.last_offset
        self._unreplicated[completed.first_offset] = transaction

    def last_stable_offset(self, completed: CompletedTransaction) -> int:
        """The last stable offset as it will be once the transaction is complete."""
        for first_offset in self._ongoing_offsets:
            if self._ongoing[first_offset].producer_id != completed.producer_id:
                return first_offset
        return completed.last_offset + 1

    @property
    def first_undecided_offset(self) -> Offset | None:
        return Offset(self._ongoing_offsets[0]) if self._ongoing_offsets else None

    def first_unstable_offset(self) -> int:
        """The first offset of a transaction that is open or whose marker is not yet replicated; -1 without one."""
        first = self._ongoing_offsets[0] if self._ongoing_offsets else NO_OFFSET
        for first_offset in self._unreplicated:
            if first < 0 or first_offset < first:
                first = first_offset
        return first

    def acknowledge(self, high_watermark: int) -> None:
        """Forgets completed transactions whose marker is below the high watermark."""
        if self._unreplicated:
            self._unreplicated = {
                first_offset: transaction
                for first_offset, transaction in self._unreplicated.items()
                if transaction.last_offset >= high_watermark
            }

    def remove_expired(self, now_ms: int) -> None:
        expired = [entry.producer_id for entry in self._producers.values() if self._is_expired(entry, now_ms)]
        for producer_id in expired:
            del self._producers[producer_id]
        expired = [
            producer_id
            for producer_id, state in self._verifications.items()
            if now_ms - state.timestamp >= self.settings.producer_id_expiration_ms
        ]
        for producer_id in expired:
            del self._verifications[producer_id]

    # Snapshots and truncation.

    def take_snapshot(self, *, sync: bool = True) -> str | None:
        """Writes the state at map_end_offset if there is no snapshot of it; returns the path, to be synced later."""
        offset = self.map_end_offset
        if offset <= self._last_snapshot_offset:
            return None
        path = self._path(offset)
        data = encode_snapshot(self._producers.values())
        file = self._fs.open(path, CREATE)
        file.truncate(0)
        file.pwrite(data, 0)
        if sync:
            file.sync()
        self._add_snapshot(offset)
        self._last_snapshot_offset = offset
        return path

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Goes back to the newest snapshot that is not above the end; later batches must be replayed."""
        for offset in self.snapshot_offsets:
            if offset > log_end_offset or offset <= log_start_offset:
                self._remove_snapshot(offset)
        if log_end_offset == self.map_end_offset:
            self.advance_log_start_offset(log_start_offset)
            return
        self._clear()
        while self._snapshot_offsets:
            offset = self._snapshot_offsets[-1]
            try:
                entries = decode_snapshot(self._fs.read_file(self._path(offset)), self._path(offset))
            except (CorruptSnapshot, NoSuchFile) as error:
                logger.warning("ignoring a producer snapshot of %s: %s", self.where, error)
                self._remove_snapshot(offset)
                continue
            for entry in entries:
                if not self._is_expired(entry, now_ms):
                    self._load(entry)
            self._last_snapshot_offset = offset
            self.map_end_offset = offset
            return
        self._last_snapshot_offset = log_start_offset
        self.map_end_offset = log_start_offset

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self._clear()
        for snapshot_offset in self.snapshot_offsets:
            self._remove_snapshot(snapshot_offset)
        self._last_snapshot_offset = 0
        self.map_end_offset = offset

    def advance_log_start_offset(self, log_start_offset: int) -> None:
        self.acknowledge(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        self._last_snapshot_offset = (
            self._snapshot_offsets[-1] if self._snapshot_offsets else log_start_offset
        )

    def remove_stray_snapshots(self, segment_base_offsets: Iterable[int]) -> None:
        """Removes snapshots that belong to no segment, but for the newest if it is above all segments.

        That one was written when the log was last closed.
        """
        base_offsets = set(segment_base_offsets)
        strays = [offset for offset in self._snapshot_offsets if offset not in base_offsets]
        if strays and strays[-1] >= max(base_offsets, default=0):
            strays.pop()
        for offset in strays:
            self._remove_snapshot(offset)

    def mark_snapshot_deleted(self, offset: int) -> str | None:
        """Renames the snapshot so that it is removed at the latest when the log is next opened; its new path."""
        index = bisect_left(self._snapshot_offsets, offset)
        if self._snapshot_offsets[index : index + 1] != [offset]:
            return None
        del self._snapshot_offsets[index]
        path = self._path(offset)
        try:
            self._fs.rename(path, path + DELETED_SUFFIX)
        except NoSuchFile:
            return None
        return path + DELETED_SUFFIX

    def move_to(self, directory: str) -> None:
        self._directory = directory

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{segment_file(offset, PRODUCER_SNAPSHOT_SUFFIX)}"

    def _add_snapshot(self, offset: int) -> None:
        if offset not in self._snapshot_offsets:
            insort(self._snapshot_offsets, offset)

    def _remove_snapshot(self, offset: int) -> None:
        self._snapshot_offsets.remove(offset)
        self._fs.remove(self._path(offset), missing_ok=True)

    def _add_ongoing(self, transaction: OpenTransaction) -> None:
        if transaction.first_offset not in self._ongoing:
            insort(self._ongoing_offsets, transaction.first_offset)
        self._ongoing[transaction.first_offset] = transaction

    def _load(self, entry: ProducerEntry) -> None:
        self._producers[entry.producer_id] = entry
        if entry.current_txn_first_offset >= 0:
            self._add_ongoing(OpenTransaction(entry.producer_id, entry.current_txn_first_offset))

    def _clear(self) -> None:
        self._producers.clear()
        self._ongoing.clear()
        self._ongoing_offsets.clear()
        self._unreplicated.clear()

    def _is_expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        return (
            entry.current_txn_first_offset < 0
            and now_ms - entry.last_timestamp >= self.settings.producer_id_expiration_ms
        )


def list_snapshots(fs: FileSystem, directory: str) -> list[int]:
    names = map(parse_segment_file, fs.list_dir(directory))
    return sorted(
        int(name.base_offset)
        for name in names
        if name is not None and name.kind == PRODUCER_SNAPSHOT_SUFFIX and not name.state
    )
