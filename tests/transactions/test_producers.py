"""Who has a transactional id, and with which epoch."""

from __future__ import annotations

import pytest

from barnabas.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerIdMapping,
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    ProducerFenced,
    RecordListTooLarge,
    RequestTimedOut,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from barnabas.transactions.settings import TransactionSettings
from barnabas.transactions.transaction import LAST_PRODUCER_EPOCH, TransactionState
from tests.transactions.shell import ID, T0, T1, TIMEOUT_MS, Shell, error_of


def at_epoch(epoch: int) -> tuple[Shell, tuple[int, int]]:
    """A producer that has come to an epoch."""
    shell = Shell()
    producer_id, _ = shell.init()
    entry = shell.entry()
    object.__setattr__(entry.transaction, "producer_epoch", epoch)
    return shell, (producer_id, epoch)


def test_a_new_id_begins_at_epoch_0_and_each_producer_gets_the_next() -> None:
    shell = Shell()
    first = shell.init()
    assert first[1] == 0
    assert shell.init() == (first[0], 1)
    assert shell.init(timeout_ms=5) == (first[0], 2)
    transaction = shell.transaction()
    assert (transaction.state, transaction.timeout_ms) == (TransactionState.EMPTY, 5)
    assert (transaction.start_timestamp, transaction.last_update_timestamp) == (-1, shell.now_ms)
    other = shell.init(transactional_id="other")
    assert other == (first[0] + 1, 0)


def test_ids_and_epochs_survive_the_coordinator() -> None:
    shell = Shell()
    producer_id, _ = shell.init()
    assert shell.reloaded().init() == (producer_id, 1)


def test_a_producer_that_says_who_it_is_gets_the_next_epoch() -> None:
    shell = Shell()
    first = shell.init()
    second = shell.init(first)
    assert second == (first[0], 1)
    # The answer was lost, and the request comes again.
    assert shell.init(first) == second
    assert shell.init(second) == (first[0], 2)
    assert error_of(shell.ask_init(first)) is ProducerFenced


def test_a_producer_is_fenced_by_another_that_does_not_say_who_it_is() -> None:
    shell = Shell()
    first = shell.init()
    shell.init(first)
    shell.init()
    assert error_of(shell.ask_init(first)) is ProducerFenced
    assert error_of(shell.ask_init((first[0], 1))) is ProducerFenced
    assert error_of(shell.ask_init((first[0] + 7, 2))) is ProducerFenced


def test_a_producer_that_the_coordinator_has_forgotten_gets_a_new_id() -> None:
    shell = Shell()
    assert shell.init((77, 5)) == (1_000, 0)


@pytest.mark.parametrize("says_who", [False, True])
def test_after_the_last_epoch_comes_another_producer_id(says_who: bool) -> None:
    shell, last = at_epoch(LAST_PRODUCER_EPOCH)
    following = shell.init(last if says_who else None)
    assert following == (last[0] + 1, 0)
    assert shell.transaction().previous_producer_id == last[0]
    # The answer was lost: who said who it was is recognised by the last epoch of its id.
    again = shell.ask_init(last)
    if says_who:
        assert (again.value.producer_id, again.value.producer_epoch) == following
    else:
        assert error_of(again) is ProducerFenced


def test_at_the_last_epoch_only_its_producer_goes_on() -> None:
    shell, (producer_id, _) = at_epoch(LAST_PRODUCER_EPOCH)
    assert error_of(shell.ask_init((producer_id, 7))) is ProducerFenced
    shell, (producer_id, epoch) = at_epoch(LAST_PRODUCER_EPOCH - 1)
    last = shell.init((producer_id, epoch))
    assert last == (producer_id, LAST_PRODUCER_EPOCH)
    assert shell.init((producer_id, epoch)) == last


def test_an_open_transaction_is_aborted_before_another_producer_comes() -> None:
    shell = Shell(holds_markers=True)
    producer_id, epoch = shell.init()
    shell.add((producer_id, epoch), T0, T1)
    assert error_of(shell.ask_init()) is ConcurrentTransactions
    assert shell.state() is TransactionState.PREPARE_ABORT
    [markers] = shell.sent
    assert (markers.producer_id, markers.producer_epoch) == (producer_id, epoch + 1)
    assert (markers.is_commit, markers.partitions, markers.version) == (False, (T0, T1), 2)
    assert error_of(shell.ask_init()) is ConcurrentTransactions
    shell.write_markers()
    assert shell.state() is TransactionState.COMPLETE_ABORT
    assert shell.init() == (producer_id, epoch + 2)


@pytest.mark.parametrize("version", [0, 2])
def test_the_fenced_producer_can_do_nothing(version: int) -> None:
    shell = Shell()
    zombie = shell.init()
    shell.add(zombie, version=version)
    shell.ask_init()
    shell.init()
    assert error_of(shell.ask_add(zombie, version=version)) is ProducerFenced
    assert error_of(shell.ask_end(zombie, version=version)) is ProducerFenced
    assert error_of(shell.ask_end(zombie, commit=False, version=version)) is ProducerFenced
    [verdict] = shell.verify(zombie, [T0]).values()
    assert isinstance(verdict, ProducerFenced)


def test_fencing_at_the_last_epoch_leads_to_another_producer_id() -> None:
    shell, last = at_epoch(LAST_PRODUCER_EPOCH)
    shell.holds_markers = True
    shell.add(last)
    assert error_of(shell.ask_init()) is ConcurrentTransactions
    [markers] = shell.sent
    assert (markers.producer_id, markers.producer_epoch) == (last[0], LAST_PRODUCER_EPOCH + 1)
    reloaded = shell.reloaded()
    assert reloaded.state() is TransactionState.COMPLETE_ABORT
    assert reloaded.init() == (last[0] + 1, 1)


def test_one_step_at_a_time() -> None:
    shell = Shell()
    shell.holds_commits = True
    first = shell.ask_init()
    assert not first.is_there
    assert error_of(shell.ask_init()) is ConcurrentTransactions
    assert error_of(shell.ask_add((1_000, 0))) is ConcurrentTransactions
    assert error_of(shell.ask_end((1_000, 0), version=2)) is ConcurrentTransactions
    shell.commit()
    assert (first.value.producer_id, first.value.producer_epoch) == (1_000, 0)
    shell.holds_commits = False
    assert shell.init() == (1_000, 1)


def test_without_a_producer_id_there_is_no_producer() -> None:
    shell = Shell()
    shell.producer_ids.error = CoordinatorLoadInProgress()
    assert error_of(shell.ask_init()) is CoordinatorLoadInProgress
    assert not list(shell.coordinator)
    shell.producer_ids.error = None
    assert shell.init() == (1_000, 0)
    shell, last = at_epoch(LAST_PRODUCER_EPOCH)
    shell.add(last)
    shell.producer_ids.error = CoordinatorLoadInProgress()
    assert error_of(shell.ask_end(last, version=2)) is CoordinatorLoadInProgress
    assert error_of(shell.ask_init()) is CoordinatorLoadInProgress
    shell.advance_ms(2 * TIMEOUT_MS)
    assert shell.state() is TransactionState.ONGOING
    shell.producer_ids.error = None
    shell.advance_ms(TIMEOUT_MS)
    assert shell.state() is TransactionState.COMPLETE_ABORT


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (UnknownTopicOrPartition, CoordinatorNotAvailable),
        (NotEnoughReplicas, CoordinatorNotAvailable),
        (NotEnoughReplicasAfterAppend, CoordinatorNotAvailable),
        (RequestTimedOut, CoordinatorNotAvailable),
        (NotLeaderOrFollower, NotCoordinator),
        (KafkaStorageError, NotCoordinator),
        (MessageTooLarge, UnknownServerError),
        (RecordListTooLarge, UnknownServerError),
        (NotCoordinator, NotCoordinator),
    ],
)
def test_a_step_that_cannot_be_written_is_not_made(failure: type[KafkaError], told: type[KafkaError]) -> None:
    shell = Shell()
    shell.append_error = failure()
    assert error_of(shell.ask_init()) is told
    # Nobody has got an epoch, so nobody is a producer.
    assert error_of(shell.ask_add((1_000, -1))) is InvalidProducerIdMapping
    assert error_of(shell.ask_end((1_000, -1), commit=False, version=2)) is InvalidProducerIdMapping
    shell.append_error = None
    producer = shell.init()
    assert producer == (1_000, 0)
    shell.append_error = failure()
    assert error_of(shell.ask_add(producer)) is told
    assert shell.state() is TransactionState.EMPTY
    shell.append_error = None
    shell.add(producer)
    shell.append_error = failure()
    assert error_of(shell.ask_end(producer, version=2)) is told
    assert error_of(shell.ask_init()) is told
    assert (shell.state(), shell.entry().pending) == (TransactionState.ONGOING, None)
    shell.append_error = None
    assert shell.end(producer, version=2) == (1_000, 1)


def test_ids_that_are_not_used_are_forgotten() -> None:
    shell = Shell()
    for number in range(450):
        shell.init(transactional_id=f"old-{number}")
    shell.advance_ms(shell.settings.transactional_id_expiration_ms - 1)
    young = shell.init(transactional_id="young")
    assert len(list(shell.coordinator)) == 451
    shell.advance_ms(2 * shell.settings.remove_expired_interval_ms)
    assert [entry.transactional_id for entry in shell.coordinator] == ["young"]
    assert [record.transaction for record in shell.records()].count(None) == 450
    assert len(list(shell.reloaded().coordinator)) == 1
    assert shell.init(young, transactional_id="young") == (young[0], 1)
    assert shell.init((1_000, 0), transactional_id="old-0") == (young[0] + 1, 0)


def test_an_id_is_only_forgotten_when_that_is_written() -> None:
    shell = Shell()
    shell.init()
    shell.append_error = NotEnoughReplicas()
    shell.advance_ms(
        shell.settings.transactional_id_expiration_ms + 2 * shell.settings.remove_expired_interval_ms
    )
    assert shell.entry().pending is None
    shell.append_error = None
    shell.holds_commits = True
    shell.advance_ms(shell.settings.remove_expired_interval_ms)
    assert shell.entry().pending is TransactionState.DEAD
    assert error_of(shell.ask_init()) is ConcurrentTransactions
    shell.commit()
    assert shell.coordinator.find(ID) is None


def test_an_id_with_an_open_transaction_is_not_forgotten() -> None:
    week_ms = 7 * 24 * 3_600_000
    shell = Shell(TransactionSettings(transaction_max_timeout_ms=2 * week_ms))
    producer = shell.init(timeout_ms=2 * week_ms)
    shell.add(producer)
    shell.advance_ms(week_ms + 2 * shell.settings.remove_expired_interval_ms)
    assert shell.end(producer) == producer
    shell.advance_ms(2 * shell.settings.remove_expired_interval_ms)
    assert shell.state() is TransactionState.COMPLETE_COMMIT
