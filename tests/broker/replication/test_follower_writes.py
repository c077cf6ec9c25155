"""What the steps of a fetcher leave behind in a log."""

from __future__ import annotations

import pytest

from barnabas.broker.replication.follower_writes import Done, Failed, FollowerWrites
from barnabas.errors import CorruptMessage, KafkaStorageError, UnknownServerError
from barnabas.model import TopicPartition
from barnabas.replication.fetcher import Append, Diverge, StartAt, Step, TruncateTo
from tests.log.managed import ManagedLogs
from tests.log.partitions import batch

KEY = TopicPartition("a", 0)


def three_records() -> ManagedLogs:
    logs = ManagedLogs(("/one", "/two"))
    logs.create("a-0", directory="/one")
    for offset in range(3):
        logs.manager.append_as_follower(KEY, batch(b"old", offset=offset, epoch=1))
    return logs


def carry_out(logs: ManagedLogs, step: Step) -> Done:
    [done] = FollowerWrites(logs.manager).carry_out([step])
    assert isinstance(done, Done)
    return done


def test_an_append_takes_over_the_watermarks() -> None:
    logs = three_records()
    done = carry_out(logs, Append(KEY, batch(b"new", offset=3, epoch=2), 2, 1))
    assert (done.log_end_offset, done.last_epoch, done.log_start_offset) == (4, 2, 1)
    assert done.has_new_watermark
    assert logs.log("a-0").high_watermark == 2
    # A leader's high watermark may be behind the end of this log, before it and far above.
    assert not carry_out(logs, Append(KEY, b"", 2, 1)).has_new_watermark
    assert carry_out(logs, Append(KEY, b"", 99, 0)).has_new_watermark
    assert (logs.log("a-0").high_watermark, logs.log("a-0").log_start_offset) == (4, 1)


@pytest.mark.parametrize(
    ("step", "end_offset"), [(TruncateTo(KEY, 1), 1), (Diverge(KEY, 1, 2), 2), (StartAt(KEY, 40), 40)]
)
def test_a_truncation_ends_the_move_to_another_directory(step: Step, end_offset: int) -> None:
    logs = three_records()
    logs.manager.create_future(KEY, "/two")
    assert logs.manager.copy_to_future(KEY)
    assert carry_out(logs, step).log_end_offset == end_offset
    assert logs.manager.log(KEY, is_future=True) is None


def test_a_truncation_of_nothing_lets_the_move_go_on() -> None:
    logs = three_records()
    logs.manager.create_future(KEY, "/two")
    assert carry_out(logs, TruncateTo(KEY, 3)).log_end_offset == 3
    assert logs.manager.log(KEY, is_future=True) is not None


def test_failures_leave_the_log_as_it_is() -> None:
    logs = three_records()
    damaged = bytearray(batch(b"new", offset=3, epoch=2))
    damaged[-1] ^= 1
    gone = TopicPartition("gone", 0)
    corrupt, missing = FollowerWrites(logs.manager).carry_out(
        [Append(KEY, bytes(damaged), 4, 0), TruncateTo(gone, 1)]
    )
    assert isinstance(corrupt, Failed)
    assert isinstance(corrupt.error, CorruptMessage)
    assert isinstance(missing, Failed)
    assert isinstance(missing.error, KafkaStorageError)
    assert (logs.log("a-0").log_end_offset, logs.log("a-0").high_watermark) == (3, 0)


def test_a_failure_that_nobody_expects_costs_other_partitions_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    logs = three_records()
    logs.create("b-0", directory="/one")

    def fail(*arguments: object) -> bool:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(type(logs.manager), "truncate_to", fail)
    other = TopicPartition("b", 0)
    failed, done = FollowerWrites(logs.manager).carry_out(
        [TruncateTo(KEY, 1), Append(other, batch(b"new", offset=0, epoch=1), 1, 0)]
    )
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, UnknownServerError)
    assert isinstance(done, Done)
    assert logs.log("b-0").log_end_offset == 1
    assert [each.exc_info for each in caplog.records if each.exc_info]
