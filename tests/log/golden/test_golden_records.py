"""`records` and `describe` say of every partition what a real broker served and answered."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from typing import Any

import pytest
from click.testing import CliRunner

from barnabas.cli.offline.log import log as log_command
from barnabas.log.file_system import DiskFileSystem
from barnabas.log.tools.inspection import Inspection, describe
from tests.log.golden.images import ALL, VARIED, Image
from tests.sampling import sample

BYTES_SHOWN = 200


def run(*arguments: object) -> str:
    result = CliRunner().invoke(
        log_command, [str(argument) for argument in arguments], catch_exceptions=False
    )
    assert result.exit_code == 0, result.stderr
    return result.stdout


def shown(text: str | None) -> object:
    """Bytes as the manifest has them: hex, or length and digest of what is long."""
    if text is None or len(text) <= 2 * BYTES_SHOWN:
        return text
    data = bytes.fromhex(text)
    return {"len": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def printed_records(image: Image, *options: str) -> dict[tuple[str, int], list[list[Any]]]:
    found: dict[tuple[str, int], list[list[Any]]] = defaultdict(list)
    for line in run("records", image.data, *options).splitlines():
        record = json.loads(line)
        assert list(record) == [
            "topic",
            "partition",
            "offset",
            "timestamp",
            "timestamp_type",
            "key",
            "value",
            "headers",
        ]
        found[record["topic"], record["partition"]].append(
            [
                record["offset"],
                record["timestamp"],
                record["timestamp_type"],
                shown(record["key"]),
                shown(record["value"]),
                [[name, shown(value)] for name, value in record["headers"]],
            ]
        )
    return found


@pytest.mark.parametrize("image", sample(VARIED, fast=2), indirect=True)
def test_records_agree_in_both_isolation_levels(image: Image) -> None:
    uncommitted = printed_records(image)
    committed = printed_records(image, "--isolation", "read_committed")
    count = 0
    for partition, told in image.partitions().items():
        # The leader epoch, last in the manifest's records, is the batch's: `dump` shows it.
        expected = [record[:6] for record in told["read_uncommitted"]]
        assert uncommitted.pop(partition, []) == expected, partition
        offsets = told["read_committed_offsets"]
        if offsets != "same":
            expected = [record for record in expected if record[0] in set(offsets)]
            assert len(expected) == len(offsets), partition
        assert committed.pop(partition, []) == expected, partition
        count += len(expected)
    assert count > 1000
    assert not uncommitted
    assert not committed


def test_records_of_one_partition(images: dict[str, Image]) -> None:
    image = images[ALL[0]]
    every = printed_records(image)
    topic, partition = max(every, key=lambda key: len(every[key]))
    assert printed_records(image, "--topic", topic, "--partition", str(partition)) == {
        (topic, partition): every[topic, partition]
    }
    assert printed_records(image, "--topic", "no such topic") == {}


def agreed(told: dict[str, Any], described: dict[str, Any]) -> None:
    for name in ("earliest", "latest", "last_stable_offset", "max_timestamp", "offset_for_leader_epoch"):
        assert described[name] == told[name], name
    # Internal topics have neither in the manifest.
    if "offsets_for_times" in told:
        assert described["offsets_for_times"] == told["offsets_for_times"]
    if "producers" in told:
        producers = sorted(told["producers"], key=lambda producer: producer["producerId"])
        assert described["producers"] == producers


@pytest.mark.parametrize("image", sample(VARIED, fast=2), indirect=True)
def test_describe_agrees(image: Image) -> None:
    """With one rule of KRaft: a broker that starts leads in a new epoch, which the manifest shows and no file does."""
    inspection = Inspection(DiskFileSystem(), str(image.data), image.read_at_ms)
    partitions = image.partitions()
    assert inspection.partitions() == sorted(partitions)
    for partition, told in partitions.items():
        log = inspection.open(partition)
        if image.is_kraft:
            log.assign_epoch_start(told["latest"][2])
        else:
            inspection.resume_leadership(log)
        agreed(told, describe(log, [time for time, _ in told.get("offsets_for_times", [])]))


@pytest.mark.parametrize("image", sample([name for name in ALL if "-zk" in name], fast=1), indirect=True)
def test_describe_command(image: Image) -> None:
    times = {time for told in image.partitions().values() for time, _ in told.get("offsets_for_times", [])}
    ordered = sorted(times)
    output = run(
        "describe", image.data, "--json", "--at-ms", image.read_at_ms, "--times", ",".join(map(str, ordered))
    )
    topics = json.loads(output)["topics"]
    for (topic, partition), told in image.partitions().items():
        assert topics[topic]["id"] == image.manifest["topics"][topic]["id"]
        described = topics[topic]["partitions"][str(partition)]
        found = dict(zip(ordered, described["offsets_for_times"], strict=True))
        if "offsets_for_times" in told:
            described["offsets_for_times"] = [found[time] for time, _ in told["offsets_for_times"]]
        agreed(told, described)


@pytest.mark.parametrize("image", sample(VARIED, fast=2), indirect=True)
def test_nothing_is_written(image: Image) -> None:
    before = {path: path.stat().st_mtime_ns for path in image.data.rglob("*")}
    run("records", image.data)
    run("describe", image.data)
    assert {path: path.stat().st_mtime_ns for path in image.data.rglob("*")} == before
