"""Requests and responses on the wire, without the size before them (see `frames`): a header, then a body.

    request    RequestHeader v0-v2 (API key, version, correlation id, client id, tagged fields) | request
    response   ResponseHeader v0-v1 (correlation id, tagged fields)                             | response

A response does not contain its type: the sender of the request remembers API and version by the correlation id.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from librt.strings import read_i16_be

from barnabas.errors import UnsupportedVersion
from barnabas.protocol.apis import Api, api_for_key
from barnabas.protocol.codec import ELEMENTS_MAX, decode, decode_prefix, encode_into
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.message import Buffer, Message
from barnabas.protocol.messages.request_header import RequestHeader
from barnabas.protocol.messages.response_header import ResponseHeader
from barnabas.protocol.native.request_header import read_request_header
from barnabas.protocol.native.wire import Budget

# The fields that determine the version of the header itself: API key and version, then the correlation id.
_HEADER_START_BYTES: Final = 8
_VERSION_POSITION: Final = 2


class Request(NamedTuple):
    api: Api
    version: int
    header: RequestHeader
    body: Any


class Response(NamedTuple):
    header: ResponseHeader
    body: Any


class UnsupportedRequest(UnsupportedVersion):
    """A request whose header can be read, but whose version is not known. An answer needs the header."""

    def __init__(self, api: Api, header: RequestHeader) -> None:
        super().__init__(api, header)
        self.api = api
        self.header = header

    def __str__(self) -> str:
        api = self.api
        version = self.header.request_api_version
        return f"{api.name} has no version {version}, only {api.first_version}-{api.last_version}"


def decode_request(frame: Buffer) -> Request:
    """The request in a frame: UnsupportedRequest for a version that is not known, else InvalidRequest for any fault."""
    api, header, position = decode_request_header(frame)
    version = header.request_api_version
    if not api.has_version(version):
        raise UnsupportedRequest(api, header)
    body = decode(api.request_class(), frame, version, position)
    return Request(api=api, version=version, header=header, body=body)


def decode_request_header(frame: Buffer) -> tuple[Api, RequestHeader, int]:
    """The API, the header and the position of the body, for any version of the request."""
    if len(frame) < _HEADER_START_BYTES:
        raise DecodeError(
            "RequestHeader", 0, "", 0, f"{_HEADER_START_BYTES} bytes needed, there are {len(frame)}"
        )
    start = frame if isinstance(frame, bytes) else bytes(frame[:_HEADER_START_BYTES])
    version = read_i16_be(start, _VERSION_POSITION)
    api = api_for_key(read_i16_be(start, 0))
    header_version = api.request_header_version(version)
    if isinstance(frame, bytes):
        try:
            header, end = read_request_header(frame, 0, header_version, Budget(ELEMENTS_MAX))
        except (IndexError, ValueError):
            # The general way below finds the same fault, and explains it.
            pass
        else:
            return api, header, end
    header, position = decode_prefix(RequestHeader, frame, header_version)
    return api, header, position


def encode_request(
    api: Api, version: int, correlation_id: int, client_id: str | None, body: Message
) -> bytearray:
    """The bytes of a request behind its size."""
    header_version = api.request_header_version(version)
    header = RequestHeader(
        request_api_key=api.key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id if header_version > 0 else "",
    )
    out = bytearray()
    encode_into(out, header, header_version)
    encode_into(out, body, version)
    return out


def decode_response(api: Api, version: int, frame: Buffer) -> Response:
    header, position = decode_prefix(ResponseHeader, frame, api.response_header_version(version))
    return Response(header=header, body=decode(api.response_class(), frame, version, position))


def encode_response(api: Api, version: int, correlation_id: int, body: Message) -> bytearray:
    """The bytes of a response behind its size."""
    out = bytearray()
    encode_into(out, ResponseHeader(correlation_id=correlation_id), api.response_header_version(version))
    encode_into(out, body, version)
    return out
