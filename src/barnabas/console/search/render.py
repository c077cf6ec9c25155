"""Records as JSON for pages and scripts. Long keys and values are cut, and the result says so."""

from __future__ import annotations

import base64
import codecs
from collections.abc import Mapping
from typing import Any, Final

from barnabas.console.search.internal_topics import decoded
from barnabas.console.search.masking import Mask
from barnabas.records.record import Record

PREVIEW_BYTES: Final = 16 << 10
HEADERS_MAX: Final = 200
HEADER_PREVIEW_BYTES: Final = 2 << 10
# Bytes that texts do not have, besides tab, line feed and carriage return.
_CONTROL: Final = bytes(each for each in range(32) if each not in (9, 10, 13))


def render_bytes(data: bytes | None, limit_bytes: int = PREVIEW_BYTES) -> dict[str, Any] | None:
    """`text` if the bytes are text in UTF-8, else `base64`; `size` is the whole size."""
    if data is None:
        return None
    shown = data[:limit_bytes]
    rendered: dict[str, Any] = {"size": len(data)}
    if len(shown) < len(data):
        rendered["truncated"] = True
    text = _as_text(shown, is_whole=len(shown) == len(data))
    if text is None:
        rendered["base64"] = base64.b64encode(shown).decode()
    else:
        rendered["text"] = text
    return rendered


def _as_text(data: bytes, *, is_whole: bool) -> str | None:
    if len(data.translate(None, _CONTROL)) != len(data):
        return None
    try:
        # A cut may be inside a character.
        return codecs.getincrementaldecoder("utf-8")("strict").decode(data, is_whole)
    except UnicodeDecodeError:
        return None


def render_record(
    topic: str,
    partition: int,
    record: Record,
    *,
    limit_bytes: int = PREVIEW_BYTES,
    mask: Mask | None = None,
) -> dict[str, Any]:
    key, value, headers = record.key, record.value, record.headers
    if mask is not None:
        key, value, headers = mask.apply(key, value, headers)
    rendered: dict[str, Any] = {
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "key": render_bytes(key, limit_bytes),
        "value": render_bytes(value, limit_bytes),
        "headers": [
            {"name": name, "value": render_bytes(each, max(HEADER_PREVIEW_BYTES, limit_bytes // 8))}
            for name, each in headers[:HEADERS_MAX]
        ],
    }
    if len(headers) > HEADERS_MAX:
        rendered["headers_omitted"] = len(headers) - HEADERS_MAX
    if mask is not None:
        rendered["masked"] = True
    found = decoded(topic, key, value)
    if found is not None:
        rendered["decoded"] = found
    return rendered


def plain_text(rendered: Mapping[str, Any] | None) -> str | None:
    """One column of a CSV file."""
    if rendered is None:
        return None
    decoded_json: str | None = rendered.get("schema", {}).get("json")
    if decoded_json is not None:
        return decoded_json
    text: str = rendered["text"] if "text" in rendered else "base64:" + rendered["base64"]
    return text
