"""What a fetch brings, walked and decoded without a broker."""

from __future__ import annotations

import importlib
import sys
from collections import deque
from collections.abc import Sequence

import pytest

from barnabas.client.consumer.fetched import Fetched, end_of
from barnabas.client.consumer.fetcher_sessions import FetchSession
from barnabas.client.consumer.intake import Intake
from barnabas.client.consumer.record import ConsumerRecord, decode_consumer_records, repeated_offsets
from barnabas.client.partition_state import PartitionState
from barnabas.client.subscription import LogTruncation, Subscription
from barnabas.errors import CorruptMessage, InvalidConfig, InvalidRecord, OffsetOutOfRange, RecordListTooLarge
from barnabas.model import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from barnabas.primitives.crc32c import crc32c
from barnabas.protocol.message import ZERO_UUID
from barnabas.protocol.messages.fetch_request import FetchPartition
from barnabas.records.builder import BatchBuilder, encode_message, end_transaction_marker
from barnabas.records.compression import MAX_DECOMPRESSED_BYTES
from barnabas.records.header import parse_header
from barnabas.records.layout import CompressionType, ControlRecordType, TimestampType
from tests.records.columns import records_of

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(
    base_offset: int,
    values: Sequence[bytes | None],
    *,
    producer_id: int = -1,
    is_transactional: bool = False,
    compression: CompressionType = CompressionType.NONE,
    leader_epoch: int = 0,
) -> bytes:
    builder = BatchBuilder(
        base_offset=Offset(base_offset),
        partition_leader_epoch=LeaderEpoch(leader_epoch),
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(0 if producer_id >= 0 else -1),
        base_sequence=0 if producer_id >= 0 else -1,
        is_transactional=is_transactional,
        compression=compression,
    )
    for index, value in enumerate(values):
        builder.append(TimestampMs(1_000 + index), b"key" if index % 2 else None, value)
    return bytes(builder.build())


def marker(offset: int, producer_id: int, kind: ControlRecordType) -> bytes:
    return end_transaction_marker(
        control_type=kind,
        timestamp=TimestampMs(5),
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(0),
        coordinator_epoch=0,
        base_offset=Offset(offset),
    )


class Reading:
    """An intake with what a fetcher would have queued."""

    def __init__(self, *, resets: bool = True, position: int = 0) -> None:
        self.subscription = Subscription()
        self.subscription.assign([T0, T1])
        for state in self.subscription.partitions.values():
            state.settle(position)
        self.queue: deque[Fetched] = deque()
        self.resets: list[PartitionState] = []
        self.wakes = 0
        self.intake = Intake(
            self.subscription,
            self.queue,
            key_deserializer=None,
            value_deserializer=None,
            wake=self._wake,
            reset=self.resets.append if resets else None,
        )

    def _wake(self) -> None:
        self.wakes += 1

    def fetched(
        self, data: bytes, partition: TopicPartition = T0, aborted: Sequence[tuple[int, int]] = ()
    ) -> None:
        state = self.subscription.state_of(partition)
        end_offset, end_epoch = end_of(data, state.fetch_offset or 0)
        self.queue.append(
            Fetched(
                state, memoryview(data), end_offset=end_offset, end_epoch=end_epoch, aborted=list(aborted)
            )
        )
        state.fetched_bytes += len(data)
        state.fetch_offset = end_offset

    def take(self, limit: int = 1_000) -> list[bytes]:
        return [record.value for record in self.intake.take(limit)]

    def position(self, partition: TopicPartition = T0) -> int | None:
        return self.subscription.state_of(partition).position


def test_data_is_read_where_it_is() -> None:
    """The same batches as from a copy, at their places in the bytes around them; what follows is not looked at."""
    first, second = batch(0, [b"a", b"b"]), batch(2, [b"c"], compression=CompressionType.GZIP)
    whole = b"before" + first + second + batch(3, [b"never"])
    data = memoryview(whole)[6 : 6 + len(first + second)]
    fetched = Fetched(PartitionState(T0, position=0), data)
    fetched.read_in_place(whole, 6)
    assert fetched.as_bytes() is whole
    found = []
    while (header := fetched.next_batch(0)) is not None:
        found.append((header.base_offset, fetched.batch_position, fetched.next_position))
    assert found == [(0, 6, 6 + len(first)), (2, 6 + len(first), 6 + len(first + second))]
    short = Fetched(PartitionState(T0, position=0), memoryview(whole)[6:76])
    short.read_in_place(whole, 6)
    with pytest.raises(RecordListTooLarge, match="does not fit into the 70 bytes"):
        short.next_batch(0)


def test_a_record_compares_shows_and_hashes() -> None:
    record = ConsumerRecord("t", 1, 2, 3, TimestampType.CREATE_TIME, b"k", b"v", (("h", None),), 4)
    assert record == ConsumerRecord("t", 1, 2, 3, TimestampType.CREATE_TIME, b"k", b"v", (("h", None),), 4)
    assert record != ConsumerRecord("t", 1, 2, 3, TimestampType.CREATE_TIME, b"k", b"w", (("h", None),), 4)
    assert record != "t"
    assert hash(record) == hash(ConsumerRecord("t", 1, 2))
    assert repr(record) == (
        "ConsumerRecord(topic='t', partition=1, offset=2, timestamp_ms=3, timestamp_type=CreateTime, key=b'k',"
        " value=b'v', headers=(('h', None),), leader_epoch=4)"
    )


@pytest.mark.parametrize("compression", list(CompressionType))
def test_records_from_an_offset_within_a_batch(compression: CompressionType) -> None:
    data = batch(10, [b"%d" % number for number in range(20)], compression=compression, leader_epoch=3)
    records = decode_consumer_records(data, 0, parse_header(data), "t", 7, 25, MAX_DECOMPRESSED_BYTES)
    assert [(record.offset, record.value, record.timestamp_ms) for record in records] == [
        (offset, b"%d" % (offset - 10), 1_000 + offset - 10) for offset in range(25, 30)
    ]
    assert {(record.topic, record.partition, record.leader_epoch) for record in records} == {("t", 7, 3)}


def test_records_are_handed_out_in_pieces_and_the_position_follows() -> None:
    reading = Reading()
    reading.fetched(batch(0, [b"0", b"1", b"2"]) + batch(3, [b"3", None]))
    reading.fetched(batch(0, [b"a"]), T1)
    assert reading.take(2) == [b"0", b"1"]
    assert reading.position() == 2
    assert reading.take(3) == [b"2", b"3", None]
    assert reading.position() == 5
    assert reading.position(T1) == 0
    assert reading.take() == [b"a"]
    assert reading.take() == []
    states = reading.subscription.partitions
    assert all(state.waiting_bytes == 0 for state in states.values())


def test_whoever_waits_for_room_is_told_of_it() -> None:
    reading = Reading()
    reading.fetched(batch(0, [b"0", b"1"]))
    reading.subscription.state_of(T0).is_starved = True
    assert reading.take(1) == [b"0"]
    assert reading.wakes == 1
    assert reading.take() == [b"1"]
    assert reading.wakes == 1


def test_what_was_fetched_before_a_seek_is_of_no_use() -> None:
    reading = Reading()
    reading.fetched(batch(0, [b"0", b"1", b"2"]))
    assert reading.take(1) == [b"0"]
    reading.subscription.replace(reading.subscription.state_of(T0).successor(position=7))
    assert reading.take() == []
    reading.fetched(batch(5, [b"5", b"6", b"7"]))
    assert reading.take() == [b"7"]


def test_what_is_paused_waits_and_comes_first() -> None:
    reading = Reading()
    reading.fetched(batch(0, [b"0", b"1", b"2"]))
    reading.fetched(batch(3, [b"3"]))
    reading.fetched(batch(0, [b"a"]), T1)
    assert reading.take(1) == [b"0"]
    state = reading.subscription.state_of(T0)
    state.is_paused = True
    assert reading.take() == [b"a"]
    state.is_paused = False
    reading.fetched(batch(4, [b"4"]))
    reading.intake.resume(T0)
    assert reading.take() == [b"1", b"2", b"3", b"4"]


def test_what_an_interrupted_poll_has_taken_is_taken_again() -> None:
    reading = Reading()
    reading.fetched(batch(0, [b"0", b"1"]))
    reading.intake.begin()
    assert reading.take() == [b"0", b"1"]
    reading.fetched(batch(2, [b"2"], leader_epoch=1))
    reading.fetched(batch(0, [b"a"]), T1)
    reading.fetched(batch(3, [b"3"], leader_epoch=1))
    reading.intake.begin()
    assert reading.take() == [b"2", b"a", b"3"]
    wakes = reading.wakes
    reading.intake.take_back()
    assert (reading.position(T0), reading.position(T1)) == (2, 0)
    assert reading.subscription.state_of(T0).epoch == 0
    assert reading.wakes > wakes
    assert reading.take() == []
    reading.fetched(batch(2, [b"2", b"3"]))
    assert reading.take() == [b"2", b"3"]


def test_what_is_paused_is_let_go_when_its_partition_goes() -> None:
    reading = Reading()
    data = [batch(0, [b"0"]), batch(0, [b"a"])]
    before = [sys.getrefcount(each) for each in data]
    for state in reading.subscription.partitions.values():
        state.is_paused = True
    reading.fetched(data[0])
    assert reading.take() == []
    assert sys.getrefcount(data[0]) > before[0]
    reading.subscription.assign([T1])
    reading.fetched(data[1], T1)
    assert reading.take() == []
    assert sys.getrefcount(data[0]) == before[0]
    assert sys.getrefcount(data[1]) > before[1]


def test_aborted_transactions_are_left_out() -> None:
    reading = Reading()
    reading.fetched(
        batch(0, [b"open 1"], producer_id=1, is_transactional=True)
        + batch(1, [b"plain"])
        + batch(2, [b"open 2"], producer_id=2, is_transactional=True)
        + batch(3, [b"idempotent"], producer_id=1)
        + marker(4, 1, ControlRecordType.ABORT)
        + batch(5, [b"again 1"], producer_id=1, is_transactional=True)
        + marker(6, 2, ControlRecordType.COMMIT)
        + marker(7, 1, ControlRecordType.COMMIT)
        + batch(8, [b"aborted at the end"], producer_id=1, is_transactional=True)
        + marker(9, 1, ControlRecordType.ABORT),
        aborted=[(0, 1), (8, 1)],
    )
    assert reading.take() == [b"plain", b"open 2", b"idempotent", b"again 1"]
    # The position is behind what was left out, too.
    assert reading.take() == []
    assert reading.position() == 10


def test_without_a_list_only_markers_are_left_out() -> None:
    reading = Reading()
    data = batch(0, [b"1"], producer_id=1, is_transactional=True) + marker(1, 1, ControlRecordType.ABORT)
    reading.fetched(data)
    assert reading.take() == [b"1"]


def test_a_batch_that_is_cut_off_comes_whole_the_next_time() -> None:
    whole = batch(0, [b"0"])
    data = whole + batch(1, [b"1"])
    for cut in range(len(whole), len(data)):
        reading = Reading()
        reading.fetched(data[:cut])
        assert reading.subscription.state_of(T0).fetch_offset == 1
        assert reading.take() == [b"0"]
        assert reading.take() == []
        assert reading.position() == 1


def test_a_batch_that_does_not_fit_at_all_is_told_of() -> None:
    reading = Reading()
    reading.fetched(batch(0, [b"0"])[:-1])
    with pytest.raises(RecordListTooLarge, match=r"max\.partition\.fetch\.bytes"):
        reading.take()


def test_broken_bytes_raise_in_their_place_and_are_fetched_again() -> None:
    good, bad = batch(0, [b"0", b"1"]), bytearray(batch(2, [b"2"]))
    bad[-1] ^= 1
    reading = Reading()
    reading.fetched(good + bytes(bad))
    assert reading.take() == [b"0", b"1"]
    before = reading.subscription.state_of(T0)
    with pytest.raises(CorruptMessage, match="offset 2"):
        reading.take()
    assert not reading.subscription.is_current(before)
    assert reading.position() == 2
    assert reading.wakes == 1
    reading.fetched(batch(2, [b"2"]))
    assert reading.take() == [b"2"]


def test_checksums_may_be_left_unchecked() -> None:
    data = bytearray(batch(0, [b"0"]))
    data[17] ^= 1
    reading = Reading()
    state = reading.subscription.state_of(T0)
    reading.queue.append(Fetched(state, bytes(data), end_offset=1, check_crcs=False))
    assert reading.take() == [b"0"]


def test_an_offset_out_of_range_is_reset_or_raised_behind_the_records() -> None:
    for resets in (True, False):
        reading = Reading(resets=resets)
        reading.fetched(batch(0, [b"0"]))
        state = reading.subscription.state_of(T0)
        reading.queue.append(Fetched(state, b"", error=OffsetOutOfRange("offset 1 is gone")))
        assert reading.take() == [b"0"]
        if resets:
            assert reading.take() == []
            assert reading.resets == [state]
        else:
            with pytest.raises(OffsetOutOfRange, match=r"offset 1 is gone, and auto\.offset\.reset=none"):
                reading.take()
            assert reading.position() == 1


def test_a_log_that_was_cut_is_read_again_from_there() -> None:
    truncation = LogTruncation("cut")
    truncation.divergent_offset = 2
    for resets in (True, False):
        reading = Reading(resets=resets, position=5)
        reading.queue.append(Fetched(reading.subscription.state_of(T0), b"", error=truncation))
        if resets:
            assert reading.take() == []
            assert reading.position() == 2
        else:
            with pytest.raises(LogTruncation, match="cut"):
                reading.take()


def test_empty_batches_of_compaction_move_the_position() -> None:
    reading = Reading()
    builder = BatchBuilder(base_offset=Offset(0))
    builder.append(TimestampMs(1), None, b"0")
    reading.fetched(bytes(builder.build(last_offset=Offset(4))) + batch(9, [b"9"]))
    assert reading.take(1) == [b"0"]
    assert reading.position() == 5
    assert reading.take() == [b"9"]
    assert reading.position() == 10


def test_records_batches_and_columns_take_turns() -> None:
    reading = Reading()
    reading.fetched(batch(0, [b"0", b"1"]) + batch(2, [b"2", b"3"]) + batch(4, [b"4"]))
    reading.fetched(batch(0, [b"a"]), T1)
    assert reading.take(1) == [b"0"]
    first = reading.intake.take_columns()
    assert first is not None
    assert first.runs == [(T0, 4), (T1, 1)]
    assert [row[4] for row in records_of(first.columns)] == [b"1", b"2", b"3", b"4", b"a"]
    assert (reading.position(), reading.position(T1)) == (5, 1)
    assert reading.intake.take_columns() is None
    reading.fetched(batch(5, [b"5", b"6"]))
    assert reading.take(1) == [b"5"]
    [raw] = reading.intake.take_batches()
    assert [record.value for record in raw.records()] == [b"6"]
    assert reading.position() == 7


def test_columns_of_several_partitions() -> None:
    reading = Reading()
    reading.fetched(batch(0, [b"0", None]))
    reading.fetched(batch(0, [b"a"]), T1)
    run = reading.intake.take_columns()
    assert run is not None
    assert run.runs == [(T0, 2), (T1, 1)]
    assert run.columns.record_count == 3
    assert [row[4] for row in records_of(run.columns)] == [b"0", None, b"a"]


def test_columns_of_messages_before_v2_have_company() -> None:
    reading = Reading(position=1)
    old = b"".join(
        encode_message(1, Offset(offset), TimestampMs(5), None, b"%d" % offset) for offset in range(3)
    )
    reading.fetched(old)
    reading.fetched(batch(0, [b"a", b"b"]), T1)
    run = reading.intake.take_columns()
    assert run is not None
    assert run.runs == [(T0, 2), (T1, 1)]
    assert [row[4] for row in records_of(run.columns)] == [b"1", b"2", b"b"]
    assert (reading.position(), reading.position(T1)) == (3, 2)


def test_columns_leave_out_markers_and_what_was_aborted() -> None:
    reading = Reading()
    data = (
        batch(0, [b"0"], producer_id=7, is_transactional=True)
        + batch(1, [b"gone"], producer_id=8, is_transactional=True)
        + marker(2, 8, ControlRecordType.ABORT)
        + marker(3, 7, ControlRecordType.COMMIT)
        + batch(4, [b"4"])
        + marker(5, 9, ControlRecordType.COMMIT)
    )
    reading.fetched(data, aborted=[(1, 8)])
    run = reading.intake.take_columns()
    assert run is not None
    assert run.runs == [(T0, 2)]
    assert [row[4] for row in records_of(run.columns)] == [b"0", b"4"]
    assert reading.intake.take_columns() is None
    assert reading.position() == 6


def test_columns_end_before_a_batch_that_cannot_be_read() -> None:
    good = batch(0, [None, b"1"])
    # Its checksum is right, but its last record ends too early.
    bad = bytearray(batch(2, [None, b"3"]))
    bad[-1] = 2
    bad[17:21] = crc32c(bytes(bad[21:])).to_bytes(4, "big")
    reading = Reading()
    reading.fetched(good + bytes(bad))
    run = reading.intake.take_columns()
    assert run is not None
    assert [row[3:5] for row in records_of(run.columns)] == [(None, None), (b"key", b"1")]
    with pytest.raises(InvalidRecord, match="1 headers in 0 bytes"):
        reading.intake.take_columns()
    assert reading.position() == 2
    reading.fetched(batch(2, [b"2"]))
    again = reading.intake.take_columns()
    assert again is not None
    assert [row[4] for row in records_of(again.columns)] == [b"2"]


@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.LZ4])
def test_columns_of_a_large_fetch_come_in_pieces(compression: CompressionType) -> None:
    reading = Reading()
    reading.fetched(b"".join(batch(offset, [bytes(4 << 20)], compression=compression) for offset in range(7)))
    reading.fetched(batch(0, [b"small"]), T1)
    counts = []
    while (run := reading.intake.take_columns()) is not None:
        counts.append(run.runs)
        assert sum(len(part.data) for part in run.columns.parts) < 17 << 20
    # 16 MiB and a bit of the first, then the rest of it together with the other.
    assert counts == [[(T0, 4)], [(T0, 3), (T1, 1)]]
    assert (reading.position(), reading.position(T1)) == (7, 1)


def test_offsets_of_values_that_repeat() -> None:
    assert memoryview(repeated_offsets([(3, 2), (1, 1)])).cast("i").tolist() == [0, 3, 6, 7]
    assert repeated_offsets([]) == bytes(4)


def test_without_pyarrow_the_error_tells_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "barnabas.client.consumer.arrow", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for _ in range(2):
        with pytest.raises(InvalidConfig, match=r"poll_arrow\(\) needs pyarrow.*barnabas\[arrow\]"):
            importlib.import_module("barnabas.client.consumer.arrow")


def test_arrow() -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is needed for record batches: install barnabas[arrow]")
    from barnabas.client.consumer.arrow import to_record_batch

    reading = Reading()
    reading.fetched(batch(0, [b"0", None, b"two"]))
    reading.fetched(batch(0, [b"a"]), T1)
    run = reading.intake.take_columns()
    made = to_record_batch(run)
    made.validate(full=True)
    assert made.to_pylist()[2] == {
        "key": None,
        "value": b"two",
        "topic": "t",
        "partition": 0,
        "offset": 2,
        "timestamp": made.column("timestamp")[2].as_py(),
        "timestampType": 0,
        "headers": [],
    }
    assert made.column("key").to_pylist() == [None, b"key", None, None]
    assert made.column("value").to_pylist() == [b"0", None, b"two", b"a"]
    assert made.column("topic").to_pylist() == ["t"] * 4
    assert made.column("partition").to_pylist() == [0, 0, 0, 1]
    assert made.column("offset").to_pylist() == [0, 1, 2, 0]
    assert to_record_batch(None).num_rows == 0


def wanted(**offsets: int) -> dict[TopicPartition, FetchPartition]:
    return {
        TopicPartition("t", int(name[1:])): FetchPartition(partition=int(name[1:]), fetch_offset=offset)
        for name, offset in offsets.items()
    }


IDS = {"t": bytes(15) + b"\1"}


def test_a_session_names_what_has_changed() -> None:
    session = FetchSession()
    topics, forgotten = session.next_request(wanted(p0=0, p1=5), IDS)
    assert (session.session_id, session.epoch) == (0, 0)
    assert [each.partition for each in topics[0].partitions] == [0, 1]
    assert topics[0].topic_id == IDS["t"]
    assert forgotten == []
    session.answered(99)
    assert (session.session_id, session.epoch) == (99, 1)
    topics, forgotten = session.next_request(wanted(p0=3, p1=5), IDS)
    assert [each.partition for each in topics[0].partitions] == [0]
    session.answered(99)
    topics, forgotten = session.next_request(wanted(p0=3), IDS)
    assert topics == []
    assert [each.partitions for each in forgotten] == [[1]]
    session.answered(99)
    assert session.epoch == 3
    session.epoch = 0x7FFF_FFFF
    session.answered(99)
    assert session.epoch == 1


def test_a_session_begins_anew_when_both_sides_may_disagree() -> None:
    session = FetchSession()
    session.next_request(wanted(p0=0), IDS)
    session.answered(99)
    session.begin_anew()
    topics, _ = session.next_request(wanted(p0=0), IDS)
    assert (session.session_id, session.epoch) == (99, 0)
    assert len(topics) == 1
    session.answered(100)
    # The topic was made anew: what the broker remembers is of another one.
    topics, _ = session.next_request(wanted(p0=0), {"t": bytes(15) + b"\2"})
    assert session.epoch == 0
    assert len(topics) == 1
    session.answered(100)
    # No ids any more: names take their place.
    topics, _ = session.next_request(wanted(p0=0), {"t": ZERO_UUID})
    assert session.epoch == 0
    session.answered(0)
    assert (session.session_id, session.epoch) == (0, 0)
    session.is_lost()
    assert session.next_request(wanted(p0=0), {"t": ZERO_UUID})[0][0].topic == "t"
