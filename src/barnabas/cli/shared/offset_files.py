"""Offsets of partitions in files, as Apache Kafka's tools read and write them.

`kafka-consumer-groups` has lines of CSV, `topic,partition,offset`, or `group,topic,partition,offset` if there are
several groups. `kafka-delete-records` has JSON:

    {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "offset": 1200}]}
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.shared.output import fail

if TYPE_CHECKING:
    from barnabas.model import TopicPartition

FILE_BYTES_MAX: Final = 64 << 20
JSON_FORM: Final = '{"partitions": [{"topic": "orders", "partition": 0, "offset": 1200}]}'


def read_text(file: str) -> str:
    """A file as text; `-` is standard input."""
    if file == "-":
        data = sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
    else:
        with open(file, "rb") as source:
            data = source.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        fail(f"{_name(file)}: more than {FILE_BYTES_MAX} bytes, too large for a file of offsets")
    return data.decode("utf-8-sig", errors="replace")


def read_offsets_csv(file: str, group: str) -> dict[TopicPartition, int]:
    """The offsets of the group; ignores lines that name another group."""
    offsets: dict[TopicPartition, int] = {}
    for number, fields in enumerate(csv.reader(read_text(file).splitlines()), start=1):
        where = f"{_name(file)}, line {number}"
        if not fields:
            continue
        if len(fields) not in (3, 4):
            fail(f"{where}: {','.join(fields)!r} is not topic,partition,offset")
        if len(fields) == 4 and fields[0].strip() != group:
            continue
        _add(offsets, where, *(field.strip() for field in fields[-3:]))
    if not offsets:
        fail(f"{_name(file)} has no offsets of {group}")
    return offsets


def read_offsets_json(file: str) -> dict[TopicPartition, int]:
    try:
        content = json.loads(read_text(file))
    except (ValueError, RecursionError) as error:
        fail(f"{_name(file)}: this is not JSON: {error}")
    rows = content.get("partitions") if isinstance(content, dict) else None
    if not isinstance(rows, list) or not rows:
        fail(f"{_name(file)}: this is not {JSON_FORM}")
    if content.get("version", 1) != 1:
        fail(f"{_name(file)}: unknown version {content['version']!r}; the only version is 1")
    offsets: dict[TopicPartition, int] = {}
    for number, row in enumerate(rows, start=1):
        where = f"{_name(file)}, partition {number} of the list"
        if not isinstance(row, dict) or not {"topic", "partition", "offset"} <= row.keys():
            fail(f'{where}: this is not {{"topic": …, "partition": …, "offset": …}}')
        _add(offsets, where, row["topic"], row["partition"], row["offset"])
    return offsets


def _add(offsets: dict[TopicPartition, int], where: str, topic: Any, partition: Any, offset: Any) -> None:
    from barnabas.model import TopicPartition

    try:
        key, value = TopicPartition(str(topic), int(str(partition))), int(str(offset))
    except ValueError:
        fail(f"{where}: the partition {partition!r} and the offset {offset!r} must be whole numbers")
    if key in offsets:
        fail(f"{where}: {key} is listed twice")
    offsets[key] = value


def write_offsets_csv(offsets: Mapping[TopicPartition, int]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    for partition, offset in sorted(offsets.items()):
        writer.writerow((partition.topic, partition.partition, offset))


def _name(file: str) -> str:
    return "standard input" if file == "-" else file
