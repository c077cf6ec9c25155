"""Names for integers that are easily confused, and the few values that every room knows.

Offsets count records in a partition, positions count bytes in a file: the type checker keeps them apart.
"""

from __future__ import annotations

from typing import Final, NamedTuple, NewType

Offset = NewType("Offset", int)
FilePosition = NewType("FilePosition", int)
LeaderEpoch = NewType("LeaderEpoch", int)
BrokerId = NewType("BrokerId", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
TimestampMs = NewType("TimestampMs", int)

NO_TIMESTAMP: Final = TimestampMs(-1)
NO_OFFSET: Final = Offset(-1)
NO_LEADER_EPOCH: Final = LeaderEpoch(-1)
NO_PRODUCER_ID: Final = ProducerId(-1)
NO_PRODUCER_EPOCH: Final = ProducerEpoch(-1)
NO_SEQUENCE: Final = -1


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
