"""What Kafka's DumpLogSegments prints of a file, held against our dump of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from barnabas.log.file_system import DiskFileSystem
from barnabas.log.tools.dump import dump_file

# Kafka's name -> ours, where Kafka's own is not just spelled otherwise.
NAMES = {
    "size": "size_bytes",
    "compresscodec": "compression",
    "isvalid": "is_valid",
    "endTxnMarker": "control",
    "offsetDelta": "offset_delta",
}
# What a line has besides: sizes instead of content, and the checksum of a message inside a wrapper.
TOLD_OTHERWISE = {"keySize", "valueSize", "headerKeys", "isValid"}
EMPTY = {"OptionalLong.empty": None, "true": True, "false": False}


def parse(line: str) -> dict[str, Any]:
    """`| offset: 5 CreateTime: 170 headerKeys: [a,b]` as a row of ours."""
    row: dict[str, Any] = {}
    # Control records of the metadata quorum are shown as JSON at the end.
    line = re.sub(r" \w+: \{.*", "", line)
    body, _, header_names = line.removeprefix("| ").partition(" headerKeys: ")
    if header_names:
        names, _, rest = header_names.partition("]")
        row["header_names"] = names.removeprefix("[")
        body += rest
    for name, value in re.findall(r"(\w+): (\S+)", body):
        if name in ("CreateTime", "LogAppendTime", "NoTimestampType"):
            row["timestamp_type"], row["time"] = name, int(value)
            continue
        number = re.fullmatch(r"(?:OptionalLong\[)?(-?\d+)[\]}]?", value)
        key = name if name in TOLD_OTHERWISE else NAMES.get(name, re.sub("([A-Z])", r"_\1", name).lower())
        row[key] = int(number[1]) if number else EMPTY.get(value, value)
    return row


def ours(row: dict[str, Any]) -> dict[str, Any]:
    """Our row with what Kafka's line tells of keys, values, headers and times."""
    told = dict(row)
    told["time"] = told.get("timestamp", told.get("max_timestamp"))
    if "headers" in row:
        for name in ("key", "value"):
            told[f"{name}Size"] = -1 if row[name] is None else len(row[name]) // 2
        told["header_names"] = ",".join(name for name, _ in row["headers"])
    return told


def split(lines: Iterable[str]) -> dict[str, list[str]]:
    """Lines of the tool by file, without those files on which it failed."""
    files: dict[str, list[str]] = {}
    name = ""
    for line in lines:
        if line.startswith("Dumping "):
            name = line.removeprefix("Dumping ")
            files[name] = []
        elif line.startswith("(the tool failed"):
            files.pop(name)
        elif name in files:
            files[name].append(line)
    return files


def compare(path: Path, lines: Iterable[str]) -> int:
    """Asserts that both say the same of a file; of how many rows."""
    told = [parse(line) for line in lines if re.match(r"(\| )?\w+: ", line)]
    rows = [ours(row) for row in dump_file(DiskFileSystem(), str(path), with_records=True)]
    if rows and "fault" in rows[-1] and len(rows) == len(told) + 1:
        # Where a file ceases to make sense, Kafka's tool falls silent.
        del rows[-1]
    if told and not rows and not path.read_bytes().rstrip(b"\0"):
        # Of a preallocated file without entries Kafka's tool shows the first slot.
        del told[0]
    assert len(told) == len(rows), path
    for kafka_row, row in zip(told, rows, strict=True):
        if "isValid" in kafka_row:
            # Of a message inside a wrapper Kafka's tool shows a checksum, of a batch before v2 fewer fields.
            del kafka_row["isValid"], kafka_row["crc"]
        elif row.get("magic", 2) < 2:
            kafka_row["last_offset"] = kafka_row.pop("offset")
        if path.suffix == ".snapshot":
            # The timestamp of the last batch is that of the producer: the file has only one.
            kafka_row["time"] = row["time"]
            kafka_row.pop("timestamp", None)
        assert {name: row.get(name) for name in kafka_row} == kafka_row, path
    return len(rows)
