"""The bytes of record batches: three formats that share their first 17 bytes up to the magic.

Everything is big-endian. A log file and a records field hold entries one after the other, each of any format.

v2, a record batch. The CRC-32C covers everything from the attributes on, so that a leader can set the base offset and
the leader epoch without computing it again:

     0        8      12       16  17   21     23      27         35        43       51  53     57       61
     +--------+-------+--------+---+----+------+-------+----------+---------+--------+---+------+--------+---------
     | base   | length| leader |mag|crc | attri| last  | base     | max     |producer|pro| base | record | records
     | offset |       | epoch  | ic|    | butes|offset | timestamp|timestamp|   id   |duc| sequ | count  | maybe
     |        |       |        | 2 |    |      | delta |          |         |        |er | ence |        | compressed
     |        |       |        |   |    |      |       |          |         |        |ep.|      |        |
     +--------+-------+--------+---+----+------+-------+----------+---------+--------+---+------+--------+---------

A record of v2, where varint is a zigzag varint of 32 bits, varlong of 64, and a length of -1 means null:

    length varint | attributes int8 | timestamp delta varlong | offset delta varint
                  | key length varint | key | value length varint | value | header count varint | headers
    header:         name length varint | name | value length varint | value

v0 and v1, a message. The CRC-32 covers everything from the magic on. A compressed message is a wrapper: its value
holds messages of its own, with absolute offsets in v0 and relative ones in v1, and its offset is that of the last:

     0        8      12   16  17  18          26           30
     +--------+-------+----+---+---+-----------+------------+-----+--------------+-------
     | offset | length|crc |mag|att| timestamp | key length | key | value length | value
     |        |       |    | ic|rib| (v1 only) |            |     |              |
     +--------+-------+----+---+---+-----------+------------+-----+--------------+-------

Attributes: bits 0-2 compression, 3 timestamp type (v1, v2), 4 transactional, 5 control, 6 delete horizon (v2).
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final

MAGIC_V0: Final = 0
MAGIC_V1: Final = 1
MAGIC_V2: Final = 2

# The position of a field in an entry.
LENGTH_POSITION: Final = 8
LEADER_EPOCH_POSITION: Final = 12
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21
LAST_OFFSET_DELTA_POSITION: Final = 23
BASE_TIMESTAMP_POSITION: Final = 27
MAX_TIMESTAMP_POSITION: Final = 35
PRODUCER_ID_POSITION: Final = 43
PRODUCER_EPOCH_POSITION: Final = 51
BASE_SEQUENCE_POSITION: Final = 53
RECORD_COUNT_POSITION: Final = 57
LEGACY_CRC_POSITION: Final = 12
LEGACY_ATTRIBUTES_POSITION: Final = 17
LEGACY_TIMESTAMP_POSITION: Final = 18

# Offset and length, which every entry begins with and which its length does not count.
LOG_OVERHEAD_BYTES: Final = 12
HEADER_UP_TO_MAGIC_BYTES: Final = 17
HEADER_PROBE_BYTES: Final = 61
BATCH_HEADER_BYTES: Final = 61
# From the CRC of a message with neither key nor value to its end.
MESSAGE_OVERHEAD_V0_BYTES: Final = 14
MESSAGE_OVERHEAD_V1_BYTES: Final = 22

COMPRESSION_MASK: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40
KNOWN_ATTRIBUTES: Final = 0x7F

INT32_MAX: Final = 0x7FFF_FFFF
UINT32_MAX: Final = 0xFFFF_FFFF

BATCH_HEADER: Final = Struct(
    ">"
    "q"  # base offset
    "i"  # length
    "i"  # partition leader epoch
    "b"  # magic
    "I"  # crc
    "h"  # attributes
    "i"  # last offset delta
    "q"  # base timestamp
    "q"  # max timestamp
    "q"  # producer id
    "h"  # producer epoch
    "i"  # base sequence
    "i"  # record count
)
assert BATCH_HEADER.size == BATCH_HEADER_BYTES

MESSAGE_HEADER_V0: Final = Struct(
    ">"
    "q"  # offset
    "i"  # length
    "I"  # crc
    "b"  # magic
    "b"  # attributes
)
assert MESSAGE_HEADER_V0.size == 18

MESSAGE_HEADER_V1: Final = Struct(
    ">"
    "q"  # offset
    "i"  # length
    "I"  # crc
    "b"  # magic
    "b"  # attributes
    "q"  # timestamp
)
assert MESSAGE_HEADER_V1.size == 26

# The three fields of a batch that its CRC does not cover, without the magic between them and without the CRC.
BASE_OFFSET_LENGTH_EPOCH: Final = Struct(
    ">"
    "q"  # base offset
    "i"  # length
    "i"  # partition leader epoch
)
assert BASE_OFFSET_LENGTH_EPOCH.size == MAGIC_POSITION

INT16: Final = Struct(">h")
INT32: Final = Struct(">i")
UINT32: Final = Struct(">I")
INT64: Final = Struct(">q")


class CompressionType(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """The name as settings and Kafka's tools spell it."""
        return self.name.lower()


class TimestampType(IntEnum):
    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

    @property
    def label(self) -> str:
        """The name as settings and Kafka's tools spell it."""
        return _TIMESTAMP_TYPE_LABELS[self]


_TIMESTAMP_TYPE_LABELS: Final = {
    TimestampType.NO_TIMESTAMP_TYPE: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


class ControlRecordType(IntEnum):
    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
