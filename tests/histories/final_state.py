"""What a broker holds in the end: its logs as both kinds of readers get them, and the offsets of groups."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from barnabas.records.control import control_record_type
from barnabas.records.layout import ControlRecordType
from barnabas.records.reader import iterate_batches
from tests.broker.raw_client import Asking
from tests.broker.record_requests import fetch
from tests.histories.coordinators import committed_offsets
from tests.histories.history import FinalLog, FinalState, partition_name
from tests.waiting import Deadline

WAIT_S: Final = 120
POLL_S: Final = 0.05
FETCH_BYTES: Final = 8 << 20


def read_final_state(client: Asking, topics: Mapping[str, int], groups: Iterable[str]) -> FinalState:
    return FinalState(
        logs={
            partition_name(topic, number): _read_log(client, topic, number)
            for topic, count in topics.items()
            for number in range(count)
        },
        offsets={group: committed_offsets(client, group) for group in groups},
    )


def _read_log(client: Asking, topic: str, number: int) -> FinalLog:
    """Markers follow the end of their transaction: the log is read when it is stable, or will not be."""
    deadline = Deadline(WAIT_S)
    while True:
        found = fetch(client, topic, 0, partition=number, isolation_level=1, max_bytes=1)
        if found.error_code == 0 and (found.last_stable_offset == found.high_watermark or deadline.is_over):
            break
        deadline.check(found)
        time.sleep(POLL_S)
    everything = _read(client, topic, number, found.high_watermark, isolation_level=0)
    committed = _read(client, topic, number, found.last_stable_offset, isolation_level=1)
    assert committed.items() <= everything.items(), f"{topic}/{number} reads differently by isolation"
    return FinalLog(
        records=sorted(everything.items()),
        committed=frozenset(committed),
        high_watermark=found.high_watermark,
        last_stable_offset=found.last_stable_offset,
    )


def _read(
    client: Asking, topic: str, number: int, end_offset: int, *, isolation_level: int
) -> dict[int, str]:
    """Values by offset. What belongs to aborted transactions is left out by the list that the broker gives."""
    found: dict[int, str] = {}
    offset = 0
    while offset < end_offset:
        answer = fetch(
            client, topic, offset, partition=number, isolation_level=isolation_level, max_bytes=FETCH_BYTES
        )
        assert answer.error_code == 0, answer
        next_offset = _take(answer, offset, found)
        assert next_offset > offset, f"{topic}/{number} gives nothing at {offset}, below {end_offset}"
        offset = next_offset
    return found


def _take(answer: Any, offset: int, found: dict[int, str]) -> int:
    coming = sorted(answer.aborted_transactions or (), key=lambda each: each.first_offset, reverse=True)
    aborted: set[int] = set()
    for header, records in iterate_batches(bytes(answer.records)):
        while coming and coming[-1].first_offset <= header.last_offset:
            aborted.add(coming.pop().producer_id)
        offset = header.next_offset
        if header.is_control:
            if control_record_type(records[0].key) is ControlRecordType.ABORT:
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            for record in records:
                assert record.value is not None
                found[record.offset] = record.value.decode()
    return offset
