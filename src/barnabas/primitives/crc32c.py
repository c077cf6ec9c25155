"""CRC-32C (Castagnoli), the checksum of record batches.

The library takes any buffer and lets other threads run while it computes. Its package loads a command line and the
metadata of everything installed, 70 ms in all, so the extension module inside it is loaded by itself.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import PathFinder
from typing import Final

Checksum = Callable[..., int]


def _load() -> Checksum:
    package = importlib.util.find_spec("crc32c")
    if package is not None and package.submodule_search_locations:
        spec = PathFinder.find_spec("_crc32c", list(package.submodule_search_locations))
        if spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module.crc32c  # type: ignore[no-any-return]
    # By name: where the package is compiled, in an environment of its own, crc32c may not be installed.
    from_package: Checksum = import_module("crc32c").crc32c
    return from_package


crc32c: Final = _load()
"""crc32c(data, value=0): the checksum of a buffer, or of a buffer that continues what `value` is the checksum of."""
