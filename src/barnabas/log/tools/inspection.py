"""Log directories read without a broker: their records, and the answers that a broker would give about them.

Each partition is opened on an overlay, so nothing is written, and a directory that a broker is using can be read too.
Such a directory changes during the read: a partition whose files disappear is opened again.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from barnabas.clock import ManualClock
from barnabas.config.log_config import LogConfig
from barnabas.log import names
from barnabas.log.checkpoints import id_to_text, read_clean_shutdown, read_epochs, read_offsets
from barnabas.log.file_system import FileSystem, NoSuchFile
from barnabas.log.names import METADATA_TOPIC
from barnabas.log.partition.environment import LogEnvironment, PriorState
from barnabas.log.partition.offsets import EARLIEST_TIMESTAMP, MAX_TIMESTAMP
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.log.partition.read import Isolation
from barnabas.log.segment.transaction_index import AbortedTransaction
from barnabas.log.tools.overlay import OverlayFileSystem
from barnabas.model import NO_TIMESTAMP, TopicPartition
from barnabas.records.control import control_record_type
from barnabas.records.header import BatchHeader, iterate_headers
from barnabas.records.layout import MAGIC_V0, ControlRecordType
from barnabas.records.reader import decode_batch
from barnabas.records.record import Record

logger = logging.getLogger(__name__)

READ_BYTES: Final = 1 << 20
OPEN_ATTEMPTS: Final = 10


def is_partition_directory(fs: FileSystem, path: str) -> bool:
    """Whether the path is the directory of a partition, and not one that holds many."""
    try:
        names.parse_partition_dir(os.path.basename(path))
    except names.BadDirectoryName:
        return False
    return any(name.endswith(names.LOG_SUFFIX) for name in fs.list_dir(path))


class Inspection:
    """One log directory, as it is at some moment."""

    def __init__(self, fs: FileSystem, directory: str, at_ms: int) -> None:
        """The directory may be that of one partition: then it alone is looked at."""
        self._only: TopicPartition | None = None
        if is_partition_directory(fs, directory):
            directory, name = os.path.split(directory)
            self._only = names.parse_partition_dir(name).partition
        self._fs = fs
        self._directory = directory
        self._at_ms = at_ms
        self._stop = read_clean_shutdown(fs, os.path.join(directory, names.CLEAN_SHUTDOWN))
        self._recovery_points = read_offsets(fs, os.path.join(directory, names.RECOVERY_POINT_CHECKPOINT))
        self._log_start_offsets = read_offsets(fs, os.path.join(directory, names.LOG_START_OFFSET_CHECKPOINT))

    def partitions(self, topic: str | None = None, partition: int | None = None) -> list[TopicPartition]:
        """Those that a broker would serve, in order; or the chosen ones."""
        found = []
        for name in self._fs.list_dir(self._directory):
            if not self._fs.is_dir(os.path.join(self._directory, name)):
                continue
            try:
                parsed = names.parse_partition_dir(name)
            except names.BadDirectoryName as error:
                if name != names.HOST_BROKERS:
                    logger.warning("%s", error)
                continue
            chosen = parsed.partition
            if parsed.mark or (topic is None and self._only is None and chosen.topic == METADATA_TOPIC):
                continue
            if self._only not in (None, chosen):
                continue
            if topic in (None, chosen.topic) and partition in (None, chosen.partition):
                found.append(chosen)
        return sorted(found)

    def open(self, partition: TopicPartition) -> PartitionLog:
        """The partition's log, whose writes go nowhere; all that it holds counts as replicated."""
        directory = os.path.join(self._directory, names.partition_dir(partition))
        for attempt in range(1, OPEN_ATTEMPTS + 1):
            try:
                log = PartitionLog.open(
                    directory,
                    environment=LogEnvironment(
                        fs=OverlayFileSystem(self._fs), clock=ManualClock(self._at_ms)
                    ),
                    config=LogConfig(),
                    prior=PriorState(
                        recovery_point=self._recovery_points.get(partition, 0),
                        log_start_offset=self._log_start_offsets.get(partition, 0),
                        clean_shutdown=self._stop is not None,
                        lists_side_files=self._stop is None or self._stop.lists_side_files,
                    ),
                )
            except NoSuchFile:
                if attempt == OPEN_ATTEMPTS or not self._fs.exists(directory):
                    raise
                logger.info("%s changed while it was opened", directory)
                continue
            log.update_high_watermark(log.log_end_offset)
            return log
        raise AssertionError("unreachable")

    def records(
        self, partition: TopicPartition, isolation: Isolation
    ) -> Iterator[tuple[BatchHeader, Record]]:
        """The records for a consumer from the start of the log to its end."""
        offset = 0
        for attempt in range(1, OPEN_ATTEMPTS + 1):
            log = self.open(partition)
            try:
                for header, record in read_from(log, max(offset, log.log_start_offset), isolation):
                    yield header, record
                    offset = record.offset + 1
                return
            except NoSuchFile:
                # A broker has deleted or replaced the segment; its current segments continue from there.
                if attempt == OPEN_ATTEMPTS:
                    raise

    def resume_leadership(self, log: PartitionLog) -> None:
        """Makes known again an epoch that is forgotten at opening because nothing was written in it yet."""
        epochs = read_epochs(self._fs, os.path.join(log.directory, names.LEADER_EPOCH_CHECKPOINT))
        if epochs and (log.latest_epoch is None or log.latest_epoch < epochs[-1][0]):
            log.assign_epoch_start(epochs[-1][0])


def read_from(log: PartitionLog, offset: int, isolation: Isolation) -> Iterator[tuple[BatchHeader, Record]]:
    """The records for a consumer from the offset to the end: no control records, no aborted records."""
    while True:
        result = log.read(offset, READ_BYTES, isolation, min_one_message=True)
        if result.records is None:
            return
        data = result.records.read()
        headers = iterate_headers(data)
        if not headers:
            return
        aborted = AbortedFilter(result.aborted_transactions or [])
        position = 0
        for header in headers:
            if not aborted.hides(header, data, position):
                for record in decode_batch(data, position, header=header):
                    if record.offset >= offset:
                        yield header, record
            position += header.size_bytes
        offset = headers[-1].next_offset


class AbortedFilter:
    """Which batches of one read a consumer of committed records must not see."""

    def __init__(self, transactions: Sequence[AbortedTransaction]) -> None:
        self._pending = deque(sorted(transactions, key=lambda transaction: transaction.first_offset))
        self._aborted_producers: set[int] = set()

    def hides(self, header: BatchHeader, data: bytes, position: int) -> bool:
        while self._pending and self._pending[0].first_offset <= header.last_offset:
            self._aborted_producers.add(self._pending.popleft().producer_id)
        if header.is_control:
            for record in decode_batch(data, position, header=header):
                if control_record_type(record.key) is ControlRecordType.ABORT:
                    self._aborted_producers.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._aborted_producers


def describe(log: PartitionLog, times: Sequence[int]) -> dict[str, Any]:
    """The answers of the partition's leader: offsets as [offset, timestamp, leader epoch]."""
    # A leader always has an epoch. Records of old formats do not contain it: it may well be the first.
    leader_epoch = 0 if log.latest_epoch is None else log.latest_epoch
    find_time = _unsupported if _writes_v0(log) else partial(_find_time, log)
    return {
        "earliest": _find_time(log, EARLIEST_TIMESTAMP),
        "latest": [log.log_end_offset, NO_TIMESTAMP, leader_epoch],
        "last_stable_offset": log.last_stable_offset,
        "max_timestamp": find_time(MAX_TIMESTAMP),
        "offsets_for_times": [[time, find_time(time)] for time in times],
        "producers": [
            {
                "producerId": producer.producer_id,
                "epoch": producer.producer_epoch,
                "lastSequence": producer.last_sequence,
                "lastTimestamp": producer.last_timestamp,
                "coordinatorEpoch": producer.coordinator_epoch,
                "currentTxnStart": producer.current_txn_start_offset,
            }
            for producer in sorted(log.active_producers(), key=lambda producer: producer.producer_id)
        ],
        "leader_epochs": [[entry.epoch, entry.start_offset] for entry in log.leader_epochs],
        "offset_for_leader_epoch": [_epoch_end_offset(log, epoch) for epoch in range(leader_epoch + 2)],
    }


def _writes_v0(log: PartitionLog) -> bool:
    """Whether the topic's format is v0, which has no timestamps: its newest record shows this."""
    for segment in reversed(log.segments.all):
        if segment.size_bytes:
            position = segment.start_position(segment.offset_index.last_offset)
            return [header.magic for _, header in segment.batches(position)][-1] == MAGIC_V0
    return False


def _unsupported(_: int) -> str:
    return "error: UnsupportedForMessageFormatException"


def topic_id_text(log: PartitionLog) -> str | None:
    return None if log.topic_id is None else id_to_text(log.topic_id)


def _find_time(log: PartitionLog, time: int) -> list[int | None]:
    found = log.offset_for_timestamp(time)
    if found is None:
        return [-1, -1, None]
    return [found.offset, found.timestamp, None if found.leader_epoch < 0 else found.leader_epoch]


def _epoch_end_offset(log: PartitionLog, epoch: int) -> list[int]:
    """As OffsetForLeaderEpoch: the epoch asked for, an error code, the epoch that answers, its end offset."""
    found = log.end_offset_for_epoch(epoch)
    return [epoch, 0, -1, -1] if found is None else [epoch, 0, found.epoch, found.end_offset]
