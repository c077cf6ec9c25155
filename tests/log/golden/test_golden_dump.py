"""`dump` says of every file what Kafka's DumpLogSegments says, and `verify` finds what is damaged and nothing else."""

from __future__ import annotations

import pytest

from barnabas.log.file_system import DiskFileSystem
from barnabas.log.tools.verify import log_bytes, verify_directory
from tests.log.golden.dumps import compare, split
from tests.log.golden.images import ALL, CLEAN, UNCLEAN, Image
from tests.sampling import sample


@pytest.mark.parametrize("image", sample(ALL, fast=2), indirect=True)
@pytest.mark.parametrize("kind", ["log", "index", "timeindex", "txnindex", "snapshot"])
def test_dump_agrees_with_kafka(image: Image, kind: str) -> None:
    lines = (image.folder / f"dump-{kind}.txt").read_text().splitlines()
    assert sum(compare(image.data / file, told) for file, told in split(lines).items())


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
