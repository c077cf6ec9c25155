"""Builds a wheel of the package in the current directory, as pip does, but lets the build show its progress.

python build_wheel.py DIRECTORY      the wheel goes there
"""

from __future__ import annotations

import os
import sys

from setuptools import build_meta  # type: ignore[import-untyped]


def main() -> None:
    build_meta.build_wheel(sys.argv[1])
    sys.stdout.flush()
    sys.stderr.flush()
    # Python would free the data of mypy object by object, which takes some seconds.
    os._exit(0)


if __name__ == "__main__":
    main()
