"""The golden corpus: messages as Apache Kafka 3.9 and 4.3 wrote them, in bytes and in their JSON form."""

from __future__ import annotations

import functools
import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from barnabas.protocol.message import TaggedFields

CORPUS_PATH: Final = Path(__file__).parent.parent / "data" / "protocol" / "golden-messages.jsonl.gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenMessage:
    message: str
    version: int
    json: dict[str, Any]
    data: bytes
    unknown_tagged_fields: TaggedFields

    def __str__(self) -> str:
        return f"{self.message} v{self.version}"


@functools.cache
def golden_messages() -> list[GoldenMessage]:
    with gzip.open(CORPUS_PATH, "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return [
        GoldenMessage(
            message=line["message"],
            version=line["version"],
            json=line["json"],
            data=bytes.fromhex(line["hex"]),
            unknown_tagged_fields=tuple(
                (tag, bytes.fromhex(data)) for tag, data in line.get("unknown_tags", ())
            ),
        )
        for line in lines
    ]
