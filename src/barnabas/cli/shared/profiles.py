"""Profiles: clusters by name, each with its client settings, in one TOML file that only its owner can read.

    in_use = "dev"

    [profiles.dev]
    "bootstrap.servers" = "localhost:9092"

The file is $XDG_CONFIG_HOME/barnabas/profiles.toml, or ~/.config/barnabas/profiles.toml. Users may edit it; the
commands write no comments.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.cli.shared.exit_codes import NOT_FOUND
from barnabas.cli.shared.output import fail, nearest

if TYPE_CHECKING:
    import click

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
# Kafka's settings of type password, and similar names.
_SECRET: Final = re.compile(r"password|secret|jaas|\.key$|token", re.IGNORECASE)
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f]")


class Profiles(NamedTuple):
    """All profiles by name, and the name of the one that is used by default."""

    in_use: str | None
    settings: dict[str, dict[str, str]]

    def of(self, name: str) -> dict[str, str]:
        if name not in self.settings:
            hint = nearest(name, self.settings) or "; `barnabas profile list` lists the profiles"
            fail(f"there is no profile {name}{hint}", NOT_FOUND)
        return self.settings[name]


def profiles_path() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME", "")
    # The XDG specification requires that relative paths are ignored.
    directory = Path(base) if os.path.isabs(base) else Path.home() / ".config"
    return directory / "barnabas" / "profiles.toml"


def load_profiles() -> Profiles:
    import tomllib

    path = profiles_path()
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Profiles(None, {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        fail(f"{path}: {error}")
    in_use, tables = content.get("in_use"), content.get("profiles", {})
    if not isinstance(in_use, str | None) or not isinstance(tables, dict):
        fail(f"{path}: in_use must be a name, and profiles a table")
    for name, table in tables.items():
        if not isinstance(table, dict):
            fail(f"{path}: the profile {name} must be a table of settings")
    return Profiles(in_use, {name: dict(_flat(table)) for name, table in tables.items()})


def _flat(table: Mapping[str, object], prefix: str = "") -> list[tuple[str, str]]:
    """Settings by their dotted names, which TOML parses as nested tables without quotes."""
    found = []
    for key, value in table.items():
        if isinstance(value, dict):
            found += _flat(value, f"{prefix}{key}.")
        elif isinstance(value, bool):
            found.append((prefix + key, str(value).lower()))
        elif isinstance(value, list):
            found.append((prefix + key, ",".join(map(str, value))))
        else:
            found.append((prefix + key, str(value)))
    return found


def save_profiles(profiles: Profiles) -> None:
    """Replaces the file at once: a reader sees the old one or the new one."""
    path = Path(os.path.realpath(profiles_path()))
    path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    lines = [] if profiles.in_use is None else [f"in_use = {_quoted(profiles.in_use)}", ""]
    for name, settings in sorted(profiles.settings.items()):
        lines.append(f"[profiles.{_quoted(name)}]")
        lines += [f"{_quoted(key)} = {_quoted(value)}" for key, value in settings.items()]
        lines.append("")
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), FILE_MODE)
            file.write("\n".join(lines))
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _quoted(text: str) -> str:
    """A basic string of TOML. JSON's escapes are TOML's too, but for characters outside the basic plane."""
    return _UNPRINTABLE.sub(
        lambda found: f"\\u{ord(found[0]):04x}",
        json.dumps(text, ensure_ascii=False),
    )


def is_secret(name: str) -> bool:
    return _SECRET.search(name) is not None


def complete_profiles(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names for the shell; none if the file cannot be read."""
    try:
        return [name for name in sorted(load_profiles().settings) if name.startswith(incomplete)]
    except Exception:
        return []
