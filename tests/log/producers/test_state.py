from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from barnabas.log.file_system import DiskFileSystem
from barnabas.log.names import segment_file
from barnabas.log.producers.entry import SEQUENCE_MAX, CompletedTransaction, ProducerEntry
from barnabas.log.producers.state import NO_GUARD, ProducerState

DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000


class Partition:
    """Feeds batches of one record to a producer state, as a partition log would."""

    def __init__(self, directory: Path) -> None:
        self.state = ProducerState("topic-0", str(directory), DiskFileSystem())
        self.offset = 0

    def data(
        self,
        sequence: int,
        *,
        producer_id: int = 1,
        epoch: int = 0,
        records: int = 1,
        transactional: bool = False,
        trusted: bool = False,
    ) -> int:
        update = self.state.prepare_update(producer_id, trusted=trusted, checks_sequence=not trusted)
        first_offset = self.offset
        update.append_data(
            producer_epoch=epoch,
            first_sequence=sequence,
            last_sequence=(sequence + records - 1) & SEQUENCE_MAX,
            first_offset=first_offset,
            last_offset=first_offset + records - 1,
            timestamp=NOW_MS,
            is_transactional=transactional,
        )
        self.state.apply(update)
        self._end_at(first_offset + records)
        return first_offset

    def marker(
        self, *, producer_id: int = 1, epoch: int = 0, coordinator_epoch: int = 0, abort: bool = False
    ) -> tuple[CompletedTransaction | None, int]:
        """The completed transaction, and the last stable offset that goes into the index with it."""
        update = self.state.prepare_update(producer_id, trusted=False, checks_sequence=True)
        completed = update.append_end_marker(
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            is_abort=abort,
            offset=self.offset,
            timestamp=NOW_MS,
        )
        self.state.apply(update)
        last_stable_offset = -1
        if completed is not None:
            last_stable_offset = self.state.last_stable_offset(completed)
            self.state.complete(completed)
        self._end_at(self.offset + 1)
        return completed, last_stable_offset

    def _end_at(self, offset: int) -> None:
        self.offset = offset
        self.state.map_end_offset = offset

    def entry(self, producer_id: int = 1) -> ProducerEntry:
        entry = self.state.entry(producer_id)
        assert entry is not None
        return entry


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    return Partition(tmp_path)


def test_sequences_follow_each_other(partition: Partition) -> None:
    partition.data(0, records=3)
    partition.data(3)
    with pytest.raises(OutOfOrderSequenceNumber, match=r"sequence 5 of producer 1 .* topic-0"):
        partition.data(5)
    partition.data(4)
    assert partition.entry().last_sequence == 4


def test_an_unknown_producer_may_begin_anywhere(partition: Partition) -> None:
    partition.data(17)
    assert partition.entry().last_sequence == 17


def test_sequences_wrap(partition: Partition) -> None:
    partition.data(SEQUENCE_MAX - 1, records=2)
    partition.data(0, records=2)
    assert partition.entry().last_sequence == 1
    wrapped = Partition(Path(partition.state._directory))
    wrapped.data(SEQUENCE_MAX, records=3)
    batch = wrapped.entry().batches[-1]
    assert (batch.first_sequence, batch.last_sequence) == (SEQUENCE_MAX, 1)
    wrapped.data(2)


def test_five_batches_are_remembered(partition: Partition) -> None:
    for sequence in range(0, 12, 2):
        partition.data(sequence, records=2)
    entry = partition.entry()
    assert entry.find_duplicate(0, 0, 1) is None
    for sequence in range(2, 12, 2):
        batch = entry.find_duplicate(0, sequence, sequence + 1)
        assert batch is not None
        assert (batch.first_offset, batch.last_offset) == (sequence, sequence + 1)
    assert entry.find_duplicate(0, 2, 2) is None
    assert entry.find_duplicate(1, 2, 3) is None


def test_a_new_epoch_begins_at_zero_and_fences_the_old(partition: Partition) -> None:
    partition.data(0)
    with pytest.raises(OutOfOrderSequenceNumber):
        partition.data(1, epoch=1)
    partition.data(0, epoch=1)
    assert len(partition.entry().batches) == 1
    with pytest.raises(InvalidProducerEpoch, match="older than the last seen epoch 1"):
        partition.data(1, epoch=0)


def test_what_a_leader_has_accepted_is_not_refused(partition: Partition) -> None:
    partition.data(0, epoch=4)
    partition.data(9, epoch=2, trusted=True)
    assert partition.entry().producer_epoch == 2


def test_a_refused_batch_changes_nothing(partition: Partition) -> None:
    partition.data(0, transactional=True)
    with pytest.raises(InvalidTxnState):
        partition.data(1)
    entry = partition.entry()
    assert entry.last_sequence == 0
    assert entry.current_txn_first_offset == 0
    assert partition.state.first_unstable_offset() == 0


def test_transactions_hold_the_last_stable_offset_back(partition: Partition) -> None:
    state = partition.state
    partition.data(0, producer_id=1, transactional=True)  # 0
    partition.data(0, producer_id=2, transactional=True)  # 1
    partition.data(0, producer_id=3)  # 2
    assert state.first_unstable_offset() == 0
    completed, last_stable_offset = partition.marker(producer_id=1, abort=True)  # 3
    assert completed is not None
    assert completed.is_aborted
    assert (completed.first_offset, completed.last_offset, last_stable_offset) == (0, 3, 1)
    assert state.first_undecided_offset == 1
    assert state.first_unstable_offset() == 0, "its marker is not replicated yet"
    state.acknowledge(3)
    assert state.first_unstable_offset() == 0
    state.acknowledge(4)
    assert state.first_unstable_offset() == 1
    completed, last_stable_offset = partition.marker(producer_id=2)  # 4
    assert completed is not None
    assert not completed.is_aborted
    assert last_stable_offset == 5
    state.acknowledge(5)
    assert state.first_unstable_offset() == -1


def test_a_marker_without_records_completes_nothing(partition: Partition) -> None:
    completed, _ = partition.marker(producer_id=5, epoch=2, coordinator_epoch=3)
    assert completed is None
    entry = partition.entry(5)
    assert (entry.producer_epoch, entry.coordinator_epoch) == (2, 3)


def test_markers_of_an_old_coordinator_are_fenced(partition: Partition) -> None:
    partition.data(0, transactional=True)
    partition.marker(coordinator_epoch=5)
    with pytest.raises(TransactionCoordinatorFenced):
        partition.marker(coordinator_epoch=4)


def test_sequences_go_on_after_a_marker(partition: Partition) -> None:
    partition.data(0, transactional=True)
    partition.marker()
    partition.data(1, transactional=True)
    with pytest.raises(OutOfOrderSequenceNumber):
        partition.data(0, transactional=True)


def test_expiry_spares_open_transactions(partition: Partition) -> None:
    partition.data(0, producer_id=1)
    partition.data(0, producer_id=2, transactional=True)
    partition.state.start_verification(3, 0, 0, NOW_MS)
    partition.state.remove_expired(NOW_MS + DAY_MS - 1)
    assert set(partition.state.producers) == {1, 2}
    partition.state.remove_expired(NOW_MS + DAY_MS)
    assert set(partition.state.producers) == {2}
    assert not partition.state.is_verified(3, 1)


def test_late_transactions(partition: Partition) -> None:
    assert not partition.state.has_late_transaction(NOW_MS, 1000)
    partition.data(0, transactional=True)
    assert not partition.state.has_late_transaction(NOW_MS + 301_000, 1000)
    assert partition.state.has_late_transaction(NOW_MS + 301_001, 1000)


def test_verification(partition: Partition) -> None:
    state = partition.state
    guard = state.start_verification(1, 5, 0, NOW_MS)
    assert guard != NO_GUARD
    assert state.start_verification(1, 7, 0, NOW_MS) == guard
    assert state.is_verified(1, guard)
    assert not state.is_verified(1, NO_GUARD)
    assert not state.is_verified(1, guard + 1)
    with pytest.raises(OutOfOrderSequenceNumber):
        partition.data(7, transactional=True)
    partition.data(5, transactional=True)
    state.end_verification(1)
    assert state.start_verification(1, 6, 0, NOW_MS) == NO_GUARD, "the transaction is open"
    assert not state.is_verified(1, guard)
    assert state.start_verification(2, 0, 0, NOW_MS) != guard


def test_the_lowest_sequence_is_that_of_the_highest_epoch(partition: Partition) -> None:
    state = partition.state
    state.start_verification(1, 5, 0, NOW_MS)
    state.start_verification(1, 0, 1, NOW_MS)
    with pytest.raises(OutOfOrderSequenceNumber):
        partition.data(1, epoch=1, transactional=True)
    partition.data(0, epoch=1, transactional=True)


def reloaded(partition: Partition, start: int, end: int, now_ms: int = NOW_MS) -> ProducerState:
    state = ProducerState("topic-0", partition.state._directory, DiskFileSystem())
    state.truncate_and_reload(start, end, now_ms)
    return state


def test_a_snapshot_brings_the_state_back(partition: Partition) -> None:
    partition.data(0, producer_id=1)
    partition.data(0, producer_id=2, transactional=True)
    assert partition.state.take_snapshot() is not None
    assert partition.state.take_snapshot() is None, "there is one already"
    partition.data(1, producer_id=1)
    state = reloaded(partition, 0, 3)
    assert state.map_end_offset == 2
    assert state.first_undecided_offset == 1
    entry = state.entry(1)
    assert entry is not None
    assert entry.last_sequence == 0


def test_loading_leaves_expired_producers_out(partition: Partition) -> None:
    partition.data(0, producer_id=1)
    partition.data(0, producer_id=2, transactional=True)
    partition.state.take_snapshot()
    assert set(reloaded(partition, 0, 2, NOW_MS + DAY_MS).producers) == {2}


def test_snapshots_out_of_range_are_removed(partition: Partition, tmp_path: Path) -> None:
    for _ in range(5):
        partition.data(partition.offset)
        partition.state.take_snapshot()
    state = reloaded(partition, 2, 4)
    assert state.snapshot_offsets == (3, 4)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        segment_file(3, ".snapshot"),
        segment_file(4, ".snapshot"),
    ]


def test_a_damaged_snapshot_gives_way_to_an_older_one(partition: Partition, tmp_path: Path) -> None:
    partition.data(0)
    partition.state.take_snapshot()
    partition.data(1)
    partition.state.take_snapshot()
    damaged = tmp_path / segment_file(2, ".snapshot")
    damaged.write_bytes(damaged.read_bytes()[:-1])
    state = reloaded(partition, 0, 2)
    assert state.map_end_offset == 1
    assert not damaged.exists()


def test_without_snapshots_the_state_begins_at_the_log_start(partition: Partition) -> None:
    state = reloaded(partition, 7, 9)
    assert state.map_end_offset == 7
    assert state.is_empty


def test_truncating_fully(partition: Partition, tmp_path: Path) -> None:
    partition.data(0, transactional=True)
    partition.state.take_snapshot()
    partition.state.truncate_fully_and_start_at(50)
    assert partition.state.is_empty
    assert partition.state.first_unstable_offset() == -1
    assert partition.state.map_end_offset == 50
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("segments", "left"),
    [([0, 2, 4], (2, 4, 5)), ([0, 2], (2, 5)), ([6], ()), ([], (5,))],
)
def test_stray_snapshots(partition: Partition, segments: list[int], left: tuple[int, ...]) -> None:
    for _ in range(5):
        partition.data(partition.offset)
        partition.state.take_snapshot()
    partition.state.remove_stray_snapshots(segments)
    assert partition.state.snapshot_offsets == left


def test_a_snapshot_marked_for_deletion_is_none_any_more(partition: Partition, tmp_path: Path) -> None:
    partition.data(0)
    partition.state.take_snapshot()
    path = partition.state.mark_snapshot_deleted(1)
    assert path == str(tmp_path / segment_file(1, ".snapshot", ".deleted"))
    assert partition.state.mark_snapshot_deleted(1) is None
    assert partition.state.snapshot_offsets == ()
