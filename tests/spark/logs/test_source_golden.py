"""Directories that Apache Kafka has written, read without a broker: the rows are what Kafka served from them."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from barnabas.model import TopicPartition
from barnabas.records.layout import TimestampType
from tests.log.golden.images import UNCLEAN, VARIED, Image
from tests.sampling import sample
from tests.spark.log_reading import Row, read_rows

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BYTES_SHOWN = 200


def shown(data: bytes | None) -> object:
    """Bytes as the manifest has them: hex, or length and digest of what is long."""
    if data is None or len(data) <= BYTES_SHOWN:
        return None if data is None else data.hex()
    return {"len": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def milliseconds(time: datetime) -> int:
    return (time - EPOCH) // timedelta(milliseconds=1)


def as_told(rows: list[Row]) -> dict[TopicPartition, list[list[Any]]]:
    """Rows as records of a manifest, by partition."""
    found: dict[TopicPartition, list[list[Any]]] = defaultdict(list)
    for row in rows:
        found[TopicPartition(row["topic"], row["partition"])].append(
            [
                row["offset"],
                milliseconds(row["timestamp"]),
                TimestampType(row["timestampType"]).label,
                shown(row["key"]),
                shown(row["value"]),
                [[header["key"], shown(header["value"])] for header in row["headers"] or []],
            ]
        )
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", sample(VARIED, fast=1))
def test_rows_are_what_kafka_serves_in_both_isolation_levels(images: dict[str, Image], name: str) -> None:
    image = images[name]
    options = {
        "topicPattern": ".*",
        "includeHeaders": True,
        "onCorruption": "skip" if name in UNCLEAN else "fail",
        # So small that everything is split that can be.
        "splitBytes": 4096,
    }
    uncommitted = as_told(read_rows(image.data, **options))
    committed = as_told(read_rows(image.data, isolation="read_committed", **options))
    count = 0
    for partition, told in image.partitions().items():
        expected = [record[:6] for record in told["read_uncommitted"]]
        assert uncommitted.get(partition, []) == expected, partition
        offsets = told["read_committed_offsets"]
        if offsets != "same":
            expected = [record for record in expected if record[0] in set(offsets)]
            assert len(expected) == len(offsets), partition
        assert committed.get(partition, []) == expected, partition
        count += len(expected)
    assert count > 1000
