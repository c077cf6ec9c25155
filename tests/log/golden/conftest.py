from __future__ import annotations

import tarfile

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
