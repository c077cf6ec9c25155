"""Records as text: lines to produce from, and what `barnabas consume` prints."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypedDict

import click

from barnabas.cli.shared.output import time_text

if TYPE_CHECKING:
    from barnabas.client.consumer.record import ConsumerRecord

INT64_MAX: Final = 2**63 - 1
FIELDS: Final = ("topic", "partition", "offset", "timestamp", "time", "key", "value", "headers", "size")
_ESCAPES: Final = {"\\n": "\n", "\\t": "\t", "\\0": "\0"}


class Outgoing(TypedDict, total=False):
    """A record as `send_many` takes it."""

    value: bytes | None
    key: bytes | None
    partition: int
    timestamp_ms: int
    headers: list[tuple[str, bytes | None]]


def formatter(form: str, separator: str, null: str) -> Callable[[ConsumerRecord], bytes]:
    """The function that formats a record as a line: `value`, `key-value`, `json`, or a template with names."""
    as_null = null.encode()
    between = separator.encode()
    if form == "value":
        return lambda record: (as_null if record.value is None else record.value) + b"\n"
    if form == "key-value":
        return lambda record: (
            (as_null if record.key is None else record.key)
            + between
            + (as_null if record.value is None else record.value)
            + b"\n"
        )
    if form == "json":
        return lambda record: (
            json.dumps(json_row(record), ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        )
    return _template(form, null)


def _template(form: str, null: str) -> Callable[[ConsumerRecord], bytes]:
    if "{" not in form:
        raise click.BadParameter(
            f"{form!r} is neither value, key-value nor json, and has no name in braces, such as '{{offset}} {{value}}'",
            param_hint="--format",
        )
    for escape, character in _ESCAPES.items():
        form = form.replace(escape, character)
    line = form + "\n"
    try:
        line.format(**dict.fromkeys(FIELDS, ""))
    except (KeyError, ValueError, IndexError) as error:
        names = ", ".join(FIELDS)
        raise click.BadParameter(
            f"{form!r}: {str(error) or 'it cannot be read'}; there are {names}", param_hint="--format"
        ) from None

    def text(data: bytes | None) -> str:
        return null if data is None else data.decode(errors="backslashreplace")

    def show(record: ConsumerRecord) -> bytes:
        return line.format(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp=record.timestamp_ms,
            time=time_text(record.timestamp_ms) if record.timestamp_ms >= 0 else "-",
            key=text(record.key),
            value=text(record.value),
            headers=",".join(f"{name}={text(value)}" for name, value in record.headers),
            size=len(record.value or b""),
        ).encode()

    return show


def json_row(record: ConsumerRecord) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": to_json(record.key),
        "value": to_json(record.value),
        "headers": [[name, to_json(value)] for name, value in record.headers],
    }


def to_json(data: bytes | None) -> str | dict[str, str] | None:
    """Text, or an object with base64 for other bytes."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def from_json(value: object) -> bytes | None:
    """The bytes that `to_json` has shown; any other JSON is its own text."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"}:
        return base64.b64decode(value["base64"], validate=True)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


class LineReader:
    """Parses lines to records: the value alone, key and value with a separator, or a JSON object."""

    def __init__(self, form: str, separator: str | None, null: str | None, common: Outgoing) -> None:
        self._form = form
        self._separator = None if separator is None else separator.encode()
        self._null = None if null is None else null.encode()
        self._common = common

    def read(self, line: bytes) -> Outgoing:
        """Raises ValueError that names the fault of the line."""
        if self._form == "json":
            return self._read_json(line)
        record = Outgoing(**self._common)
        if self._separator is None:
            record["value"] = self._or_null(line)
            return record
        key, found, value = line.partition(self._separator)
        if not found:
            raise ValueError(f"there is no {self._separator.decode()!r} between key and value")
        record["key"] = self._or_null(key)
        record["value"] = self._or_null(value)
        return record

    def _or_null(self, text: bytes) -> bytes | None:
        return None if text == self._null else text

    def _read_json(self, line: bytes) -> Outgoing:
        try:
            given = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"this is not JSON: {error}") from None
        if not isinstance(given, dict) or "value" not in given:
            raise ValueError(
                'a record is {"value": …}, with "key", "headers", "partition" and "timestamp_ms" if wanted'
            )
        try:
            record = Outgoing(**self._common)
            record["value"] = from_json(given["value"])
            if "key" not in self._common:
                record["key"] = from_json(given.get("key"))
            headers = given.get("headers") or []
            pairs = headers.items() if isinstance(headers, dict) else headers
            record["headers"] = [
                *self._common.get("headers", []),
                *((str(name), from_json(value)) for name, value in pairs),
            ]
            for field in ("partition", "timestamp_ms"):
                number = given.get(field)
                if number is not None and field not in self._common:
                    if not isinstance(number, int) or isinstance(number, bool):
                        raise ValueError(f"{field} is a whole number, not {number!r}")
                    if not 0 <= number <= INT64_MAX:
                        raise ValueError(f"{field} is from 0 to {INT64_MAX}, not {number}")
                    record[field] = number
        except (TypeError, binascii.Error) as error:
            raise ValueError(f"this is not a record: {error}") from None
        return record
