"""Control records, which the broker itself writes between the records of its clients.

key:                                              version int16 (0) | type int16
value of a transaction's end (commit or abort):   version int16 (0) | coordinator epoch int32
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from barnabas.errors import InvalidRecord
from barnabas.records.layout import ControlRecordType
from barnabas.records.record import Record
from barnabas.value import Value

_KEY: Final = Struct(
    ">"
    "h"  # version
    "h"  # type
)
_END_TXN_VALUE: Final = Struct(
    ">"
    "h"  # version
    "i"  # coordinator epoch
)
_CURRENT_VERSION: Final = 0


class EndTxnMarker(Value, kw_only=True):
    """The end of a producer's transaction in a partition."""

    control_type: ControlRecordType
    coordinator_epoch: int

    def key(self) -> bytes:
        return control_key(self.control_type)

    def value(self) -> bytes:
        return _END_TXN_VALUE.pack(_CURRENT_VERSION, self.coordinator_epoch)


def control_key(control_type: ControlRecordType) -> bytes:
    assert control_type is not ControlRecordType.UNKNOWN
    return _KEY.pack(_CURRENT_VERSION, control_type)


def control_record_type(key: bytes | None) -> ControlRecordType:
    """The type of a control record; a type of a later release is UNKNOWN, and is to be skipped."""
    if key is None or len(key) < _KEY.size:
        raise InvalidRecord(f"the key {key!r} of a control record is below {_KEY.size} bytes")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecord(f"the key of a control record has version {version}")
    try:
        return ControlRecordType(number)
    except ValueError:
        return ControlRecordType.UNKNOWN


def parse_end_txn_marker(record: Record) -> EndTxnMarker | None:
    """The marker that a control record is, or None if it is another kind of control record."""
    control_type = control_record_type(record.key)
    if control_type is not ControlRecordType.COMMIT and control_type is not ControlRecordType.ABORT:
        return None
    value = record.value
    if value is None or len(value) < _END_TXN_VALUE.size:
        raise InvalidRecord(f"the value {value!r} of the marker at offset {record.offset} is too short")
    version, coordinator_epoch = _END_TXN_VALUE.unpack_from(value)
    if version < 0:
        raise InvalidRecord(f"the marker at offset {record.offset} has version {version}")
    return EndTxnMarker(control_type=control_type, coordinator_epoch=coordinator_epoch)
