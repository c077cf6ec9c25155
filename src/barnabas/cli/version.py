"""`barnabas version`: what a bug report needs to say about an installation."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from typing import Any, Final

import click

from barnabas import __version__
from barnabas.cli.shared.output import show_json

# The same as in pyproject.toml, which an installed package does not have.
LIBRARIES: Final = (
    "click",
    "cramjam",
    "crc32c",
    "google-re2",
    "kazoo",
    "librt",
    "mypy-extensions",
    "rich",
)
EXTRAS: Final[dict[str, tuple[str, ...]]] = {
    "arrow": ("pyarrow",),
    "avro": ("fastavro",),
    "console": ("starlette", "uvicorn"),
    "gssapi": ("gssapi",),
    "json-schema": ("jsonschema",),
    "protobuf": ("protobuf",),
    "security": ("cryptography", "joserfc"),
    "spark": (
        "adbc-driver-manager",
        "adbc-driver-postgresql",
        "adbc-driver-sqlite",
        "deltalake",
        "fastavro",
        "pandas",
        "protobuf",
        "pyarrow",
        "pyspark",
    ),
}
# A module that every compiled package has compiled.
HOT_MODULE: Final = "barnabas.broker.dispatch"
JAVA_TIMEOUT_S: Final = 10


@click.command(
    epilog="""\b
Examples:
  barnabas version
  barnabas version --verbose        for a bug report"""
)
@click.option(
    "--verbose",
    "-v",
    is_flag=True,
    help="Show also Python, the platform, libraries and extras.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def version(verbose: bool, as_json: bool) -> None:
    """Show the version, and with --verbose what a bug report should contain.

    It shows names of environment variables, but not their values.
    """
    found = {"version": __version__, **(_details() if verbose else {})}
    if as_json:
        show_json(found)
    elif verbose:
        for name, value in _lines(found):
            click.echo(f"{name + ':':14} {value}")
    else:
        click.echo(f"barnabas, version {__version__}")


def _details() -> dict[str, Any]:
    import sqlite3
    import ssl

    return {
        "compiled": is_compiled(),
        "location": os.path.dirname(sys.modules["barnabas"].__file__ or ""),
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cores": _cores(),
        "open_files_max": _open_files_max(),
        "openssl": ssl.OPENSSL_VERSION,
        "sqlite": sqlite3.sqlite_version,
        "java": _java(),
        "variables": sorted(name for name in os.environ if name.startswith("BARNABAS_")),
        "libraries": {name: _installed(name) for name in LIBRARIES},
        "extras": {extra: {name: _installed(name) for name in names} for extra, names in EXTRAS.items()},
    }


def _lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    lines = [
        ("barnabas", f"{found['version']}, {'compiled' if found['compiled'] else 'not compiled'}"),
        ("location", found["location"]),
        ("python", f"{found['implementation']} {found['python']}, {found['executable']}"),
        ("platform", f"{found['platform']}, {found['cores']} cores"),
        ("open files", f"at most {found['open_files_max']}" if found["open_files_max"] else "no limit"),
        ("openssl", found["openssl"]),
        ("sqlite", found["sqlite"]),
        ("java", found["java"] or "not found"),
        ("variables", ", ".join(found["variables"]) or "none"),
        ("libraries", _versions(found["libraries"])),
    ]
    return lines + [(f"[{extra}]", _versions(names)) for extra, names in found["extras"].items()]


def _versions(packages: dict[str, str | None]) -> str:
    if not any(packages.values()):
        return "not installed"
    return ", ".join(f"{name} {found or '(missing)'}" for name, found in packages.items())


def is_compiled() -> bool:
    from importlib.util import find_spec

    spec = find_spec(HOT_MODULE)
    return spec is not None and not (spec.origin or "").endswith(".py")


def _installed(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as version_of

    try:
        return version_of(package)
    except PackageNotFoundError:
        return None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _open_files_max() -> int | None:
    """The limit that a broker reaches first if it has many connections and segments."""
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _java() -> str | None:
    """The first line of `java -version`, of the Java that Spark would start."""
    import subprocess

    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None:
        return None
    try:
        done = subprocess.run(
            [java, "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=JAVA_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{java}: {error}"
    # A variable such as JAVA_TOOL_OPTIONS makes Java print another line first.
    lines = [line for line in done.stdout.splitlines() if " version " in line]
    return lines[0] if lines else f"{java}: exit code {done.returncode}"
