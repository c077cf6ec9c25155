from __future__ import annotations

import pytest

from tests.log.golden.images import Image, extract


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Image]:
    """All images, for reading: a test that writes copies what it writes to."""
    return extract(tmp_path_factory.mktemp("kafka-logdirs"))


@pytest.fixture
def image(images: dict[str, Image], request: pytest.FixtureRequest) -> Image:
    """The image that an indirect parameter names."""
    return images[request.param]
