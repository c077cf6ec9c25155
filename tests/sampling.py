"""How much a test tries: a little in a run without slow tests, as in `make check`, and all otherwise."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

# The root conftest sets it before any test module is loaded.
is_fast_run = False


def cases(count: int, *, fast: int) -> int:
    """The number of cases of a test that is in both runs."""
    return fast if is_fast_run else count


def sample(values: Iterable[Any], *, fast: int) -> list[Any]:
    """Parameters of a test; all but the first ones are slow."""
    return [
        pytest.param(value, marks=() if number < fast else pytest.mark.slow, id=str(value))
        for number, value in enumerate(values)
    ]


def seeds(count: int, *, fast: int) -> list[Any]:
    return sample(range(count), fast=fast)
