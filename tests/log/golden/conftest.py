from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest

from tests.log.golden.images import ARCHIVE, Image


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Image]:
    """All images, for reading: a test that writes copies what it writes to."""
    folder = tmp_path_factory.mktemp("kafka-logdirs")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    roots = sorted(path.parent for path in folder.glob("*/*/manifest.json"))
    return {root.name: Image(root) for root in roots}


@pytest.fixture
def image(images: dict[str, Image], request: pytest.FixtureRequest) -> Image:
    """The image that an indirect parameter names."""
    return images[request.param]


@pytest.fixture
def image_copy(images: dict[str, Image], request: pytest.FixtureRequest, tmp_path: Path) -> Image:
    """A copy of the image that an indirect parameter names, to be changed at will."""
    source = images[request.param]
    shutil.copytree(source.folder, tmp_path / source.name)
    return Image(tmp_path / source.name)
