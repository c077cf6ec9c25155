from __future__ import annotations

import pytest

from tests.log.golden.images import Image


@pytest.fixture
def image(images: dict[str, Image], request: pytest.FixtureRequest) -> Image:
    """The image that an indirect parameter names."""
    return images[request.param]
