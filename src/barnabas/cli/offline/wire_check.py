"""`barnabas wire check`: compares a corpus of messages that Apache Kafka has encoded with ours.

A corpus is a file of JSON lines, plain or gzipped. A line is one message:

    message       its name in Kafka, such as "FetchRequest"
    version
    json          the message in Kafka's JSON form
    hex           the bare message, without size and header
    unknown_tags  [[tag, hex], …], the tagged fields that the schema does not know: in `hex`, but not in `json`

Other keys of a line are ignored. A line passes if `hex` decodes to `json`, `json` encodes to `hex`, and the decoded
message encodes to `hex` again.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from barnabas.protocol.codec import decode, encode
from barnabas.protocol.errors import DecodeError, EncodeError
from barnabas.protocol.json_form import from_json, to_json
from barnabas.protocol.message import TaggedFields
from barnabas.protocol.messages import message_class
from barnabas.protocol.schema import load_schema

# Longer than any message that a broker accepts, in hex and in JSON. It bounds the memory that a file can take.
MAX_LINE_BYTES: Final = 512 * 1024 * 1024
GZIP_MAGIC: Final = b"\x1f\x8b"

SHOWN_CHARACTERS: Final = 120
SHOWN_BYTES: Final = 16


class BadLine(Exception):
    """A line that is not a message of a corpus."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    message: str
    version: int
    json: Any
    data: bytes
    unknown_tags: TaggedFields


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """`field` is a path in Kafka's spelling, such as topics[0].partitions[2].fetchOffset; empty for the message."""

    field: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One line of a corpus; it has passed if there are no differences."""

    file: str
    line: int
    message: str | None
    version: int | None
    differences: list[Difference]

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}"
        if self.message is not None:
            where += f": {self.message} version {self.version}"
        return "\n".join(
            f"{where}: {difference.field}: {difference.what}"
            if difference.field
            else f"{where}: {difference.what}"
            for difference in self.differences
        )


def check_file(name: str, raw: BinaryIO) -> Iterator[Checked]:
    """Every line of a corpus, in order; `raw` is at its start and can be peeked into."""
    number = 0
    try:
        for number, line in enumerate(_lines(raw), start=1):
            if not line.strip():
                continue
            try:
                entry = parse_line(line)
            except BadLine as error:
                yield _bad(name, number, str(error))
                continue
            yield Checked(
                file=name,
                line=number,
                message=entry.message,
                version=entry.version,
                differences=check_entry(entry),
            )
    except BadLine as error:
        yield _bad(name, number + 1, str(error))


def _bad(name: str, line: int, what: str) -> Checked:
    return Checked(
        file=name, line=line, message=None, version=None, differences=[Difference(field="", what=what)]
    )


def _lines(raw: BinaryIO) -> Iterator[bytes]:
    is_gzip = raw.peek(len(GZIP_MAGIC)).startswith(GZIP_MAGIC)  # type: ignore[attr-defined]
    with gzip.GzipFile(fileobj=raw) if is_gzip else nullcontext(raw) as stream:
        try:
            while line := stream.readline(MAX_LINE_BYTES + 1):
                if len(line) > MAX_LINE_BYTES:
                    raise BadLine(f"longer than {MAX_LINE_BYTES} bytes: the rest of the file is not read")
                yield line
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise BadLine(f"cannot be decompressed from here on: {error}") from None


def parse_line(line: bytes) -> Entry:
    try:
        fields = json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        raise BadLine(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise BadLine("not a JSON object")
    message = _required(fields, "message", str, "a name")
    version = _required(fields, "version", int, "a whole number")
    if "json" not in fields:
        raise BadLine('"json" is missing')
    unknown_tags = fields.get("unknown_tags", [])
    if not isinstance(unknown_tags, list):
        raise BadLine('"unknown_tags" must be a list of [tag, hex]')
    return Entry(
        message=message,
        version=version,
        json=fields["json"],
        data=_hex(_required(fields, "hex", str, "a string"), '"hex"'),
        unknown_tags=tuple(sorted(_unknown_tag(pair) for pair in unknown_tags)),
    )


def _required(fields: dict[str, Any], name: str, type_: type, what: str) -> Any:
    if name not in fields:
        raise BadLine(f'"{name}" is missing')
    value = fields[name]
    if type(value) is not type_:
        raise BadLine(f'"{name}" must be {what}, not {_shown(value)}')
    return value


def _hex(text: str, name: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise BadLine(f"{name} is not hex: {error}") from None


def _unknown_tag(pair: object) -> tuple[int, bytes]:
    match pair:
        case [int(tag), str(text)] if type(tag) is int and 0 <= tag < 2**32:
            return tag, _hex(text, f'the value of tag {tag} in "unknown_tags"')
    raise BadLine(f'"unknown_tags" must be a list of [tag, hex], not {_shown(pair)}')


def check_entry(entry: Entry) -> list[Difference]:
    try:
        schema = load_schema(entry.message)
    except KeyError:
        return [Difference(field="", what="there is no such message")]
    if entry.version not in schema.versions:
        return [Difference(field="", what=f"there is no such version, only {schema.versions}")]
    return [*_check_decoding(entry), *_check_encoding(entry)]


def _check_decoding(entry: Entry) -> Iterator[Difference]:
    try:
        message = decode(message_class(entry.message), entry.data, entry.version)
    except DecodeError as error:
        yield Difference(field=error.field, what=f"does not decode at byte {error.position}: {error.reason}")
        return
    yield from compare(entry.json, to_json(message, entry.version))
    if message.unknown_tagged_fields != entry.unknown_tags:
        yield Difference(
            field="unknown_tags",
            what=f"decoded {_shown_tags(message.unknown_tagged_fields)}, expected {_shown_tags(entry.unknown_tags)}",
        )
    try:
        again = encode(message, entry.version)
    except EncodeError as error:
        yield Difference(field=error.field, what=f"was decoded, but does not encode: {error.reason}")
        return
    yield from _compare_bytes(entry, again, "what was decoded encodes")


def _check_encoding(entry: Entry) -> Iterator[Difference]:
    try:
        message = from_json(message_class(entry.message), entry.json, entry.version)
        message.unknown_tagged_fields = entry.unknown_tags
        data = encode(message, entry.version)
    except EncodeError as error:
        yield Difference(field=error.field, what=f"the JSON does not encode: {error.reason}")
        return
    yield from _compare_bytes(entry, data, "the JSON encodes")


def compare(expected: Any, found: Any, field: str = "") -> Iterator[Difference]:
    """Every place in which two JSON values differ."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for name in expected | found:
            inner = f"{field}.{name}" if field else name
            if name not in found:
                yield Difference(field=inner, what=f"decoded nothing, expected {_shown(expected[name])}")
            elif name not in expected:
                yield Difference(field=inner, what=f"decoded {_shown(found[name])}, expected nothing")
            else:
                yield from compare(expected[name], found[name], inner)
    elif isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            yield Difference(field=field, what=f"decoded {len(found)} elements, expected {len(expected)}")
        for index, (one, other) in enumerate(zip(expected, found, strict=False)):
            yield from compare(one, other, f"{field}[{index}]")
    elif not _same(expected, found):
        yield Difference(field=field, what=f"decoded {_shown(found)}, expected {_shown(expected)}")


def _same(expected: object, found: object) -> bool:
    # JSON has one type of numbers, and Python takes True for 1.
    if isinstance(expected, bool) or isinstance(found, bool):
        return expected is found
    if isinstance(expected, int | float) and isinstance(found, int | float):
        return expected == found or (math.isnan(expected) and math.isnan(found))
    return type(expected) is type(found) and expected == found


def _compare_bytes(entry: Entry, found: bytes, what: str) -> Iterator[Difference]:
    expected = entry.data
    if found == expected:
        return
    shorter = min(len(expected), len(found))
    position = next((at for at in range(shorter) if expected[at] != found[at]), shorter)
    yield Difference(
        field=_field_at(entry, expected if position < len(expected) else found, position),
        what=f"{what} to {len(found)} bytes, expected {len(expected)}; from byte {position} on "
        f"{_shown_bytes(found[position:])}, expected {_shown_bytes(expected[position:])}",
    )


def _field_at(entry: Entry, data: bytes, position: int) -> str:
    """The field that a byte belongs to: the one in which the message breaks off if it ends before that byte."""
    try:
        decode(message_class(entry.message), data[:position], entry.version)
    except DecodeError as error:
        return error.field
    return ""


def _shown(value: object) -> str:
    return _shortened(json.dumps(value, ensure_ascii=False))


def _shown_bytes(data: bytes) -> str:
    if not data:
        return "nothing"
    return data.hex() if len(data) <= SHOWN_BYTES else data[:SHOWN_BYTES].hex() + "…"


def _shown_tags(tags: TaggedFields) -> str:
    return _shown([[tag, value.hex()] for tag, value in tags])


def _shortened(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"
