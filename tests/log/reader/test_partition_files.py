"""Directories that Apache Kafka has written, read without a broker."""

from __future__ import annotations

import pytest

from barnabas.log.reader.partition_files import find_partitions, first_offset_at
from tests.log.golden.images import ALL, Image


@pytest.mark.parametrize("name", ALL)
def test_times_lead_to_the_offsets_that_kafka_answers(images: dict[str, Image], name: str) -> None:
    image = images[name]
    checked = 0
    found = {files.partition: files for files in find_partitions([str(image.data)], lambda _: True)}
    for partition, told in image.partitions().items():
        for time_ms, answer in told.get("offsets_for_times", []):
            if isinstance(answer, str):
                # Messages of v0 have no times.
                continue
            expected = answer[0]
            if expected < 0:
                # Kafka looks no further than one segment, whose records compaction may have left without.
                later = [record[0] for record in told["read_uncommitted"] if record[1] >= time_ms]
                expected = min(later, default=None)
            assert first_offset_at(found[partition], time_ms) == expected, (partition, time_ms)
            checked += 1
    assert checked > 100
