"""What `make run` sets up, and what it leaves alone."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Without what it installs and checks first.
MAKE_TEST = ["make", "--silent", "--assume-old=setup", "--assume-old=lint", "test"]
PINNED = re.compile(r"^([a-z0-9._-]+)==(\S+)", re.MULTILINE)


def pins(name: str) -> dict[str, str]:
    return dict(PINNED.findall((ROOT / "requirements" / name).read_text()))


def names_in(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=~; ]", each, maxsplit=1)[0] for each in requirements}


def test_what_a_broker_needs_is_pinned_as_for_the_tests() -> None:
    run, dev = pins("run.txt"), pins("dev.txt")
    assert run == {name: dev[name] for name in run}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = names_in(project["project"]["dependencies"]) | names_in(project["build-system"]["requires"])
    assert needed <= set(run)
    listed = (ROOT / "requirements/run.in").read_text().splitlines()
    assert {line for line in listed if line and not line.startswith("#")} == needed
    assert not {"pyspark", "pyarrow", "pandas", "pytest"} & set(run)


def test_what_builds_the_site_fits_what_the_tests_need() -> None:
    docs, dev = pins("docs.txt"), pins("dev.txt")
    assert "mkdocs-material" in docs
    assert {name: docs[name] for name in docs if name in dev} == {
        name: dev[name] for name in docs if name in dev
    }


def test_modules_that_are_compiled_quickly_are_compiled() -> None:
    text = (ROOT / "setup.py").read_text()
    hot, quick = (
        set(re.findall(r'^    "(.+\.py)",$', part, re.MULTILINE))
        for part in re.split(r"^QUICKLY_COMPILED", text, maxsplit=1, flags=re.MULTILINE)
    )
    assert quick
    assert quick <= hot
    assert all((ROOT / "src/barnabas" / name).is_file() for name in hot)


@pytest.mark.parametrize("mode", ["--sources", "--docs"])
def test_what_runs_from_the_sources_does_not_wait_for_the_package(mode: str, tmp_path: Path) -> None:
    clone, programs, called = tmp_path / "clone", tmp_path / "programs", tmp_path / "called"
    for name in ("tools", "requirements"):
        shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
    venv = clone / ".venv"
    (venv / "bin").mkdir(parents=True)
    programs.mkdir()
    programs_there = ("java", "initdb", "krb5-config", "krb5kdc")
    for program in (venv / "bin/python", *(programs / name for name in programs_there)):
        program.write_text(f"#!/bin/sh\necho $0 >> {called}\nexit 1\n")
        program.chmod(0o755)
    for name in ("run", "dev", "docs", "gssapi"):
        pinned = (ROOT / "requirements" / f"{name}.txt").read_bytes()
        (venv / f"{name}.stamp").write_text(hashlib.sha256(pinned).hexdigest())
    (venv / "package.stamp").write_text("of other sources")
    settings = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    settings.pop("BARNABAS_VENV", None)
    done = subprocess.run(
        [clone / "tools/install", mode], env=settings, capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (venv / "package.stamp").read_text() == "of other sources"
    assert not called.exists()


@pytest.mark.slow
def test_a_fresh_clone_needs_nothing_outside_its_directory(tmp_path: Path) -> None:
    """Without a compiler, which takes a minute; the packages come from the index, or from pip's cache."""
    clone, tools = tmp_path / "clone", tmp_path / "tools"
    shutil.copytree(
        ROOT,
        clone,
        ignore=shutil.ignore_patterns(".venv", "build", ".git", "*_cache", "data", "__pycache__", "*-data"),
    )
    tools.mkdir()
    called = tmp_path / "called"
    for name in ("apt-get", "java", "sudo"):
        (tools / name).write_text(f"#!/bin/sh\necho {name} >> {called}\n")
        (tools / name).chmod(0o755)
    settings = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "BARNABAS_COMPILE": "0"}
    settings.pop("PYTHONPATH", None)

    def install(*arguments: str) -> str:
        done = subprocess.run(
            [clone / "tools/install", *arguments], env=settings, capture_output=True, text=True, timeout=500
        )
        assert done.returncode == 0, done.stderr
        return done.stderr

    first = install()
    assert [line.split("  ")[-1] for line in first.splitlines()] == [
        "creating .venv",
        "installing what a broker needs",
        "no C compiler: Barnabas runs uncompiled, correct but slower",
        "set up",
    ]
    assert not called.exists()
    version = subprocess.run(
        [clone / ".venv/bin/barnabas", "--version"], env=settings, capture_output=True, text=True, check=True
    )
    assert "0.1" in version.stdout
    assert not list(clone.glob(".venv/lib/*/site-packages/pyspark"))
    assert install() == "", "a second call has nothing to do"
    # Another version of the sources, and of what is pinned.
    change(clone / "src/barnabas/model.py")
    assert "no C compiler" in install()
    change(clone / "requirements/run.txt")
    assert "installing what a broker needs" in install()
    assert install() == ""


def change(file: Path) -> None:
    file.write_text(f"{file.read_text()}\n# changed\n")


@pytest.mark.parametrize(
    ("selected", "plain_code", "expected"),
    [("tests/x", 0, 0), ("tests/x", 5, 0), ("tests/x", 1, 2), ("", 5, 2), ("-k 'a or b'", 5, 0)],
)
def test_make_test_takes_slow_tests_alone(
    tmp_path: Path, selected: str, plain_code: int, expected: int
) -> None:
    """The second pass, without slow tests, may select nothing where ARGS selects, and fails for any other reason."""
    pytest_of_the_test = tmp_path / "pytest"
    pytest_of_the_test.write_text(f'#!/bin/sh\ncase "$*" in *"not slow"*) exit {plain_code};; esac\n')
    pytest_of_the_test.chmod(0o755)
    done = subprocess.run(
        [*MAKE_TEST, f"PYTEST={pytest_of_the_test}", f"ARGS={selected}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == expected, done.stdout + done.stderr
