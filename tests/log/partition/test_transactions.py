"""A partition's side of idempotence and transactions: what is refused, what is a duplicate, what ends a transaction."""

from __future__ import annotations

import pytest

from barnabas.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaError,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from barnabas.log.partition.append import AppendInfo
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.log.producers.entry import PRODUCER_EPOCH_MAX
from barnabas.log.producers.state import NO_GUARD, ProducerSettings
from barnabas.model import ProducerEpoch, ProducerId, TimestampMs
from barnabas.records.builder import end_transaction_marker
from barnabas.records.layout import ControlRecordType
from barnabas.records.policy import AppendOrigin
from tests.log.partitions import NOW_MS, Disk, append, batch

PRODUCER = 7


def verifying(disk: Disk | None = None) -> PartitionLog:
    return (disk or Disk()).open(producer_settings=ProducerSettings(verifies_transactions=True))


def write(
    log: PartitionLog, sequence: int, *, epoch: int = 0, guard: int = NO_GUARD, values: int = 1
) -> AppendInfo:
    """A batch of a transaction."""
    data = batch(
        *[b"value"] * values,
        producer_id=PRODUCER,
        producer_epoch=epoch,
        sequence=sequence,
        transactional=True,
    )
    info = log.append_as_leader(data, leader_epoch=0, verification_guard=guard)
    log.advance_high_watermark(log.log_end_offset)
    return info


def end(
    log: PartitionLog, *, epoch: int = 0, version: int = 0, coordinator_epoch: int = 0, abort: bool = False
) -> AppendInfo:
    marker = end_transaction_marker(
        control_type=ControlRecordType.ABORT if abort else ControlRecordType.COMMIT,
        timestamp=TimestampMs(NOW_MS),
        producer_id=ProducerId(PRODUCER),
        producer_epoch=ProducerEpoch(epoch),
        coordinator_epoch=coordinator_epoch,
    )
    info = log.append_as_leader(
        marker, leader_epoch=0, origin=AppendOrigin.COORDINATOR, transaction_version=version
    )
    log.advance_high_watermark(log.log_end_offset)
    return info


def test_five_batches_are_known_again_after_a_restart() -> None:
    disk = Disk()
    log = disk.open()
    written = [append(log, b"x", b"y", producer_id=PRODUCER, sequence=2 * each) for each in range(7)]
    append(log, b"z", producer_id=99, sequence=0)
    log.close()
    log = disk.open(recovery_point=log.log_end_offset, clean_shutdown=True)
    for index in (2, 3, 6, 5, 4):
        repeated = append(log, b"x", b"y", producer_id=PRODUCER, sequence=2 * index)
        assert repeated.is_duplicate
        assert (repeated.first_offset, repeated.last_offset) == (
            written[index].first_offset,
            written[index].last_offset,
        )
    with pytest.raises(OutOfOrderSequenceNumber):
        append(log, b"x", b"y", producer_id=PRODUCER, sequence=2)
    with pytest.raises(OutOfOrderSequenceNumber):
        append(log, b"x", b"y", producer_id=PRODUCER, sequence=16)
    assert not append(log, b"x", producer_id=PRODUCER, sequence=14).is_duplicate
    assert log.log_end_offset == 16


def test_batches_are_known_again_from_segments_before_the_last_and_of_their_epoch_alone() -> None:
    disk = Disk(segment_bytes=1000)
    log = disk.open()
    append(log, b"old", producer_id=PRODUCER, sequence=0, producer_epoch=0)
    for sequence in range(3):
        append(log, b"x" * 600, producer_id=PRODUCER, sequence=sequence, producer_epoch=1)
    assert len(log.segments) == 3
    log.close()
    log = disk.open(recovery_point=log.log_end_offset, clean_shutdown=True)
    assert append(log, b"x" * 600, producer_id=PRODUCER, sequence=0, producer_epoch=1).first_offset == 1
    (producer,) = log.active_producers()
    assert producer.last_sequence == 2


def test_what_is_known_of_a_producer_is_not_looked_up_twice() -> None:
    disk = Disk()
    log = disk.open()
    for sequence in range(3):
        append(log, b"x", producer_id=PRODUCER, sequence=sequence)
    log.close()
    log = disk.open(recovery_point=log.log_end_offset, clean_shutdown=True)
    for _ in range(2):
        with pytest.raises(OutOfOrderSequenceNumber):
            append(log, b"x", producer_id=PRODUCER, sequence=9)
    entry = log._producers.entry(PRODUCER)
    assert entry is not None
    assert not entry.is_partial
    assert [each.last_sequence for each in entry.batches] == [0, 1, 2]


def test_sequences_go_round_behind_the_largest() -> None:
    log = Disk().open()
    append(log, b"a", producer_id=PRODUCER, sequence=2**31 - 2)
    info = append(log, b"b", b"c", producer_id=PRODUCER, sequence=2**31 - 1)
    assert append(log, b"b", b"c", producer_id=PRODUCER, sequence=2**31 - 1).first_offset == info.first_offset
    append(log, b"d", producer_id=PRODUCER, sequence=1)
    with pytest.raises(OutOfOrderSequenceNumber):
        append(log, b"e", producer_id=PRODUCER, sequence=3)


def test_a_new_epoch_begins_at_zero_and_an_old_one_is_over() -> None:
    log = Disk().open()
    append(log, b"a", producer_id=PRODUCER, sequence=0)
    with pytest.raises(OutOfOrderSequenceNumber):
        append(log, b"b", producer_id=PRODUCER, producer_epoch=1, sequence=1)
    append(log, b"b", producer_id=PRODUCER, producer_epoch=1, sequence=0)
    with pytest.raises(InvalidProducerEpoch):
        append(log, b"c", producer_id=PRODUCER, sequence=1)


def test_records_outside_an_open_transaction_are_refused() -> None:
    log = Disk().open()
    write(log, 0)
    with pytest.raises(InvalidTxnState):
        append(log, b"a", producer_id=PRODUCER, sequence=1)
    assert log.log_end_offset == 1


def test_an_answer_about_one_transaction_does_not_admit_a_batch_of_the_next() -> None:
    log = verifying()
    guard = log.start_verification(PRODUCER, 0, 0)
    # The transaction ends before the batch comes, and the next is asked about.
    end(log)
    later = log.start_verification(PRODUCER, 0, 0)
    assert later not in (guard, NO_GUARD)
    with pytest.raises(InvalidTxnState):
        write(log, 0, guard=guard)
    write(log, 0, guard=later)


def test_a_marker_that_comes_late_does_not_end_the_question_about_the_next_transaction() -> None:
    """As when the coordinator is on another broker: the client may be faster than the marker."""
    log = verifying()
    write(log, 0, guard=log.start_verification(PRODUCER, 0, 0, bumps_epochs=True))
    guard = log.start_verification(PRODUCER, 0, 1, bumps_epochs=True)
    end(log, epoch=1, version=2)
    write(log, 0, epoch=1, guard=guard)
    # The end of that transaction has the next epoch, and ends the question.
    end(log, epoch=2, version=2)
    late = log.start_verification(PRODUCER, 0, 2, bumps_epochs=True)
    end(log, epoch=3, version=2)
    with pytest.raises(InvalidProducerEpoch):
        write(log, 0, epoch=2, guard=late)


def test_a_fenced_producer_is_not_asked_about() -> None:
    log = verifying()
    end(log, epoch=5)
    with pytest.raises(InvalidProducerEpoch):
        log.start_verification(PRODUCER, 0, 4)
    with pytest.raises(InvalidProducerEpoch):
        write(log, 0, epoch=4)
    assert log.start_verification(PRODUCER, 0, 5) != NO_GUARD


def test_a_transaction_that_is_open_in_an_older_epoch_does_not_admit_a_newer_one() -> None:
    log = verifying()
    write(log, 0, guard=log.start_verification(PRODUCER, 0, 0))
    assert log.start_verification(PRODUCER, 1, 0) == NO_GUARD
    with pytest.raises(InvalidTxnState):
        write(log, 0, epoch=1)
    write(log, 0, epoch=1, guard=log.start_verification(PRODUCER, 0, 1))


def test_the_earliest_batch_that_was_asked_about_comes_first() -> None:
    log = verifying()
    guard = log.start_verification(PRODUCER, 3, 0)
    assert log.start_verification(PRODUCER, 0, 0) == guard
    with pytest.raises(OutOfOrderSequenceNumber):
        write(log, 3, guard=guard)
    write(log, 0, guard=guard, values=3)
    write(log, 3)


@pytest.mark.parametrize("bumps_epochs", [False, True])
def test_a_producer_that_is_not_known_any_more(bumps_epochs: bool) -> None:
    log = verifying()
    guard = log.start_verification(PRODUCER, 10, 3, bumps_epochs=bumps_epochs)
    if bumps_epochs:
        with pytest.raises(OutOfOrderSequenceNumber):
            write(log, 10, epoch=3, guard=guard)
    else:
        write(log, 10, epoch=3, guard=guard)


def test_verification_follows_its_setting() -> None:
    settings = ProducerSettings(verifies_transactions=True)
    log = Disk().open(producer_settings=settings)
    with pytest.raises(InvalidTxnState):
        write(log, 0)
    settings.verifies_transactions = False
    write(log, 0)


@pytest.mark.parametrize(
    ("open_epoch", "marker_epoch", "version", "error"),
    [
        (3, 3, 0, None),
        (3, 3, 1, None),
        (3, 4, 0, None),
        (3, 2, 0, InvalidProducerEpoch),
        (3, 4, 2, None),
        (3, 3, 2, InvalidProducerEpoch),
        (3, 2, 2, InvalidProducerEpoch),
        (PRODUCER_EPOCH_MAX, PRODUCER_EPOCH_MAX, 2, None),
    ],
)
def test_the_epoch_of_a_marker(
    open_epoch: int, marker_epoch: int, version: int, error: type[KafkaError] | None
) -> None:
    log = Disk().open()
    write(log, 0, epoch=open_epoch)
    if error is None:
        end(log, epoch=marker_epoch, version=version)
        assert log.last_stable_offset == 2
    else:
        with pytest.raises(error):
            end(log, epoch=marker_epoch, version=version)
        assert log.last_stable_offset == 0


def test_a_marker_may_come_again_but_not_end_the_next_transaction() -> None:
    log = Disk().open()
    write(log, 0, epoch=3)
    end(log, epoch=4, version=2)
    end(log, epoch=4, version=2)
    assert log.aborted_transactions(0, 10) == []
    write(log, 0, epoch=4)
    with pytest.raises(InvalidProducerEpoch):
        end(log, epoch=4, version=2, abort=True)
    assert log.last_stable_offset == 3
    end(log, epoch=5, version=2)
    assert log.last_stable_offset == log.log_end_offset


def test_a_marker_of_an_old_coordinator_is_refused() -> None:
    log = Disk().open()
    write(log, 0)
    end(log, coordinator_epoch=2)
    write(log, 1)
    with pytest.raises(TransactionCoordinatorFenced):
        end(log, coordinator_epoch=1)
    assert log.last_stable_offset == 2
    end(log, coordinator_epoch=2, abort=True)


def test_an_open_transaction_survives_a_restart_and_is_not_forgotten() -> None:
    disk = Disk()
    settings = ProducerSettings(producer_id_expiration_ms=1000)
    log = disk.open(producer_settings=settings)
    append(log, b"a")
    write(log, 0)
    log.close()
    disk.clock.advance_ms(5000)
    log = disk.open(producer_settings=settings, recovery_point=2, clean_shutdown=True)
    log.advance_high_watermark(2)
    log.remove_expired_producers()
    assert log.last_stable_offset == 1
    (producer,) = log.active_producers()
    assert producer.current_txn_start_offset == 1
    end(log, abort=True)
    disk.clock.advance_ms(5000)
    log.remove_expired_producers()
    assert log.active_producers() == []
    assert log.last_stable_offset == 3


def test_the_last_stable_offset_does_not_stay_before_the_start_of_the_log() -> None:
    log = Disk().open()
    write(log, 0, values=3)
    append(log, b"a", b"b")
    assert log.last_stable_offset == 0
    log.delete_records(4)
    assert log.last_stable_offset == log.log_start_offset == 4
    end(log)
    assert log.last_stable_offset == log.log_end_offset == 6
