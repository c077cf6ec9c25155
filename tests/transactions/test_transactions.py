"""A transaction from its first partition to its completion, in both versions of the protocol."""

from __future__ import annotations

import pytest

from barnabas.errors import (
    ConcurrentTransactions,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaError,
    KafkaStorageError,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    ProducerFenced,
    TransactionAbortable,
    TransactionCoordinatorFenced,
    UnknownTopicOrPartition,
    UnsupportedForMessageFormat,
)
from barnabas.transactions.coordinator import RETRY_MAX_MS
from barnabas.transactions.settings import TransactionSettings
from barnabas.transactions.transaction import LAST_PRODUCER_EPOCH, NO_TIMEOUT_MS, TransactionState
from tests.transactions.shell import T0, T1, TIMEOUT_MS, Shell, error_of
from tests.transactions.test_producers import at_epoch

States = TransactionState


def states(shell: Shell) -> list[TransactionState]:
    return [record.transaction.state for record in shell.records() if record.transaction is not None]


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [0, 2])
def test_the_way_of_a_transaction(version: int, commit: bool) -> None:
    shell = Shell(holds_markers=True)
    producer = shell.init()
    shell.clock.advance_ms(10)
    began_ms = shell.now_ms
    shell.add(producer, T0, version=version)
    shell.clock.advance_ms(10)
    shell.add(producer, T1, version=version)
    assert shell.transaction().partitions == {T0, T1}
    assert shell.transaction().start_timestamp == began_ms
    bumped = (producer[0], producer[1] + (1 if version else 0))
    assert shell.end(producer, commit=commit, version=version) == bumped
    prepared = States.PREPARE_COMMIT if commit else States.PREPARE_ABORT
    completed = States.COMPLETE_COMMIT if commit else States.COMPLETE_ABORT
    assert shell.state() is prepared
    [markers] = shell.sent
    assert (markers.producer_id, markers.producer_epoch) == bumped
    assert (markers.is_commit, markers.partitions, markers.version) == (commit, (T0, T1), version)
    shell.write_markers()
    transaction = shell.transaction()
    assert (transaction.state, transaction.partitions) == (completed, frozenset())
    assert (transaction.producer_id, transaction.producer_epoch) == bumped
    assert states(shell) == [States.EMPTY, States.ONGOING, States.ONGOING, prepared, completed]
    shell.add(bumped, T0, version=version)
    assert shell.transaction().start_timestamp == shell.now_ms


def test_partitions_that_are_there_are_not_written_again() -> None:
    shell = Shell()
    producer = shell.init()
    shell.add(producer, T0, T1)
    written = len(shell.records())
    shell.add(producer, T1)
    assert len(shell.records()) == written


@pytest.mark.parametrize("version", [0, 2])
def test_who_is_not_the_producer(version: int) -> None:
    shell = Shell()
    assert error_of(shell.ask_add((1, 0), version=version)) is InvalidProducerIdMapping
    assert error_of(shell.ask_end((1, 0), version=version)) is InvalidProducerIdMapping
    producer_id, epoch = shell.init()
    shell.add((producer_id, epoch), version=version)
    for stranger, error in (
        ((producer_id + 1, epoch), InvalidProducerIdMapping),
        ((producer_id, epoch + 1), ProducerFenced),
        ((producer_id, -1), ProducerFenced),
    ):
        assert error_of(shell.ask_add(stranger, T1, version=version)) is error
        assert error_of(shell.ask_end(stranger, version=version)) is error
        assert error_of(shell.ask_end(stranger, commit=False, version=version)) is error
        verdicts = shell.verify(stranger, [T0, T1])
        assert {partition: type(verdict) for partition, verdict in verdicts.items()} == {T0: error, T1: error}
    assert shell.state() is States.ONGOING


def test_partitions_are_verified() -> None:
    shell = Shell(holds_markers=True)
    producer = shell.init()
    [verdict] = shell.verify(producer, [T0]).values()
    assert isinstance(verdict, TransactionAbortable)
    shell.add(producer, T0)
    verdicts = shell.verify(producer, [T0, T1])
    assert verdicts[T0] is None
    assert isinstance(verdicts[T1], TransactionAbortable)
    [verdict] = shell.verify(producer, [T0], transactional_id="nobody").values()
    assert isinstance(verdict, InvalidProducerIdMapping)
    shell.end(producer)
    [verdict] = shell.verify(producer, [T0]).values()
    assert isinstance(verdict, ConcurrentTransactions)
    shell.write_markers()
    [verdict] = shell.verify(producer, [T0]).values()
    assert isinstance(verdict, TransactionAbortable)


def at_rest(state: TransactionState, version: int) -> tuple[Shell, tuple[int, int]]:
    shell = Shell()
    producer = shell.init()
    if state is not States.EMPTY:
        shell.add(producer, version=version)
        producer = shell.end(producer, commit=state is States.COMPLETE_COMMIT, version=version)
    assert shell.state() is state
    return shell, producer


@pytest.mark.parametrize(
    ("state", "commit", "error"),
    [
        (States.EMPTY, True, InvalidTxnState),
        (States.EMPTY, False, InvalidTxnState),
        (States.COMPLETE_COMMIT, True, None),
        (States.COMPLETE_COMMIT, False, InvalidTxnState),
        (States.COMPLETE_ABORT, True, InvalidTxnState),
        (States.COMPLETE_ABORT, False, None),
    ],
)
def test_an_end_without_a_transaction(
    state: TransactionState, commit: bool, error: type[KafkaError] | None
) -> None:
    shell, producer = at_rest(state, version=0)
    for each in (shell, shell.reloaded()):
        assert error_of(each.ask_end(producer, commit=commit)) is error
        assert each.state() is state


ENDED = "ended"


@pytest.mark.parametrize("is_reloaded", [False, True])
@pytest.mark.parametrize(
    ("state", "commit", "of_last", "expected"),
    [
        (States.EMPTY, True, True, ProducerFenced),
        (States.EMPTY, True, False, InvalidTxnState),
        (States.EMPTY, False, True, ProducerFenced),
        (States.EMPTY, False, False, ENDED),
        (States.COMPLETE_COMMIT, True, True, None),
        (States.COMPLETE_COMMIT, True, False, InvalidTxnState),
        (States.COMPLETE_COMMIT, False, True, InvalidTxnState),
        (States.COMPLETE_COMMIT, False, False, ENDED),
        (States.COMPLETE_ABORT, True, True, InvalidTxnState),
        (States.COMPLETE_ABORT, True, False, InvalidTxnState),
        (States.COMPLETE_ABORT, False, True, None),
        (States.COMPLETE_ABORT, False, False, ENDED),
    ],
)
def test_an_end_without_a_transaction_in_version_2(
    state: TransactionState, commit: bool, of_last: bool, expected: object, is_reloaded: bool
) -> None:
    shell, current = at_rest(state, version=2)
    if state is States.EMPTY:
        current = shell.init()
    if is_reloaded:
        shell = shell.reloaded()
    sender = (current[0], current[1] - 1) if of_last else current
    written = len(shell.written)
    answer = shell.ask_end(sender, commit=commit, version=2)
    if expected is ENDED:
        assert (answer.value.producer_id, answer.value.producer_epoch) == (current[0], current[1] + 1)
        assert shell.state() is States.COMPLETE_ABORT
        assert shell.transaction().start_timestamp == shell.now_ms
        assert len(shell.written) == written
    elif expected is None:
        assert (answer.value.producer_id, answer.value.producer_epoch) == current
        assert shell.state() is state
    else:
        assert error_of(answer) is expected
        assert shell.state() is state


def test_a_late_end_does_not_end_the_next_transaction() -> None:
    shell = Shell()
    first = shell.init()
    shell.add(first, version=2)
    second = shell.end(first, version=2)
    shell.add(second, version=2)
    assert error_of(shell.ask_end(first, version=2)) is ProducerFenced
    assert error_of(shell.ask_end(first, commit=False, version=2)) is ProducerFenced
    assert shell.state() is States.ONGOING
    assert shell.end(second, version=2) == (first[0], 2)


def test_an_epoch_that_was_not_moved_on_by_an_end_is_no_sign_of_one() -> None:
    shell = Shell()
    zombie = shell.init()
    producer = shell.init()
    shell.add(producer)
    shell.end(producer)
    assert error_of(shell.ask_end(zombie, version=2)) is ProducerFenced


@pytest.mark.parametrize("commit", [True, False])
def test_the_end_at_the_last_epoch_gives_another_producer_id(commit: bool) -> None:
    shell, last = at_epoch(LAST_PRODUCER_EPOCH)
    shell.holds_markers = True
    shell.add(last, version=2)
    following = shell.end(last, commit=commit, version=2)
    assert following == (last[0] + 1, 0)
    [markers] = shell.sent
    assert (markers.producer_id, markers.producer_epoch) == (last[0], LAST_PRODUCER_EPOCH + 1)
    assert error_of(shell.ask_end(last, commit=commit, version=2)) is ConcurrentTransactions
    assert error_of(shell.ask_add(following, version=2)) is ConcurrentTransactions
    assert error_of(shell.ask_end(following, commit=False, version=2)) is ConcurrentTransactions
    shell = shell.reloaded()
    # The answer was lost.
    assert shell.end(last, commit=commit, version=2) == following
    assert error_of(shell.ask_end(last, commit=not commit, version=2)) is InvalidTxnState
    shell.add(following, version=2)
    assert error_of(shell.ask_end(last, commit=commit, version=2)) is InvalidProducerIdMapping
    assert shell.end(following, version=2) == (following[0], 1)


@pytest.mark.parametrize("version", [0, 2])
def test_while_a_transaction_is_completed_everything_has_to_wait(version: int) -> None:
    shell = Shell(holds_markers=True)
    producer = shell.init()
    shell.add(producer, version=version)
    following = shell.end(producer, version=version)
    assert error_of(shell.ask_add(following, version=version)) is ConcurrentTransactions
    assert error_of(shell.ask_end(producer, version=version)) is ConcurrentTransactions
    assert error_of(shell.ask_init()) is ConcurrentTransactions
    assert error_of(shell.ask_init(following)) is ConcurrentTransactions
    shell.write_markers()
    shell.add(following, version=version)


@pytest.mark.parametrize("version", [0, 2])
def test_while_a_transaction_is_completed_an_older_producer_is_fenced(version: int) -> None:
    shell = Shell(holds_markers=True)
    zombie = shell.init()
    shell.init()
    producer = shell.init()
    shell.add(producer, version=2)
    following = shell.end(producer, version=2)
    for commit in (True, False):
        assert error_of(shell.ask_end(zombie, commit=commit, version=version)) is ProducerFenced
        stranger = (producer[0] + 7, producer[1])
        assert error_of(shell.ask_end(stranger, commit=commit, version=version)) is InvalidProducerIdMapping
        assert error_of(shell.ask_end(following, commit=commit, version=version)) is ConcurrentTransactions


@pytest.mark.parametrize("version", [0, 2])
def test_a_transaction_that_lasts_too_long_is_aborted(version: int) -> None:
    shell = Shell()
    producer = shell.init()
    shell.add(producer, version=version)
    shell.advance_ms(TIMEOUT_MS - 1)
    # Adding to it does not make it begin anew.
    shell.add(producer, T1, version=version)
    shell.advance_ms(1)
    assert shell.state() is States.ONGOING
    shell.advance_ms(shell.settings.abort_timed_out_interval_ms)
    assert shell.state() is States.COMPLETE_ABORT
    [markers] = shell.written
    assert (markers.is_commit, markers.producer_epoch) == (False, producer[1] + 1)
    assert error_of(shell.ask_add(producer, version=version)) is ProducerFenced
    if version == 0:
        assert error_of(shell.ask_end(producer)) is ProducerFenced
        assert error_of(shell.ask_end(producer, commit=False)) is ProducerFenced
    else:
        assert error_of(shell.ask_end(producer, version=2)) is InvalidTxnState
        # Nothing is lost that was not to be, and the producer goes on.
        assert shell.end(producer, commit=False, version=2) == (producer[0], producer[1] + 1)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_level_decides_where_no_client_asks(level: int) -> None:
    """A transaction that times out, and one that the next producer ends."""
    shell = Shell(holds_markers=True, level=level)
    producer_id, epoch = shell.init()
    shell.add((producer_id, epoch), T0, version=0)
    shell.advance_ms(TIMEOUT_MS + 2 * shell.settings.abort_timed_out_interval_ms)
    [markers] = shell.sent
    # The producer is fenced in every version.
    assert (markers.producer_epoch, markers.is_commit, markers.version) == (epoch + 1, False, level)
    shell.write_markers()
    transaction = shell.transaction()
    assert (transaction.state, transaction.producer_epoch) == (States.COMPLETE_ABORT, epoch + 1)
    assert error_of(shell.ask_end((producer_id, epoch), version=0)) is ProducerFenced
    _, later = shell.init()
    shell.add((producer_id, later), T0, version=0)
    assert error_of(shell.ask_init()) is ConcurrentTransactions
    [markers] = shell.sent
    assert (markers.producer_epoch, markers.version) == (later + 1, level)
    shell.write_markers()
    assert shell.init() == (producer_id, later + 2)


@pytest.mark.parametrize("level", [0, 2])
def test_an_abort_in_the_last_epoch(level: int) -> None:
    shell, producer = at_epoch(LAST_PRODUCER_EPOCH)
    shell.level = level
    shell.add(producer, T0, version=0)
    assert error_of(shell.ask_init()) is ConcurrentTransactions
    assert shell.state() is States.COMPLETE_ABORT
    producer_id, epoch = shell.init()
    # In version 2 the end has given another id already.
    assert (producer_id != producer[0], epoch) == (True, 0 if level < 2 else 1)


def test_the_level_may_change_under_a_transaction() -> None:
    """The version of the request that ends it decides, as in Apache Kafka."""
    shell = Shell(level=2)
    producer = shell.init()
    shell.add(producer, T0, version=2)
    shell.level = 0
    producer_id, epoch = shell.end(producer, version=2)
    assert (producer_id, epoch) == (producer[0], producer[1] + 1)
    shell.add((producer_id, epoch), T0, version=0)
    assert shell.end((producer_id, epoch), version=0) == (producer_id, epoch)
    shell.level = 2
    shell.add((producer_id, epoch), T0, version=0)
    assert shell.end((producer_id, epoch), version=2) == (producer_id, epoch + 1)
    assert shell.reloaded().transaction().producer_epoch == epoch + 1


def test_a_transaction_of_two_phase_commit_does_not_time_out() -> None:
    shell = Shell(
        TransactionSettings(
            transaction_max_timeout_ms=NO_TIMEOUT_MS,
            abort_timed_out_interval_ms=NO_TIMEOUT_MS,
            transactional_id_expiration_ms=10 * NO_TIMEOUT_MS,
        )
    )
    shell.add(shell.init(timeout_ms=NO_TIMEOUT_MS))
    shell.add(shell.init(timeout_ms=1, transactional_id="other"), transactional_id="other")
    shell.advance_ms(3 * NO_TIMEOUT_MS)
    assert shell.state() is States.ONGOING
    assert shell.state("other") is States.COMPLETE_ABORT


def test_many_transactions_time_out_in_rounds() -> None:
    shell = Shell()
    for number in range(450):
        name = f"id-{number}"
        shell.add(shell.init(transactional_id=name), transactional_id=name)
    shell.advance_ms(TIMEOUT_MS + shell.settings.abort_timed_out_interval_ms + 1_000)
    assert {entry.transaction.state for entry in shell.coordinator} == {States.COMPLETE_ABORT}


def test_a_transaction_that_was_loaded_times_out() -> None:
    shell = Shell()
    shell.add(shell.init())
    shell = shell.reloaded()
    shell.advance_ms(TIMEOUT_MS + 2 * shell.settings.abort_timed_out_interval_ms)
    assert shell.state() is States.COMPLETE_ABORT


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [0, 2])
def test_what_was_prepared_is_completed_by_the_next_coordinator(version: int, commit: bool) -> None:
    shell = Shell(holds_markers=True)
    producer = shell.init()
    shell.add(producer, T0, T1, version=version)
    following = shell.end(producer, commit=commit, version=version)
    for _ in range(2):
        shell = shell.reloaded(holds_markers=True)
        [markers] = shell.sent
        assert (markers.partitions, markers.is_commit, markers.version) == ((T0, T1), commit, version)
        assert (markers.producer_id, markers.producer_epoch) == following
    shell.write_markers()
    assert shell.state() is (States.COMPLETE_COMMIT if commit else States.COMPLETE_ABORT)
    assert not shell.reloaded(holds_markers=True).sent


@pytest.mark.parametrize(
    "error", [NotLeaderOrFollower, NotEnoughReplicas, UnknownTopicOrPartition, KafkaStorageError]
)
def test_markers_are_sent_until_they_are_written(error: type[KafkaError]) -> None:
    shell = Shell(holds_markers=True)
    producer = shell.init()
    shell.add(producer, T0, T1)
    shell.end(producer)
    shell.write_markers({T1: error()})
    assert shell.entry().open_partitions == {T1}
    for _ in range(10):
        assert not shell.sent
        shell.advance_ms(RETRY_MAX_MS)
        [markers] = shell.sent
        assert markers.partitions == (T1,)
        shell.write_markers({T1: error()})
    shell.advance_ms(RETRY_MAX_MS)
    shell.write_markers()
    assert shell.state() is States.COMPLETE_COMMIT


def test_a_partition_that_takes_no_markers_has_nothing_to_end() -> None:
    shell = Shell(holds_markers=True)
    producer = shell.init()
    shell.add(producer, T0, T1)
    shell.end(producer)
    shell.write_markers({T1: UnsupportedForMessageFormat()})
    assert shell.state() is States.COMPLETE_COMMIT


@pytest.mark.parametrize("error", [InvalidProducerEpoch, TransactionCoordinatorFenced])
def test_a_coordinator_that_is_overtaken_gives_up(error: type[KafkaError]) -> None:
    shell = Shell(holds_markers=True)
    producer = shell.init()
    shell.add(producer, T0, T1)
    shell.end(producer)
    shell.write_markers({T1: error()})
    shell.advance_ms(10 * RETRY_MAX_MS)
    assert not shell.sent
    assert shell.state() is States.PREPARE_COMMIT
    assert shell.reloaded().state() is States.COMPLETE_COMMIT, (
        "a coordinator that is loaded takes it up again"
    )


def test_results_of_markers_that_nobody_waits_for_are_left_alone() -> None:
    shell = Shell(holds_markers=True)
    producer = shell.init()
    shell.add(producer)
    shell.end(producer)
    [markers] = shell.sent
    shell.write_markers()
    shell.add(producer)
    for _ in range(2):
        shell.carry_out(shell.coordinator.markers_written(markers, {T0: None}, shell.now_ms))
    assert shell.state() is States.ONGOING
    shell.end(producer)
    shell.carry_out(shell.coordinator.markers_written(markers, {T0: None}, shell.now_ms))
    assert shell.state() is States.PREPARE_COMMIT


# The log is exchanged for one in another directory, for example; or too few replicas are in sync.
@pytest.mark.parametrize("error", [NotLeaderOrFollower, KafkaStorageError, NotEnoughReplicas])
def test_a_completion_is_written_until_it_is(error: type[KafkaError]) -> None:
    shell = Shell(holds_markers=True)
    producer = shell.init()
    shell.add(producer)
    shell.end(producer)
    shell.append_error = error()
    shell.write_markers()
    assert error_of(shell.ask_add(producer)) is ConcurrentTransactions
    shell.advance_ms(10 * RETRY_MAX_MS)
    assert shell.state() is States.PREPARE_COMMIT
    shell.append_error = None
    shell.advance_ms(RETRY_MAX_MS)
    assert shell.state() is States.COMPLETE_COMMIT
    assert len(shell.written) == 1


def test_a_completion_is_left_to_the_next_coordinator() -> None:
    shell = Shell(holds_markers=True)
    producer = shell.init()
    shell.add(producer)
    shell.end(producer)
    shell.append_error = NotCoordinator()
    shell.write_markers()
    shell.append_error = None
    shell.advance_ms(10 * RETRY_MAX_MS)
    assert shell.state() is States.PREPARE_COMMIT
    assert shell.reloaded().state() is States.COMPLETE_COMMIT


def test_the_producer_is_answered_when_the_end_is_written_and_not_before() -> None:
    shell = Shell(holds_markers=True)
    producer = shell.init()
    shell.add(producer)
    shell.holds_commits = True
    answer = shell.ask_end(producer, version=2)
    assert not answer.is_there
    assert not shell.sent
    shell.commit()
    assert answer.value.producer_epoch == 1
    assert shell.sent
