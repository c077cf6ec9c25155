"""`barnabas wire decode`: bytes that went over a wire, as JSON that a person can read.

Bytes come as a stream of frames (what a capture of one direction of a connection holds), as one frame without its
size, or as the bare body of a message. A request names its API and version itself. A response only says which request
it answers: its API and version are given, or found in a capture of the requests, or guessed if only one API's responses
look like it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from barnabas.errors import InvalidRequest, KafkaError
from barnabas.protocol.apis import APIS, Api
from barnabas.protocol.codec import decode
from barnabas.protocol.frames import SIZE, SIZE_BYTES
from barnabas.protocol.json_form import to_json
from barnabas.protocol.message import Message
from barnabas.protocol.messages import message_class
from barnabas.protocol.requests import (
    decode_request,
    decode_request_header,
    decode_response,
    encode_response,
)
from barnabas.protocol.schema import StructSchema, load_schema
from barnabas.records.reader import iterate_batches
from barnabas.records.record import Record

# Characters between digits in dumps and in source code.
_BETWEEN_DIGITS: Final = re.compile(rb"0x|\\x|[\s:,;_\"'-]+")
_HEX: Final = re.compile(rb"(?:[0-9a-fA-F]{2})+")

# The beginning that every header has: key, version and correlation id; a correlation id.
_MIN_PAYLOAD_BYTES: Final = {"request": 8, "response": 4}

_API_VERSIONS_KEY: Final = 18
_UNSUPPORTED_VERSION: Final = (35).to_bytes(2)


class NotDecodable(InvalidRequest):
    """The bytes are not what the options say; the message says what to try next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The API and version of a request, which are also those of its response."""

    api: Api
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """A header and a body, and where in the input they start."""

    position: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A payload that does not decode. The payloads after it may."""

    what: str


def bytes_of(data: bytes, encoding: str) -> bytes:
    """The bytes that were meant: `data` itself, or what it spells in hex."""
    if encoding == "binary":
        return data
    digits = _BETWEEN_DIGITS.sub(b"", data)
    if _HEX.fullmatch(digits):
        return bytes.fromhex(digits.decode())
    if encoding == "hex":
        raise NotDecodable("this is not hex, or has an odd number of digits")
    return data


def is_framed(data: bytes, direction: str) -> bool:
    """Whether the data is a whole number of frames, each large enough for a header."""
    try:
        payloads = list(split(data))
    except NotDecodable:
        return False
    return bool(payloads) and all(len(payload.data) >= _MIN_PAYLOAD_BYTES[direction] for payload in payloads)


def split(data: bytes) -> Iterator[Payload]:
    """The payloads of a stream of frames; NotDecodable where the stream breaks off."""
    position = 0
    while position < len(data):
        if len(data) - position < SIZE_BYTES:
            raise NotDecodable(f"byte {position}: the stream ends within the size of a frame")
        size: int = SIZE.unpack_from(data, position)[0]
        start = position + SIZE_BYTES
        if not 0 <= size <= len(data) - start:
            advice = " (without a size before the header, add --form payload)" if position == 0 else ""
            raise NotDecodable(
                f"byte {position}: a frame of {size} bytes is announced, {len(data) - start} bytes follow{advice}"
            )
        position = start + size
        yield Payload(position=start, data=data[start:position])


def decode_body(name: str, version: int, data: bytes, *, with_records: bool) -> dict[str, Any]:
    """A bare message in Kafka's JSON form."""
    return readable(decode(message_class(name), data, version), version, with_records=with_records)


def decode_stream(
    data: bytes,
    *,
    direction: str,
    form: str,
    call: Call | None,
    requests: bytes | None,
    with_records: bool,
) -> Iterator[dict[str, Any] | Failure]:
    """Every message in the data; `form` is frames, payload, body, or auto for what fits."""
    if form == "auto":
        form = _form_of(data, direction, call)
    if form == "body":
        assert call is not None
        message = decode(_message_class(direction, call), data, call.version)
        return iter([readable(message, call.version, with_records=with_records)])
    payloads = split(data) if form == "frames" else iter([Payload(position=0, data=data)])
    if direction == "request":
        return _decode_requests(payloads, with_records)
    calls = None if requests is None else calls_by_correlation_id(split(requests))
    return _decode_responses(payloads, call, calls, with_records)


def _form_of(data: bytes, direction: str, call: Call | None) -> str:
    if is_framed(data, direction):
        return "frames"
    if call is not None and _decodes(lambda: decode(_message_class(direction, call), data, call.version)):
        return "body"
    if direction == "request" and _decodes(lambda: decode_request(data)):
        return "payload"
    if direction == "response" and call and _decodes(lambda: decode_response(call.api, call.version, data)):
        return "payload"
    return "frames" if call is None else "body"


def _decodes(call: Callable[[], object]) -> bool:
    try:
        call()
    except KafkaError:
        return False
    return True


def _message_class(direction: str, call: Call) -> type[Any]:
    return call.api.request_class() if direction == "request" else call.api.response_class()


def _decode_requests(payloads: Iterator[Payload], with_records: bool) -> Iterator[dict[str, Any] | Failure]:
    for payload in payloads:
        try:
            request = decode_request(payload.data)
        except KafkaError as error:
            yield Failure(what=f"request at byte {payload.position}: {error}")
            continue
        yield _described(
            payload,
            Call(api=request.api, version=request.version),
            readable(request.header, request.api.request_header_version(request.version)),
            readable(request.body, request.version, with_records=with_records),
        )


def _decode_responses(
    payloads: Iterator[Payload], call: Call | None, calls: dict[int, deque[Call]] | None, with_records: bool
) -> Iterator[dict[str, Any] | Failure]:
    """Responses to `call`, or to those of `calls` that have their correlation ids; without either they are guessed."""
    for payload in payloads:
        try:
            answered = call or (_guess(payload.data) if calls is None else _answered(payload.data, calls))
            api = answered.api
            version = _response_version(answered, payload.data)
            response = decode_response(api, version, payload.data)
        except KafkaError as error:
            yield Failure(what=f"response at byte {payload.position}: {error}")
            continue
        yield _described(
            payload,
            Call(api=api, version=version),
            readable(response.header, api.response_header_version(version)),
            readable(response.body, version, with_records=with_records),
        ) | ({"guessed": True} if call is None and calls is None else {})


def calls_by_correlation_id(payloads: Iterator[Payload]) -> dict[int, deque[Call]]:
    """The APIs and versions of the requests in a capture; requests with the same correlation id are in the order of
    sending.
    """
    calls: dict[int, deque[Call]] = {}
    for payload in payloads:
        api, header, _ = decode_request_header(payload.data)
        call = Call(api=api, version=header.request_api_version)
        calls.setdefault(header.correlation_id, deque()).append(call)
    return calls


def _answered(data: bytes, calls: dict[int, deque[Call]]) -> Call:
    correlation_id = int.from_bytes(data[:4], signed=True)
    waiting = calls.get(correlation_id)
    if not waiting:
        raise NotDecodable(f"there is no request with correlation id {correlation_id} in the capture")
    return waiting.popleft()


def _guess(data: bytes) -> Call:
    """The only API, in its newest version, whose response could be exactly these bytes."""
    fitting = [
        Call(api=api, version=version)
        for api in APIS
        for version in range(api.first_version, api.last_version + 1)
        if _is_response(api, version, data)
    ]
    names = list(dict.fromkeys(call.api.name for call in fitting))
    if len(names) != 1:
        what = f"these bytes could be of {', '.join(names)}" if names else "this is not a response of any API"
        raise NotDecodable(f"{what}: add --api and --version, or --requests FILE")
    return fitting[-1]


def _is_response(api: Api, version: int, data: bytes) -> bool:
    try:
        response = decode_response(api, version, data)
        return data == encode_response(api, version, response.header.correlation_id, response.body)
    except KafkaError:
        return False


def _response_version(call: Call, data: bytes) -> int:
    """A broker that does not know the version of an ApiVersions request answers in version 0, with error 35."""
    is_refused = call.api.key == _API_VERSIONS_KEY and data[4:6] == _UNSUPPORTED_VERSION
    return 0 if is_refused else call.version


def _described(payload: Payload, call: Call, header: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    return {
        "api": call.api.name,
        "version": call.version,
        "position": payload.position,
        "size": len(payload.data),
        "header": header,
        "body": body,
    }


def readable(message: Message, version: int, *, with_records: bool = False) -> dict[str, Any]:
    """Kafka's JSON form, and `unknownTags` as [[tag, hex], …] in each struct that has such fields.

    With records, the contents of `records` fields are shown instead of their bytes.
    """
    form = to_json(message, version)
    _complete(load_schema(type(message).__name__), message, form, with_records)
    return form


def _complete(schema: StructSchema, message: Any, form: dict[str, Any], with_records: bool) -> None:
    for field in schema.fields:
        inner = form.get(field.json_name)
        if inner is None:
            continue
        value = getattr(message, field.python_name)
        if field.struct:
            pairs = zip(value, inner, strict=True) if field.is_array else [(value, inner)]
            for element, element_form in pairs:
                _complete(field.struct, element, element_form, with_records)
        elif field.kind == "records" and with_records:
            form[field.json_name] = list(_batches(bytes(value)))
    if message.unknown_tagged_fields:
        form["unknownTags"] = [[tag, data.hex()] for tag, data in message.unknown_tagged_fields]


def _batches(data: bytes) -> Iterator[dict[str, Any]]:
    try:
        for header, records in iterate_batches(data):
            yield {
                "baseOffset": header.base_offset,
                "sizeInBytes": header.size_bytes,
                "magic": header.magic,
                "partitionLeaderEpoch": header.partition_leader_epoch,
                "compression": header.compression.label,
                "timestampType": header.timestamp_type.label,
                "isTransactional": header.is_transactional,
                "isControl": header.is_control,
                "producerId": header.producer_id,
                "producerEpoch": header.producer_epoch,
                "baseSequence": header.base_sequence,
                "records": [_record(record) for record in records],
            }
    except KafkaError as error:
        yield {"fault": str(error)}


def _record(record: Record) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _hex(record.key),
        "value": _hex(record.value),
        "headers": [[name, _hex(value)] for name, value in record.headers],
    }


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()
