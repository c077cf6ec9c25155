"""Builds what a release consists of, and tries it as a user would: in empty environments, outside this directory.

python -m tools.dist                        an sdist, and a compiled wheel for each Python from 3.11 to 3.14
python -m tools.dist --python python3.12    for this Python only; may be given several times
python -m tools.dist --pure                 a wheel without compiled modules, for any platform
python -m tools.dist --busy                 beside other work: the time to the first record is that of processors

The files go to build/dist. A wheel is built from the sdist, with nothing installed but what build-system in
pyproject.toml requires (requirements/build.txt), as an installer builds it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
DIST: Final = ROOT / "build" / "dist"
MINORS: Final = (11, 12, 13, 14)
# What goes into the sdist is selected from these by pyproject.toml and MANIFEST.in.
SOURCES: Final = (
    *("src", "packaging", "tools"),
    *("setup.py", "pyproject.toml", "MANIFEST.in"),
    *("README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE", "NOTICE"),
)
STEP_TIMEOUT_S: Final = 900
QUESTION_TIMEOUT_S: Final = 30
FIRST_RECORD_MAX_S: Final = 10.0

QUESTION: Final = """
import json, sys, sysconfig, os
try:
    import ensurepip, venv
    complete = True
except ImportError:
    complete = False
header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
print(json.dumps([sys.implementation.name, list(sys.version_info[:2]), complete, os.path.exists(header)]))
"""


class DistError(Exception):
    """A step failed. The text names the step and the end of its output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    program: str
    minor: int

    @property
    def name(self) -> str:
        return f"python3.{self.minor}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    file: Path
    build_s: float
    install_s: float
    first_record_s: float
    # Of these seconds, what processors worked. The rest are waits: for the network, and for a machine that is busy.
    processor_s: float


def interpreters(wanted: Sequence[str]) -> list[Interpreter]:
    """One for each version, the first that can build; says why a Python that exists cannot."""
    found: dict[int, Interpreter] = {}
    for program in wanted or candidates():
        answer = asked(program)
        if answer is None:
            if wanted:
                raise DistError(f"{program} is no Python that can be run")
            continue
        implementation, (major, minor), complete, has_header = answer
        if implementation != "cpython" or major != 3 or minor not in MINORS or minor in found:
            if wanted:
                raise DistError(
                    f"{program} is not one of CPython 3.{MINORS[0]} to 3.{MINORS[-1]}, or is given twice"
                )
        elif not complete or not has_header:
            missing = "the module venv" if not complete else "Python.h"
            say(
                f"{program} is left out: {missing} is missing (Debian: python3.{minor}-dev and python3.{minor}-venv)"
            )
        else:
            found[minor] = Interpreter(program=program, minor=minor)
    return [found[minor] for minor in sorted(found)]


def candidates() -> Iterator[str]:
    for minor in MINORS:
        program = shutil.which(f"python3.{minor}")
        if program:
            yield program
    folders = (
        Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions",
        Path.home() / ".local" / "share" / "uv" / "python",
    )
    for folder in folders:
        yield from (str(path) for path in sorted(folder.glob("*/bin/python3.1[1-4]"), reverse=True))


def asked(program: str) -> tuple[str, tuple[int, int], bool, bool] | None:
    try:
        done = subprocess.run(
            [program, "-I", "-c", QUESTION],
            capture_output=True,
            text=True,
            timeout=QUESTION_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    implementation, (major, minor), complete, has_header = json.loads(done.stdout)
    return implementation, (major, minor), complete, has_header


def clean_environment(**more: str) -> dict[str, str]:
    """Without what would lead to this directory or to another environment."""
    hidden = ("PYTHON", "VIRTUAL_ENV", "BARNABAS_", "_BARNABAS_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    return {**kept, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **more}


def run(command: Sequence[str | Path], *, cwd: Path, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=clean_environment() if environment is None else environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=STEP_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        end = "\n".join(done.stdout.splitlines()[-40:])
        raise DistError(f"{' '.join(map(str, command))} failed with exit code {done.returncode}:\n{end}")
    return done.stdout


def commit_time() -> dict[str, str]:
    """The times in archives are those of the last commit, so that the same commit gives the same files."""
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"],
            capture_output=True,
            text=True,
            timeout=QUESTION_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"SOURCE_DATE_EPOCH": done.stdout.strip()}


def build_environment(interpreter: Interpreter, work: Path) -> Path:
    """The Python of a new environment that has what build-system in pyproject.toml requires, and nothing else."""
    python = new_environment(interpreter, work / f"build-3.{interpreter.minor}")
    run([python, "-m", "ensurepip"], cwd=work)
    pinned = ROOT / "requirements" / "build.txt"
    run([python, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", pinned], cwd=work)
    return python


def new_environment(interpreter: Interpreter, folder: Path) -> Path:
    """Without anything in it, not even pip."""
    run([interpreter.program, "-m", "venv", "--without-pip", folder], cwd=folder.parent)
    return folder / "bin" / "python"


def build_sdist(python: Path, work: Path, into: Path) -> Path:
    """From a copy, so that no build before this one leaves anything in it."""
    copy = work / "sources"
    copy.mkdir()
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(
                source, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")
            )
        elif source.exists():
            shutil.copy(source, copy / name)
    into.mkdir(parents=True, exist_ok=True)
    build = f"from setuptools import build_meta; build_meta.build_sdist({str(into)!r})"
    run([python, "-c", build], cwd=copy, environment=clean_environment(**commit_time()))
    (made,) = into.glob("*.tar.gz")
    return made


def build_wheel(python: Path, sdist: Path, work: Path, into: Path, *, compiled: bool) -> Path:
    unpacked = Path(tempfile.mkdtemp(dir=work, prefix="unpacked-"))
    run([python, "-m", "tarfile", "--extract", sdist, unpacked], cwd=work)
    (source,) = unpacked.iterdir()
    wheels = unpacked / "wheels"
    wheels.mkdir()
    # An isolated build never falls back to plain Python in silence.
    environment = clean_environment(BARNABAS_COMPILE="1" if compiled else "0", **commit_time())
    run([python, ROOT / "tools" / "build_wheel.py", wheels], cwd=source, environment=environment)
    (made,) = wheels.glob("*.whl")
    into.mkdir(parents=True, exist_ok=True)
    kept = Path(shutil.move(made, into / made.name))
    shutil.rmtree(unpacked)
    return kept


def try_wheel(
    interpreter: Interpreter, builder: Path, wheel: Path, work: Path, build_s: float, *, compiled: bool
) -> Tried:
    """Installs the wheel as a user does, with the newest dependencies that fit, and runs tools/smoke.py with it.

    The pip of `builder` installs.
    """
    outside = Path(tempfile.mkdtemp(dir=work, prefix="outside-"))
    python = new_environment(interpreter, outside / "environment")
    started_s, processor_s = time.monotonic(), children_s()
    run([builder, "-m", "pip", "--python", python, "install", "--quiet", wheel], cwd=outside)
    install_s, processor_s = time.monotonic() - started_s, children_s() - processor_s
    smoke = shutil.copy(ROOT / "tools" / "smoke.py", outside)
    arguments = ["--compiled"] if compiled else ["--pure"]
    said = run([python, "-I", smoke, *arguments], cwd=outside)
    measured = json.loads(said.splitlines()[-1])
    shutil.rmtree(outside)
    return Tried(
        file=wheel,
        build_s=build_s,
        install_s=install_s,
        first_record_s=install_s + measured["first_record_s"],
        processor_s=processor_s + measured["processor_s"],
    )


def children_s() -> float:
    """The processor time of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def say(text: str) -> None:
    print(f"dist: {text}", file=sys.stderr, flush=True)


def size_text(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.2f} MB"


def write_checksums(folder: Path) -> None:
    files = sorted((*folder.glob("*.tar.gz"), *folder.glob("*.whl")))
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / "SHA256SUMS").write_text("".join(lines))


def build_all(
    wanted: Sequence[Interpreter], work: Path, into: Path, *, compiled: bool
) -> tuple[Path, list[Tried]]:
    if not compiled:
        # The same file for all of them.
        wanted = wanted[:1]
    say(f"building the sdist with {wanted[0].program}")
    pythons = {interpreter.minor: build_environment(interpreter, work) for interpreter in wanted}
    sdist = build_sdist(pythons[wanted[0].minor], work, into)
    tried = []
    for interpreter in wanted:
        kind = "compiling" if compiled else "building"
        say(f"{kind} a wheel with {interpreter.program}")
        started_s = time.monotonic()
        wheel = build_wheel(pythons[interpreter.minor], sdist, work, into, compiled=compiled)
        build_s = time.monotonic() - started_s
        say(f"trying {wheel.name}")
        tried.append(
            try_wheel(interpreter, pythons[interpreter.minor], wheel, work, build_s, compiled=compiled)
        )
    return sdist, tried


def report(sdist: Path, tried: Sequence[Tried]) -> None:
    width = max(len(each.name) for each in (sdist, *(one.file for one in tried)))
    print(f"{'file':{width}}  {'size':>8}  {'built':>7}  {'installed':>9}  {'processor':>9}  first record")
    print(f"{sdist.name:{width}}  {size_text(sdist):>8}")
    for one in tried:
        print(
            f"{one.file.name:{width}}  {size_text(one.file):>8}  {one.build_s:5.1f} s  {one.install_s:7.1f} s"
            f"  {one.processor_s:7.1f} s  {one.first_record_s:.1f} s after `pip install` began"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.dist", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--python", action="append", default=[], help="build for this Python; may be repeated"
    )
    parser.add_argument("--pure", action="store_true", help="build one wheel without compiled modules")
    parser.add_argument(
        "--busy",
        action="store_true",
        help="judge the first record by the time of processors, not by the clock",
    )
    parser.add_argument("--into", type=Path, default=DIST, help="the directory for the files")
    options = parser.parse_args(arguments)
    try:
        wanted = interpreters(options.python)
        if not wanted:
            raise DistError(
                f"there is no CPython 3.{MINORS[0]} to 3.{MINORS[-1]} that can build; name one by --python"
            )
        into = options.into.resolve()
        for old in (*into.glob("*.whl"), *into.glob("*.tar.gz")):
            old.unlink()
        with tempfile.TemporaryDirectory(prefix="barnabas-dist-") as work:
            sdist, tried = build_all(wanted, Path(work), into, compiled=not options.pure)
        write_checksums(into)
    except DistError as error:
        say(str(error))
        return 1
    report(sdist, tried)
    slowest_s = max(one.processor_s if options.busy else one.first_record_s for one in tried)
    if slowest_s > FIRST_RECORD_MAX_S:
        say(
            f"the first record took {slowest_s:.1f} s; it may take {FIRST_RECORD_MAX_S:.0f} s."
            " If other work runs on this machine, --busy counts the time of processors alone"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
