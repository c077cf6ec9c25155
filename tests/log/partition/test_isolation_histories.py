"""Random histories of transactions, read as consumers read them: what is committed is seen, and nothing else.

A consumer of committed records is sent aborted ones, too, with a list by which it leaves them out. The test does the
same, from any offset on and with any limit of bytes, and compares what is left with what the history has committed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from barnabas.log.partition.read import Isolation, LogReadResult
from barnabas.model import ProducerEpoch, ProducerId, TimestampMs
from barnabas.records.builder import end_transaction_marker
from barnabas.records.control import parse_end_txn_marker
from barnabas.records.layout import ControlRecordType
from barnabas.records.policy import AppendOrigin
from barnabas.records.reader import iterate_batches
from tests.log.partitions import NOW_MS, Disk, batch
from tests.sampling import cases

HISTORIES = cases(20, fast=6)
STEPS = 60
PRODUCERS = 4
PLAIN = -1


@dataclass
class History:
    """What the log should hold: the records of plain producers and of transactions, and how those have ended."""

    visible: dict[int, bytes] = field(default_factory=dict)
    undecided: dict[int, dict[int, bytes]] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    log_start_offset: int = 0

    def last_stable_offset(self, log_end_offset: int) -> int:
        firsts = [min(records) for records in self.undecided.values()]
        return max(min(firsts, default=log_end_offset), self.log_start_offset)


class Run:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.disk = Disk(segment_bytes=700, index_interval_bytes=100)
        self.log = self.disk.open()
        self.history = History()
        # Of producers whose records have been deleted a crash may leave nothing, as in Kafka.
        self.is_killed = self.random.random() < 0.5

    def step(self) -> None:
        choice = self.random.random()
        if choice < 0.55:
            self.write(self.random.randrange(PLAIN, PRODUCERS))
        elif choice < 0.85 and self.history.undecided:
            self.end(self.random.choice(sorted(self.history.undecided)), abort=self.random.random() < 0.5)
        elif choice < 0.89 and not self.is_killed:
            self.delete_records()
        elif choice < 0.94:
            self.reopen(clean=not self.is_killed or self.random.random() < 0.5)

    def write(self, producer_id: int) -> None:
        history = self.history
        values = [b"%d" % self.random.getrandbits(64) for _ in range(self.random.randint(1, 4))]
        sequence = history.sequences.get(producer_id, 0)
        data = batch(
            *values,
            producer_id=producer_id,
            sequence=sequence if producer_id >= 0 else -1,
            transactional=producer_id >= 0,
        )
        info = self.log.append_as_leader(data, leader_epoch=0)
        self.log.advance_high_watermark(self.log.log_end_offset)
        written = dict(enumerate(values, info.first_offset))
        if producer_id == PLAIN:
            history.visible |= written
        else:
            history.sequences[producer_id] = sequence + len(values)
            history.undecided.setdefault(producer_id, {}).update(written)

    def end(self, producer_id: int, *, abort: bool) -> None:
        marker = end_transaction_marker(
            control_type=ControlRecordType.ABORT if abort else ControlRecordType.COMMIT,
            timestamp=TimestampMs(NOW_MS),
            producer_id=ProducerId(producer_id),
            producer_epoch=ProducerEpoch(0),
            coordinator_epoch=0,
        )
        self.log.append_as_leader(marker, leader_epoch=0, origin=AppendOrigin.COORDINATOR)
        self.log.advance_high_watermark(self.log.log_end_offset)
        records = self.history.undecided.pop(producer_id)
        if not abort:
            self.history.visible |= records

    def delete_records(self) -> None:
        if self.history.log_start_offset == self.log.log_end_offset:
            return
        offset = self.random.randrange(self.history.log_start_offset, self.log.log_end_offset)
        self.log.delete_records(offset)
        self.log.delete_old_segments()
        self.history.log_start_offset = offset

    def reopen(self, *, clean: bool) -> None:
        """Stops the log in order, or just leaves it as a killed process does."""
        end_offset, recovery_point = self.log.log_end_offset, self.log.recovery_point
        if clean:
            self.log.close()
            recovery_point = end_offset
        self.log = self.disk.open(
            recovery_point=recovery_point,
            log_start_offset=self.history.log_start_offset,
            clean_shutdown=clean,
        )
        assert self.log.log_end_offset == end_offset
        self.log.advance_high_watermark(end_offset)

    def check(self) -> None:
        log, history = self.log, self.history
        end_offset = history.last_stable_offset(log.log_end_offset)
        assert log.last_stable_offset == end_offset
        for _ in range(4):
            start_offset = self.random.randint(log.log_start_offset, end_offset)
            result = log.read(start_offset, self.random.randint(1, 600), Isolation.TXN_COMMITTED, True)
            seen, next_offset = consume(result, start_offset)
            assert next_offset > start_offset or start_offset == end_offset
            assert next_offset <= end_offset
            assert seen == {
                offset: value
                for offset, value in history.visible.items()
                if start_offset <= offset < next_offset
            }


def consume(result: LogReadResult, start_offset: int) -> tuple[dict[int, bytes | None], int]:
    """What a consumer of committed records makes of an answer, and where it goes on."""
    seen: dict[int, bytes | None] = {}
    next_offset = start_offset
    if result.records is None:
        return seen, next_offset
    waiting = sorted(
        ((each.first_offset, each.producer_id) for each in result.aborted_transactions or ()), reverse=True
    )
    aborted: set[int] = set()
    for header, records in iterate_batches(result.records.read()):
        while waiting and waiting[-1][0] <= header.last_offset:
            aborted.add(waiting.pop()[1])
        next_offset = header.next_offset
        if header.is_control:
            marker = parse_end_txn_marker(records[0])
            assert marker is not None
            if marker.control_type is ControlRecordType.ABORT:
                aborted.discard(header.producer_id)
            continue
        if header.is_transactional and header.producer_id in aborted:
            continue
        seen.update({record.offset: record.value for record in records if record.offset >= start_offset})
    return seen, next_offset


@pytest.mark.parametrize("part", range(2))
def test_consumers_see_what_is_committed(part: int) -> None:
    for seed in range(part * HISTORIES // 2, (part + 1) * HISTORIES // 2):
        run = Run(seed)
        try:
            for _ in range(STEPS):
                run.step()
                run.check()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        run.log.close()
