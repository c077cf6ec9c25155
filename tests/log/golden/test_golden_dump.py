"""`dump` says of every file what Kafka's DumpLogSegments says, and `verify` finds what is damaged and nothing else."""

from __future__ import annotations

import re
from typing import Any

import pytest

from barnabas.log.dump import dump_file
from barnabas.log.file_system import DiskFileSystem
from barnabas.log.verify import log_bytes, verify_directory
from tests.log.golden.images import ALL, CLEAN, UNCLEAN, Image

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


@pytest.mark.parametrize("image", ALL, indirect=True)
@pytest.mark.parametrize("kind", ["log", "index", "timeindex", "txnindex", "snapshot"])
def test_dump_agrees_with_kafka(image: Image, kind: str) -> None:
    fs = DiskFileSystem()
    compared = 0
    for file, lines in image.dumps(kind).items():
        told = [parse(line) for line in lines if re.match(r"(\| )?\w+: ", line)]
        rows = [ours(row) for row in dump_file(fs, str(image.data / file), with_records=True)]
        if rows and "fault" in rows[-1] and len(rows) == len(told) + 1:
            # Where a file ceases to make sense, Kafka's tool falls silent.
            del rows[-1]
        if told and not rows and not image.data.joinpath(file).read_bytes().rstrip(b"\0"):
            # Of a preallocated file without entries Kafka's tool shows the first slot.
            del told[0]
        assert len(told) == len(rows), file
        for kafka_row, row in zip(told, rows, strict=True):
            if "isValid" in kafka_row:
                # Of a message inside a wrapper Kafka's tool shows a checksum, of a batch before v2 fewer fields.
                del kafka_row["isValid"], kafka_row["crc"]
            elif row.get("magic", 2) < 2:
                kafka_row["last_offset"] = kafka_row.pop("offset")
            if kind == "snapshot":
                # The timestamp of the last batch is that of the producer: the file has only one.
                kafka_row["time"] = row["time"]
                kafka_row.pop("timestamp", None)
            assert {name: row.get(name) for name in kafka_row} == kafka_row, file
            compared += 1
    assert compared


@pytest.mark.parametrize("image", CLEAN, indirect=True)
def test_clean_images_have_no_faults(image: Image) -> None:
    walked: list[int] = []
    assert list(verify_directory(DiskFileSystem(), str(image.data), walked.append)) == []
    assert sum(walked) == log_bytes(DiskFileSystem(), str(image.data)) > 100_000


@pytest.mark.parametrize("image", UNCLEAN, indirect=True)
def test_each_damage_is_named(image: Image) -> None:
    walked: list[int] = []
    faults = list(verify_directory(DiskFileSystem(), str(image.data), walked.append))
    assert sum(walked) == log_bytes(DiskFileSystem(), str(image.data))
    found = {(fault.path.removeprefix(f"{image.data}/"), fault.position) for fault in faults}
    damaged = set()
    for damage in image.manifest["damage"]:
        file, at = damage["file"], damage.get("last_batch_at", 0)
        match damage["what"]:
            case "truncate" | "truncate-header" | "bitflip":
                damaged.add((file, at))
            case "garbage":
                damaged.add((file, at + damage["last_batch_len"]))
            case "drop-index":
                stem = file.removesuffix(".log")
                damaged |= {(f"{stem}.index", 0), (f"{stem}.timeindex", 0)}
            case "bad-index" | "bad-timeindex":
                damaged.add((file, 0))
    assert damaged <= found
    # Besides, only indexes that lead to what is no longer there.
    others = {file for file, _ in found - damaged}
    assert {file.split("/")[0] for file in others} <= {file.split("/")[0] for file, _ in damaged}
    assert not any(file.endswith(".log") for file in others)
