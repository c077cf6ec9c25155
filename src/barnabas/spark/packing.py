"""An archive of what Spark's workers import, for clusters on which only Spark and Python are installed.

    barnabas pipeline pack workers.tar.gz
    barnabas pipeline run orders.toml --master spark://host:7077 --workers workers.tar.gz

The archive has the installed files of barnabas and of the packages that it requires with the extra `spark`, except
PySpark, which is a part of Spark. They go into one folder, which Spark unpacks in the working directory of every
executor and which is on the module path of its Python workers. Compiled packages fit one version of Python, so that the
workers need the same one as the driver: it is started by its name, such as `python3.11`.
"""

from __future__ import annotations

import os
import re
import sys
import tarfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePath
from typing import Final

import barnabas
from barnabas.errors import InvalidConfig

ROOT: Final = "barnabas"
EXTRA: Final = 'extra == "spark"'
# Spark brings both along.
NOT_PACKED: Final = frozenset({"pyspark", "py4j"})
# Parts of packages that no worker imports.
NOT_IMPORTED: Final = frozenset({"__pycache__", "tests", "include"})
MODES: Final = {".tar": "w", ".tar.gz": "w:gz", ".tgz": "w:gz"}
# Executors start sooner if the archive is written and unpacked quickly; its size counts less.
GZIP_LEVEL: Final = 3
PACKAGES_MAX: Final = 200
# The folder on a worker.
FOLDER: Final = "barnabas-workers"

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def pack(archive: Path, *, without: Iterable[str] = ()) -> dict[str, str]:
    """Writes the archive; returns the packages that are in it, with their versions."""
    mode = next((mode for end, mode in MODES.items() if archive.name.endswith(end)), None)
    if mode is None:
        raise InvalidConfig(f"{archive} is not the name of an archive; use {', '.join(MODES)}")
    found = _distributions({*NOT_PACKED, *map(_normal, without)})
    unfinished = archive.with_name(f".{archive.name}.{os.getpid()}")
    try:
        options = {"compresslevel": GZIP_LEVEL} if mode.endswith("gz") else {}
        with tarfile.open(unfinished, mode, **options) as tar:  # type: ignore[call-overload]
            for each in found.values():
                for path, name in _files(each):
                    tar.add(path, name, recursive=False)
        unfinished.replace(archive)
    finally:
        unfinished.unlink(missing_ok=True)
    return {name: each.version for name, each in found.items()}


def worker_settings(archive: str | os.PathLike[str]) -> dict[str, str]:
    """The Spark settings that bring the archive to the workers."""
    path = Path(archive).absolute()
    if not path.is_file():
        raise InvalidConfig(f"there is no {path}: barnabas pipeline pack {archive} writes it")
    return {"spark.archives": f"{path}#{FOLDER}", "spark.executorEnv.PYTHONPATH": FOLDER}


def worker_python() -> str:
    """The name under which workers find a Python of this version; here it is the driver's own."""
    folder = os.path.dirname(sys.executable)
    name = "python{}.{}".format(*sys.version_info[:2])
    if not os.path.exists(os.path.join(folder, name)):
        raise InvalidConfig(
            f"there is no {name} in {folder}, and workers are to find theirs by this name: set PYSPARK_PYTHON"
        )
    paths = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join([folder, *(each for each in paths if each != folder)])
    return name


def _distributions(left_out: set[str]) -> dict[str, Distribution]:
    """The packages by name, the closure of what barnabas requires."""
    found: dict[str, Distribution] = {}
    names = [ROOT]
    while names and len(found) < PACKAGES_MAX:
        name = names.pop()
        if name in found or name in left_out:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            if name == ROOT:
                raise InvalidConfig("barnabas is not installed here: pip install 'barnabas[spark]'") from None
            # A requirement of another system or Python.
            continue
        names += _required(found[name], is_root=name == ROOT)
    return dict(sorted(found.items()))


def _required(package: Distribution, *, is_root: bool) -> Iterator[str]:
    for line in package.requires or ():
        requirement, _, marker = line.partition(";")
        if "extra" in marker and not (is_root and EXTRA in marker.replace("'", '"')):
            continue
        matched = _NAME.match(requirement.strip())
        if matched is not None:
            yield _normal(matched[0])


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _files(package: Distribution) -> Iterator[tuple[str, str]]:
    """The installed files, and their names in the archive."""
    listed = [each for each in package.files or () if not each.is_absolute() and ".." not in each.parts]
    own = Path(barnabas.__file__).parent
    if _normal(package.name) == ROOT and not any(
        Path(str(package.locate_file(each))) == own / "__init__.py" for each in listed
    ):
        # It runs from a folder of sources, not from the package that is installed.
        for path in sorted(own.rglob("*")):
            if path.is_file() and _is_imported(path.relative_to(own)):
                yield str(path), f"{ROOT}/{path.relative_to(own)}"
        return
    for each in listed:
        path = Path(str(package.locate_file(each)))
        if _is_imported(each) and path.is_file():
            yield str(path), str(each)


def _is_imported(path: PurePath) -> bool:
    return not NOT_IMPORTED.intersection(path.parts[:-1])
