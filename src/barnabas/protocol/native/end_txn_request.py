"""Reads and writes EndTxnRequest, versions 0-5.

Written by `make messages` from schemas/EndTxnRequest.json.
"""

from __future__ import annotations

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i64_be,
    write_i16_be,
    write_i64_be,
)
from mypy_extensions import i64

from barnabas.protocol.errors import Malformed
from barnabas.protocol.message import Buffer
from barnabas.protocol.messages.end_txn_request import EndTxnRequest
from barnabas.protocol.native.wire import (
    Budget,
    Splices,
    read_string,
    read_tags,
    write_bool,
    write_string,
    write_unknown_tags,
)


def read_end_txn_request(data: bytes, pos: i64, version: i64, budget: Budget) -> tuple[EndTxnRequest, i64]:
    flexible = version >= 3
    transactional_id, pos = read_string(data, pos, flexible)
    producer_id = read_i64_be(data, pos)
    producer_epoch = read_i16_be(data, pos + 8)
    committed = data[pos + 10] != 0
    pos += 11
    item = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        committed=committed,
    )
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_end_txn_request(out: BytesWriter, item: EndTxnRequest, version: i64) -> None:
    flexible = version >= 3
    write_string(out, item.transactional_id, flexible)
    write_i64_be(out, item.producer_id)
    write_i16_be(out, item.producer_epoch)
    write_bool(out, item.committed)
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def decode(version: i64, source: Buffer, position: i64, elements_max: i64) -> tuple[EndTxnRequest, i64]:
    data = source if isinstance(source, bytes) else bytes(source)
    return read_end_txn_request(data, position, version, Budget(elements_max))


def encode(version: i64, message: EndTxnRequest, wanted: Splices | None = None) -> bytes:
    out = BytesWriter()
    write_end_txn_request(out, message, version)
    return out.getvalue()
