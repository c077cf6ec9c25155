"""The bytes before a value with a schema, in Confluent's wire format, big-endian:

     0       1                       5
    +-------+-----------------------+---------------------------+---------...
    | 0     | schema id (uint32)    | Protobuf: message indexes | value
    +-------+-----------------------+---------------------------+---------...

The message indexes say which message of a .proto file the value is: the number of indexes and the indexes from the
outermost message inwards, as zigzag varints. The first message of a file, [0], is one byte 0.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from barnabas.client.failures import SerializationError
from barnabas.client.schemas.failures import NoSchemaHeader

HEADER: Final = Struct(
    ">B"  # magic: 0
    "I"  # schema id
)
assert HEADER.size == 5
MAGIC: Final = 0
# Messages are rarely nested more than a few levels; a broken length must not make a loop.
INDEXES_MAX: Final = 100
VARINT_BYTES_MAX: Final = 5


def header(schema_id: int) -> bytes:
    return HEADER.pack(MAGIC, schema_id)


def schema_id_of(data: bytes) -> int:
    """The schema id at the beginning of the bytes; raises NoSchemaHeader if there is none."""
    if len(data) < HEADER.size:
        raise NoSchemaHeader(
            f"{len(data)} bytes are too few for a value with a schema: its header alone has {HEADER.size}"
        )
    magic, schema_id = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise NoSchemaHeader(
            f"the first byte is {magic} and not {MAGIC}: the value was not written with a schema registry"
        )
    return int(schema_id)


def has_header(data: bytes) -> bool:
    """Whether the bytes may have a schema id; other bytes may begin with a zero too."""
    return len(data) >= HEADER.size and data[0] == MAGIC


def message_indexes(indexes: tuple[int, ...]) -> bytes:
    if indexes == (0,):
        return b"\x00"
    return b"".join(_varint(each) for each in (len(indexes), *indexes))


def read_message_indexes(data: bytes, position: int) -> tuple[tuple[int, ...], int]:
    """The message indexes, and the position behind them."""
    count, position = _read_varint(data, position)
    if count == 0:
        return (0,), position
    if not 0 < count <= INDEXES_MAX:
        raise SerializationError(f"the value names {count} message indexes; 1 to {INDEXES_MAX} are possible")
    indexes = []
    for _ in range(count):
        index, position = _read_varint(data, position)
        indexes.append(index)
    return tuple(indexes), position


def _varint(number: int) -> bytes:
    left = number << 1
    made = bytearray()
    while left > 0x7F:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    made.append(left)
    return bytes(made)


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 7 * VARINT_BYTES_MAX, 7):
        if position >= len(data):
            raise SerializationError("the value ends within its message indexes")
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
    raise SerializationError(f"a message index has more than {VARINT_BYTES_MAX} bytes")
