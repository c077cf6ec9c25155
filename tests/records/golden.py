"""Segments that Apache Kafka 3.9.1 and 4.3.1 wrote, with what Kafka itself says of them.

`golden.jsonl.gz` has a line a partition: its segment files, the lines of Kafka's DumpLogSegments for each, and the
records that Kafka's consumer read from the partition.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from barnabas.records.header import BatchHeader, iterate_headers

_FILE = Path(__file__).parent.parent / "data" / "records" / "golden.jsonl.gz"
_SHOWN_BYTES_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenSegment:
    name: str
    data: bytes
    dump: list[str]

    def batches(self) -> Iterator[tuple[int, BatchHeader]]:
        position = 0
        for header in iterate_headers(self.data):
            yield position, header
            position += header.size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenPartition:
    name: str
    segments: list[GoldenSegment]
    earliest_offset: int
    # [offset, timestamp, timestamp type, key, value, [[header name, value]], leader epoch], bytes in hex, or as length
    # and digest when there are many; None for a partition that no consumer may read.
    records: list[list[Any]] | None


@cache
def golden_partitions() -> list[GoldenPartition]:
    partitions = []
    for line in gzip.decompress(_FILE.read_bytes()).splitlines():
        partition = json.loads(line)
        name = partition["partition"]
        partitions.append(
            GoldenPartition(
                name=name,
                segments=[
                    GoldenSegment(
                        name=f"{name}/{segment['file']}",
                        data=base64.b64decode(segment["bytes"]),
                        dump=segment["dump"],
                    )
                    for segment in partition["segments"]
                ],
                earliest_offset=partition["earliest"][0] if partition["earliest"] else 0,
                records=partition["records"],
            )
        )
    return partitions


@cache
def golden_segments() -> list[GoldenSegment]:
    return [segment for partition in golden_partitions() for segment in partition.segments]


def shown(value: bytes | None) -> str | dict[str, object] | None:
    """Bytes as the golden records show them."""
    if value is None:
        return None
    if len(value) > _SHOWN_BYTES_MAX:
        return {"len": len(value), "sha256": hashlib.sha256(value).hexdigest()}
    return value.hex()
