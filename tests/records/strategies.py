"""Records and batches of any shape, for hypothesis; the same ones in every run."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from barnabas.model import (
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
)
from barnabas.records.builder import BatchBuilder
from barnabas.records.layout import MAGIC_V2, CompressionType, TimestampType
from barnabas.records.record import Headers
from tests.sampling import cases

SEEDED = settings(
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=cases(80, fast=20),
    suppress_health_check=[HealthCheck.too_slow],
)

INT64_MAX = 2**63 - 1

nullable_bytes = st.none() | st.binary(max_size=300)
header_lists: st.SearchStrategy[Headers] = st.lists(
    st.tuples(st.text(max_size=8), nullable_bytes), max_size=4
).map(tuple)
ordinary_timestamps = st.integers(1_600_000_000_000, 1_800_000_000_000)
timestamps = ordinary_timestamps | st.integers(-1, INT64_MAX)


@dataclass(frozen=True, slots=True)
class RecordData:
    offset_gap: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchData:
    """What to build a batch from; gaps between offsets are as a cleaner leaves them."""

    magic: int
    compression: CompressionType
    timestamp_type: TimestampType
    base_offset: int
    log_append_time: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    leader_epoch: int
    delete_horizon_ms: int
    records: tuple[RecordData, ...]

    def builder(self) -> BatchBuilder:
        builder = BatchBuilder(
            magic=self.magic,
            compression=self.compression,
            timestamp_type=self.timestamp_type,
            base_offset=Offset(self.base_offset),
            log_append_time=TimestampMs(self.log_append_time),
            producer_id=ProducerId(self.producer_id),
            producer_epoch=ProducerEpoch(self.producer_epoch),
            base_sequence=self.base_sequence,
            is_transactional=self.is_transactional,
            partition_leader_epoch=LeaderEpoch(self.leader_epoch),
            delete_horizon_ms=TimestampMs(self.delete_horizon_ms),
        )
        offset = self.base_offset
        for record in self.records:
            offset += record.offset_gap
            builder.append_with_offset(
                Offset(offset), TimestampMs(record.timestamp), record.key, record.value, record.headers
            )
            offset += 1
        return builder

    def offsets(self) -> list[int]:
        offsets = []
        offset = self.base_offset
        for record in self.records:
            offset += record.offset_gap
            offsets.append(offset)
            offset += 1
        return offsets


@st.composite
def batches(draw: st.DrawFn, magics: tuple[int, ...] = (0, 1, 2)) -> BatchData:
    magic = draw(st.sampled_from(magics))
    newest = magic == MAGIC_V2
    compressions = [c for c in CompressionType if newest or c is not CompressionType.ZSTD]
    producer_id = draw(st.integers(0, INT64_MAX)) if newest and draw(st.booleans()) else NO_PRODUCER_ID
    records = draw(
        st.lists(
            st.builds(
                RecordData,
                st.sampled_from([0, 0, 0, 1, 70, 100_000]),
                timestamps,
                nullable_bytes,
                nullable_bytes,
                header_lists if newest else st.just(()),
            ),
            min_size=1,
            max_size=20,
        )
    )
    return BatchData(
        magic=magic,
        compression=draw(st.sampled_from(compressions)),
        timestamp_type=draw(st.sampled_from([TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME])),
        base_offset=draw(st.sampled_from([0, 1, 1000, 2**40])),
        log_append_time=draw(ordinary_timestamps),
        producer_id=producer_id,
        producer_epoch=draw(st.integers(0, 32767)) if producer_id >= 0 else -1,
        base_sequence=draw(st.integers(0, 2**31 - 1)) if producer_id >= 0 else NO_SEQUENCE,
        is_transactional=producer_id >= 0 and draw(st.booleans()),
        leader_epoch=draw(st.integers(-1, 2**31 - 1)) if newest else -1,
        delete_horizon_ms=draw(ordinary_timestamps) if newest and draw(st.booleans()) else -1,
        records=tuple(records),
    )
