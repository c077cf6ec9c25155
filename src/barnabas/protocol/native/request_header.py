"""Reads and writes RequestHeader, versions 0-2.

Written by `make messages` from schemas/RequestHeader.json.
"""

from __future__ import annotations

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    write_i16_be,
    write_i32_be,
)
from mypy_extensions import i64

from barnabas.protocol.errors import Malformed
from barnabas.protocol.message import Buffer
from barnabas.protocol.messages.request_header import RequestHeader
from barnabas.protocol.native.wire import (
    Budget,
    Splices,
    read_nullable_string,
    read_tags,
    write_nullable_string,
    write_unknown_tags,
)


def read_request_header(data: bytes, pos: i64, version: i64, budget: Budget) -> tuple[RequestHeader, i64]:
    flexible = version == 2
    request_api_key = read_i16_be(data, pos)
    request_api_version = read_i16_be(data, pos + 2)
    correlation_id = read_i32_be(data, pos + 4)
    pos += 8
    client_id: str | None = ""
    if version >= 1:
        client_id, pos = read_nullable_string(data, pos, False)
    item = RequestHeader(
        request_api_key=request_api_key,
        request_api_version=request_api_version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_request_header(out: BytesWriter, item: RequestHeader, version: i64) -> None:
    flexible = version == 2
    write_i16_be(out, item.request_api_key)
    write_i16_be(out, item.request_api_version)
    write_i32_be(out, item.correlation_id)
    if version >= 1:
        write_nullable_string(out, item.client_id, False)
    elif item.client_id != "":
        raise Malformed
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def decode(version: i64, source: Buffer, position: i64, elements_max: i64) -> tuple[RequestHeader, i64]:
    data = source if isinstance(source, bytes) else bytes(source)
    return read_request_header(data, position, version, Budget(elements_max))


def encode(version: i64, message: RequestHeader, wanted: Splices | None = None) -> bytes:
    out = BytesWriter()
    write_request_header(out, message, version)
    return out.getvalue()
