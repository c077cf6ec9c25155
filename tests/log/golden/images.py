"""The images: where they are, and what Kafka says of them.

Each is a broker's log directory (`data`), a manifest of what Kafka served from it and what it left after it had opened
and stopped on it, and the output of Kafka's own DumpLogSegments for every file.
"""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from barnabas.model import TopicPartition

# Another archive of the same kind may be tried by this variable.
ARCHIVE: Final = Path(
    os.environ.get(
        "BARNABAS_GOLDEN_LOGDIRS", Path(__file__).parents[2] / "data" / "log" / "kafka-logdirs.tar.gz"
    )
)


def _image_names() -> list[str]:
    with tarfile.open(ARCHIVE) as archive:
        return sorted(
            Path(name).parent.name for name in archive.getnames() if name.endswith("/manifest.json")
        )


ALL: Final = _image_names()
UNCLEAN: Final = [name for name in ALL if name.endswith("-unclean")]
CLEAN: Final = [name for name in ALL if name not in UNCLEAN]
# For samples: with these two there are both ways of keeping metadata, and both ways to end.
VARIED: Final = sorted(ALL, key=lambda name: name not in ("k391-zk", "k431-kraft-unclean"))


class Image:
    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self.folder = folder
        self.data = folder / "data"

    @cached_property
    def manifest(self) -> dict[str, Any]:
        manifest: dict[str, Any] = json.loads((self.folder / "manifest.json").read_text())
        return manifest

    @property
    def read_at_ms(self) -> int:
        at_ms: int = self.manifest["read_at_ms"]
        return at_ms

    @property
    def is_kraft(self) -> bool:
        return bool(self.manifest["mode"] == "kraft")

    def partitions(self) -> dict[TopicPartition, dict[str, Any]]:
        return {
            TopicPartition(topic, int(partition)): content
            for topic, entry in self.manifest["topics"].items()
            for partition, content in entry["partitions"].items()
        }


def extract(folder: Path) -> dict[str, Image]:
    """All images, by name, in a folder of their own."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return {path.parent.name: Image(path.parent) for path in sorted(folder.glob("*/*/manifest.json"))}


def fingerprint(path: Path) -> list[object]:
    return fingerprint_of(path.read_bytes())


def fingerprint_of(data: bytes) -> list[object]:
    """A file as manifests list it: its size, and the start of its SHA-256."""
    return [len(data), hashlib.sha256(data).hexdigest()[:16]]
