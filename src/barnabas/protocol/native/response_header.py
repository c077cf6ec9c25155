"""Reads and writes ResponseHeader, versions 0-1.

Written by `make messages` from schemas/ResponseHeader.json.
"""

from __future__ import annotations

from librt.strings import (
    BytesWriter,
    read_i32_be,
    write_i32_be,
)
from mypy_extensions import i64

from barnabas.protocol.errors import Malformed
from barnabas.protocol.message import Buffer
from barnabas.protocol.messages.response_header import ResponseHeader
from barnabas.protocol.native.wire import (
    Budget,
    Splices,
    read_tags,
    write_unknown_tags,
)


def read_response_header(data: bytes, pos: i64, version: i64, budget: Budget) -> tuple[ResponseHeader, i64]:
    flexible = version == 1
    correlation_id = read_i32_be(data, pos)
    pos += 4
    item = ResponseHeader(correlation_id=correlation_id)
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_response_header(out: BytesWriter, item: ResponseHeader, version: i64) -> None:
    flexible = version == 1
    write_i32_be(out, item.correlation_id)
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def decode(version: i64, source: Buffer, position: i64, elements_max: i64) -> tuple[ResponseHeader, i64]:
    data = source if isinstance(source, bytes) else bytes(source)
    return read_response_header(data, position, version, Budget(elements_max))


def encode(version: i64, message: ResponseHeader, wanted: Splices | None = None) -> bytes:
    out = BytesWriter()
    write_response_header(out, message, version)
    return out.getvalue()
