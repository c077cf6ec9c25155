"""What a release consists of: the sdist, wheels that are built from it, and what they contain."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile
from pathlib import Path
from typing import Final

import pytest

from barnabas import __version__
from tools import dist

ROOT: Final = Path(__file__).parents[2]
IS_SOAK: Final = os.environ.get("BARNABAS_SOAK") == "1"
TIMEOUT_S: Final = 300
SLACK: Final = 1.5
PAPERS: Final = {
    *("README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE", "NOTICE"),
    *("setup.py", "pyproject.toml", "MANIFEST.in", "tools/smoke.py"),
}


def package_files() -> set[str]:
    """The files of the package in this directory, by their path below `src`."""
    package = ROOT / "src" / "barnabas"
    return {
        path.relative_to(ROOT / "src").as_posix()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so"
    }


def hot_modules() -> list[str]:
    text = (ROOT / "setup.py").read_text(encoding="utf-8")
    listed = text.partition("HOT_MODULES: list[str] = [")[2].partition("\n]\n")[0]
    names = re.findall(r'^    "(.+\.py)",$', listed, re.MULTILINE)
    native = sorted((ROOT / "src/barnabas/protocol/native").glob("[a-z]*_*.py"))
    messages = ROOT / "src/barnabas/protocol/messages"
    found = [ROOT / "src/barnabas" / name for name in names] + native
    return list(map(str, [*found, *(messages / path.name for path in native)]))


@pytest.mark.slow
def test_modules_compile_where_only_the_build_requirements_are_installed() -> None:
    """mypyc follows imports, and an installer builds in an environment of its own: nothing of ours is there."""
    cache = ROOT / "build" / "mypy-isolated"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--no-site-packages", "--no-warn-unused-configs"),
            *("--cache-dir", str(cache), *hot_modules()),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


@pytest.mark.slow
def test_an_sdist_becomes_a_wheel_that_works_elsewhere(tmp_path: Path) -> None:
    """Without compiling, which takes a minute: see `test_compiled`."""
    python, into = Path(sys.executable), tmp_path / "dist"
    sdist = dist.build_sdist(python, tmp_path, into)
    assert sdist.name == f"barnabas-{__version__}.tar.gz"
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    package = {f"src/{name}" for name in package_files()}
    packaging = {p.relative_to(ROOT).as_posix() for p in (ROOT / "packaging").rglob("*") if p.is_file()}
    made = {name for name in names if name.startswith("src/barnabas.egg-info/")} | {"PKG-INFO", "setup.cfg"}
    assert names - made == package | packaging | PAPERS

    wheel = dist.build_wheel(python, sdist, tmp_path, into, compiled=False)
    assert wheel.name == f"barnabas-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as zipped:
        contents = {name for name in zipped.namelist() if ".dist-info/" not in name}
        licences = {Path(name).name for name in zipped.namelist() if "/licenses/" in name}
    assert contents == package_files()
    assert licences == {"LICENSE", "NOTICE"}

    interpreter = dist.Interpreter(program=sys.executable, minor=sys.version_info.minor)
    tried = dist.try_wheel(interpreter, python, wheel, tmp_path, 0.0, compiled=False)
    # `make dist` measures the time of a user, with nothing beside it. Here other tests run, and nothing is compiled.
    assert tried.processor_s <= dist.FIRST_RECORD_MAX_S * SLACK


@pytest.mark.slow
@pytest.mark.skipif(
    not IS_SOAK, reason="compiles the package, a minute of two cores: make soak, or make dist"
)
def test_compiled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    started_s = time.monotonic()
    assert dist.main(["--busy", "--python", sys.executable, "--into", str(tmp_path)]) == 0
    assert time.monotonic() - started_s < dist.STEP_TIMEOUT_S
    (wheel,) = tmp_path.glob("*.whl")
    assert f"cp3{sys.version_info.minor}" in wheel.name
    assert wheel.name in capsys.readouterr().out
    with zipfile.ZipFile(wheel) as zipped:
        compiled = [name for name in zipped.namelist() if name.endswith(".so")]
        assert not [name for name in zipped.namelist() if name.endswith((".c", ".h", ".o"))]
    assert len(compiled) > len(hot_modules()) / 2
    checksums = (tmp_path / "SHA256SUMS").read_text()
    assert all(path.name in checksums for path in tmp_path.glob("barnabas-*"))


def test_pythons_are_found_by_what_they_can_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = dist.interpreters([sys.executable])
    assert found.minor == sys.version_info.minor
    other = tmp_path / "python3.12"
    for answer, complaint in (
        ('["cpython", [3, 12], true, false]', "Python.h is missing"),
        ('["cpython", [3, 12], false, true]', "the module venv is missing"),
    ):
        other.write_text(f"#!/bin/sh\necho '{answer}'\n")
        other.chmod(0o755)
        assert dist.interpreters([str(other)]) == []
        assert complaint in capsys.readouterr().err
    for answer in ('["pypy", [3, 12], true, true]', '["cpython", [3, 9], true, true]'):
        other.write_text(f"#!/bin/sh\necho '{answer}'\n")
        with pytest.raises(dist.DistError, match="is not one of CPython"):
            dist.interpreters([str(other)])
    assert dist.main(["--python", str(tmp_path / "missing")]) == 1
    assert "is no Python that can be run" in capsys.readouterr().err


def test_pins_of_the_build_are_those_of_the_tests() -> None:
    pinned = re.compile(r"^([a-z0-9._-]+)==(\S+)", re.MULTILINE)
    build, dev = (
        dict(pinned.findall((ROOT / "requirements" / name).read_text())) for name in ("build.txt", "dev.txt")
    )
    assert build == {name: dev[name] for name in build}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    required = {re.split(r"[<>=]", each)[0] for each in project["build-system"]["requires"]}
    assert required <= set(build)
    assert not {"crc32c", "cramjam", "cryptography", "pyspark"} & set(build)
