"""Reads and writes EndTxnResponse, versions 0-5.

Written by `make messages` from schemas/EndTxnResponse.json.
"""

from __future__ import annotations

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i16, i64

from barnabas.protocol.errors import Malformed
from barnabas.protocol.message import Buffer
from barnabas.protocol.messages.end_txn_response import EndTxnResponse
from barnabas.protocol.native.wire import (
    Budget,
    Splices,
    read_tags,
    write_unknown_tags,
)


def read_end_txn_response(data: bytes, pos: i64, version: i64, budget: Budget) -> tuple[EndTxnResponse, i64]:
    flexible = version >= 3
    throttle_time_ms = read_i32_be(data, pos)
    error_code = read_i16_be(data, pos + 4)
    pos += 6
    producer_id: i64 = -1
    producer_epoch: i16 = -1
    if version == 5:
        producer_id = read_i64_be(data, pos)
        producer_epoch = read_i16_be(data, pos + 8)
        pos += 10
    item = EndTxnResponse(
        throttle_time_ms=throttle_time_ms,
        error_code=error_code,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_end_txn_response(out: BytesWriter, item: EndTxnResponse, version: i64) -> None:
    flexible = version >= 3
    write_i32_be(out, item.throttle_time_ms)
    write_i16_be(out, item.error_code)
    if version == 5:
        write_i64_be(out, item.producer_id)
        write_i16_be(out, item.producer_epoch)
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def decode(version: i64, source: Buffer, position: i64, elements_max: i64) -> tuple[EndTxnResponse, i64]:
    data = source if isinstance(source, bytes) else bytes(source)
    return read_end_txn_response(data, position, version, Budget(elements_max))


def encode(version: i64, message: EndTxnResponse, wanted: Splices | None = None) -> bytes:
    out = BytesWriter()
    write_end_txn_response(out, message, version)
    return out.getvalue()
