"""Reads and writes TransactionLogKey, versions 0.

Written by `make messages` from schemas/TransactionLogKey.json.
"""

from __future__ import annotations

from librt.strings import (
    BytesWriter,
)
from mypy_extensions import i64

from barnabas.protocol.errors import Malformed
from barnabas.protocol.message import Buffer
from barnabas.protocol.messages.transaction_log_key import TransactionLogKey
from barnabas.protocol.native.wire import (
    Budget,
    Splices,
    read_string,
    write_string,
)


def read_transaction_log_key(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[TransactionLogKey, i64]:
    transactional_id, pos = read_string(data, pos, False)
    item = TransactionLogKey(transactional_id=transactional_id)
    return item, pos


def write_transaction_log_key(out: BytesWriter, item: TransactionLogKey, version: i64) -> None:
    write_string(out, item.transactional_id, False)
    if item.unknown_tagged_fields:
        raise Malformed


def decode(version: i64, source: Buffer, position: i64, elements_max: i64) -> tuple[TransactionLogKey, i64]:
    data = source if isinstance(source, bytes) else bytes(source)
    return read_transaction_log_key(data, position, version, Budget(elements_max))


def encode(version: i64, message: TransactionLogKey, wanted: Splices | None = None) -> bytes:
    out = BytesWriter()
    write_transaction_log_key(out, message, version)
    return out.getvalue()
