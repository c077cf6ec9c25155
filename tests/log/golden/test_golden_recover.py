"""`recover` leaves a directory as a real broker left it: every file byte for byte, but for the exceptions below."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import cache
from itertools import islice, permutations, product
from pathlib import Path

import pytest
from click.testing import CliRunner

from barnabas.cli.offline.log import log as log_command
from barnabas.log.checkpoints import read_epochs, read_offsets
from barnabas.log.file_system import DiskFileSystem
from barnabas.log.names import COPY_SUFFIX, METADATA_TOPIC, SIDE_FILES
from barnabas.log.producers.entry import ProducerEntry
from barnabas.log.producers.snapshot import HEADER, decode_snapshot, encode_snapshot
from barnabas.log.tools.inspection import Inspection
from barnabas.log.tools.verify import verify_directory
from barnabas.primitives.crc32c import crc32c
from tests.log.golden.images import VARIED, Image, fingerprint, fingerprint_of
from tests.sampling import sample

# The copy of an image, by its name.
Recovered = Callable[[str], Image]

FS = DiskFileSystem()
# Which files need not be the same, and what Kafka's rule is for them.
EXCEPTIONS = {
    "__cluster_metadata-0/*": "the metadata quorum writes its own log while a broker runs; no broker serves it",
    "*.snapshot": "Kafka writes producers in the order of a hash map: they are compared by content",
    "*/leader-epoch-checkpoint": "a broker that starts to lead notes its epoch at the end of each log, and an epoch in"
    " which nothing was written is forgotten when a log is opened",
    ".kafka_cleanshutdown": "it holds the epoch that the cluster gave to the broker",
    "recovery-point-offset-checkpoint": "Kafka writes partitions in the order of a hash map",
    "log-start-offset-checkpoint": "Kafka writes partitions in the order of a hash map",
    "cleaner-offset-checkpoint": "a broker's cleaner may run before it is stopped",
    "replication-offset-checkpoint": "high watermarks are those of a broker that leads",
}


def recover(image: Image) -> None:
    result = CliRunner().invoke(
        log_command, ["recover", str(image.data), "--at-ms", str(image.read_at_ms)], catch_exceptions=False
    )
    assert result.exit_code == 0, result.stderr


def expected_files(image: Image) -> dict[str, list[object]]:
    files: dict[str, list[object]] = image.manifest["files_after_broker_opened_and_stopped"]
    return {name: entry for name, entry in files.items() if not name.startswith(METADATA_TOPIC)}


def is_exception(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in EXCEPTIONS)


def present_files(image: Image) -> dict[str, Path]:
    files = {str(path.relative_to(image.data)): path for path in image.data.rglob("*") if path.is_file()}
    # The lock stays, as Kafka's does, which the manifest does not list. What Kafka does not have, it does not look at.
    ours = (SIDE_FILES, COPY_SUFFIX)
    return {
        name: path
        for name, path in files.items()
        if not name.startswith((METADATA_TOPIC, ".lock")) and not name.endswith(ours)
    }


@pytest.fixture(scope="module")
def recovered(images: dict[str, Image], tmp_path_factory: pytest.TempPathFactory) -> Recovered:
    @cache
    def recovered_copy(name: str) -> Image:
        folder = tmp_path_factory.mktemp("recovered") / name
        shutil.copytree(images[name].folder, folder)
        image = Image(folder)
        recover(image)
        return image

    return recovered_copy


@pytest.mark.parametrize("name", sample(VARIED, fast=2))
def test_files_are_those_that_kafka_left(recovered: Recovered, name: str) -> None:
    image = recovered(name)
    expected, present = expected_files(image), present_files(image)
    assert set(present) == set(expected)
    exact = [file for file in expected if not is_exception(file)]
    assert len(exact) > 100
    assert {file: fingerprint(present[file]) for file in exact} == {file: expected[file] for file in exact}


def in_orders_of_java(path: Path) -> Iterator[bytes]:
    """A snapshot of ours, with its producers in the orders that a Java HashMap of some capacity gives them."""
    entries = decode_snapshot(path.read_bytes(), str(path))
    for capacity in (16 << power for power in range(8)):
        buckets: dict[int, list[ProducerEntry]] = defaultdict(list)
        for entry in entries:
            buckets[entry.producer_id & (capacity - 1)].append(entry)
        # Within a bucket they are in the order in which they came.
        for order in product(*(permutations(buckets[bucket]) for bucket in sorted(buckets))):
            packed = b"".join(encode_snapshot([entry])[HEADER.size :] for bucket in order for entry in bucket)
            body = len(entries).to_bytes(4, "big") + packed
            yield b"\0\1" + crc32c(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("name", sample(VARIED, fast=2))
def test_snapshots_have_the_same_content(recovered: Recovered, name: str) -> None:
    image = recovered(name)
    expected, present = expected_files(image), present_files(image)
    snapshots = [file for file in expected if file.endswith(".snapshot")]
    assert len(snapshots) > 20
    for file in snapshots:
        candidates = islice(in_orders_of_java(present[file]), 10_000)
        assert any(fingerprint_of(data) == expected[file] for data in candidates), file


@pytest.mark.parametrize("name", sample(VARIED, fast=2))
def test_recovered_directory_is_whole(recovered: Recovered, name: str) -> None:
    image = recovered(name)
    assert list(verify_directory(FS, str(image.data))) == []
    recovery_points = read_offsets(FS, str(image.data / "recovery-point-offset-checkpoint"))
    inspection = Inspection(FS, str(image.data), image.read_at_ms)
    for partition, told in image.partitions().items():
        assert recovery_points[partition] == told["latest"][0]
        epochs = read_epochs(FS, str(image.data / str(partition) / "leader-epoch-checkpoint"))
        assert all(start_offset <= told["latest"][0] for _, start_offset in epochs)
        log = inspection.open(partition)
        assert (log.log_start_offset, log.log_end_offset) == (told["earliest"][0], told["latest"][0])
    before = {file: fingerprint(path) for file, path in present_files(image).items()}
    recover(image)
    assert {file: fingerprint(path) for file, path in present_files(image).items()} == before
