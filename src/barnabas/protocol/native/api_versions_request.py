"""Reads and writes ApiVersionsRequest, versions 0-4.

Written by `make messages` from schemas/ApiVersionsRequest.json.
"""

from __future__ import annotations

from librt.strings import (
    BytesWriter,
)
from mypy_extensions import i64

from barnabas.protocol.errors import Malformed
from barnabas.protocol.message import Buffer
from barnabas.protocol.messages.api_versions_request import ApiVersionsRequest
from barnabas.protocol.native.wire import (
    Budget,
    Splices,
    read_string,
    read_tags,
    write_string,
    write_unknown_tags,
)


def read_api_versions_request(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[ApiVersionsRequest, i64]:
    flexible = version >= 3
    client_software_name: str = ""
    client_software_version: str = ""
    if version >= 3:
        client_software_name, pos = read_string(data, pos, flexible)
        client_software_version, pos = read_string(data, pos, flexible)
    item = ApiVersionsRequest(
        client_software_name=client_software_name, client_software_version=client_software_version
    )
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_api_versions_request(out: BytesWriter, item: ApiVersionsRequest, version: i64) -> None:
    flexible = version >= 3
    if version >= 3:
        write_string(out, item.client_software_name, flexible)
        write_string(out, item.client_software_version, flexible)
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def decode(version: i64, source: Buffer, position: i64, elements_max: i64) -> tuple[ApiVersionsRequest, i64]:
    data = source if isinstance(source, bytes) else bytes(source)
    return read_api_versions_request(data, position, version, Budget(elements_max))


def encode(version: i64, message: ApiVersionsRequest, wanted: Splices | None = None) -> bytes:
    out = BytesWriter()
    write_api_versions_request(out, message, version)
    return out.getvalue()
