"""What is in the logs of all replicas of a partition, and what follows from that.

Each batch stands for all that is before it: its chain is a digest of the batch and of the chain of the batch before it.
So two logs with the same chain at an offset have the same bytes up to there. A batch is read once from each log.

- One appender: a batch of a leader epoch is first in the log of the leader of that epoch.
- Same offset and epoch, same prefix: a batch with the same offset and leader epoch has the same chain in all logs.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from barnabas.log.partition.partition_log import PartitionLog
from barnabas.log.partition.read import Isolation
from barnabas.model import BrokerId
from barnabas.records.header import BatchHeader, iterate_headers

START: Final = b""
READ_BYTES: Final = 1 << 20


class Batch(NamedTuple):
    base_offset: int
    end_offset: int
    leader_epoch: int
    crc: int
    chain: bytes


class ReplicaLog:
    """The batches of one replica, as they were when its broker was looked at last."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    @property
    def end_offset(self) -> int:
        return self.batches[-1].end_offset if self.batches else 0

    def chain_at(self, offset: int) -> bytes | None:
        """The chain of all that is before the offset; None if no batch ends there."""
        if offset == 0:
            return START
        index = bisect_right(self.batches, offset, key=_end_offset) - 1
        return self.batches[index].chain if index >= 0 and self._ends_at(index, offset) else None

    def _ends_at(self, index: int, offset: int) -> bool:
        return self.batches[index].end_offset == offset

    def update(self, log: PartitionLog, end_offset: int) -> list[Batch]:
        """Reads what has been added. Returns it.

        The batch before it is read once more: if it is another one, the log was truncated and written again.
        """
        batches = self.batches
        while batches and batches[-1].end_offset > end_offset:
            batches.pop()
        last = batches.pop() if batches else None
        added = [*read_batches(log, end_offset, self.end_offset, self._last_chain())]
        if last is not None and (not added or added[0].chain != last.chain):
            batches.clear()
            added = [*read_batches(log, end_offset, 0, START)]
            last = None
        batches += added
        return added[1:] if last is not None else added

    def _last_chain(self) -> bytes:
        return self.batches[-1].chain if self.batches else START


def _end_offset(batch: Batch) -> int:
    return batch.end_offset


class PartitionLogs:
    """All replicas of a partition of one topic: a topic of the same name that is created later has others."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.replicas: dict[BrokerId, ReplicaLog] = {}
        # The brokers that the store has named as leaders, by leader epoch.
        self.leaders: dict[int, int] = {}
        # What leaders have exposed by their high watermarks.
        self.exposed_end = 0
        self.exposed_chain = START
        self.exposed_crcs: dict[int, int] = {}
        # By base offset and leader epoch.
        self._chains: dict[tuple[int, int], bytes] = {}

    def of(self, broker_id: BrokerId) -> ReplicaLog:
        found = self.replicas.get(broker_id)
        if found is None:
            found = self.replicas[broker_id] = ReplicaLog()
        return found

    def update(
        self,
        broker_id: BrokerId,
        log: PartitionLog,
        end_offset: int,
        may_be_unseen: Callable[[int], bool],
    ) -> None:
        """`may_be_unseen` says of a leader epoch whether its leader died before its last batches were looked at."""
        replica = self.of(broker_id)
        for batch in replica.update(log, end_offset):
            at = (batch.base_offset, batch.leader_epoch)
            known = self._chains.get(at)
            if known is None:
                leader = self.leaders.get(batch.leader_epoch)
                assert leader == broker_id or may_be_unseen(batch.leader_epoch), (
                    f"broker {broker_id} has a batch of {self.name} that the leader of its epoch, broker {leader}, has"
                    f" never had: {batch}"
                )
                self._chains[at] = batch.chain
            else:
                assert known == batch.chain, (
                    f"broker {broker_id} has a batch of {self.name} with the offset and the epoch of another one, or"
                    f" other batches before it: {batch}"
                )
        latest = log.latest_epoch
        assert (
            latest is None
            or self.leaders.get(latest) == broker_id
            or (replica.batches and replica.batches[-1].leader_epoch == latest)
        ), f"broker {broker_id} has begun the epoch {latest} of {self.name}, in which it does not lead"

    def expose(self, broker_id: BrokerId, high_watermark: int) -> None:
        replica = self.of(broker_id)
        chain = replica.chain_at(high_watermark)
        assert chain is not None, (
            f"the high watermark {high_watermark} of {self.name} on broker {broker_id} is where no batch ends"
        )
        start = bisect_right(replica.batches, self.exposed_end, key=_end_offset)
        for batch in replica.batches[start:]:
            if batch.end_offset > high_watermark:
                break
            self.exposed_crcs[batch.base_offset] = batch.crc
        self.exposed_end, self.exposed_chain = high_watermark, chain

    def has_exposed(self, broker_id: BrokerId) -> bool:
        """Whether a replica has all that was exposed, and nothing else before its end."""
        return self.of(broker_id).chain_at(self.exposed_end) == self.exposed_chain


def read_batches(log: PartitionLog, end_offset: int, start_offset: int, chain: bytes) -> Iterator[Batch]:
    offset = start_offset
    while offset < end_offset:
        found = log.read(offset, READ_BYTES, Isolation.LOG_END, min_one_message=True).records
        assert found is not None
        data = bytes(found.read())
        position = 0
        for header in iterate_headers(data):
            if header.base_offset >= end_offset:
                break
            end = position + header.size_bytes
            chain = hashlib.blake2b(chain + data[position:end], digest_size=16).digest()
            offset, position = int(header.next_offset), end
            yield _batch(header, chain)
        assert position, f"nothing at {offset} of {log}"


def _batch(header: BatchHeader, chain: bytes) -> Batch:
    return Batch(
        int(header.base_offset),
        int(header.next_offset),
        int(header.partition_leader_epoch),
        int(header.crc),
        chain,
    )
