"""Client settings from options, files and profiles. An unknown name is an error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from barnabas.cli.shared.arguments import parse_pairs
from barnabas.cli.shared.output import fail, nearest, note

KINDS: Final = ("producer", "consumer", "admin")
# Settings of Apache Kafka's clients that our clients do not have. Files that were written for Kafka's tools set them.
_PREFIXES: Final = ("metric", "config.", "internal.", "share.")
# A setting of these that clients do not have is an error: the connection would be less secure than it says.
_SECURITY: Final = ("sasl.", "ssl.", "security.")
_KAFKA_ONLY: Final = frozenset(
    {
        "auto.include.jmx.reporter",
        "bootstrap.controllers",
        "client.dns.lookup",
        "enable.metrics.push",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "socket.connection.setup.timeout.max.ms",
        # These choose among implementations in Java; OpenSSL does the same work.
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "transaction.two.phase.commit.enable",
    }
)


def known_names(*kinds: str) -> set[str]:
    from barnabas.client import settings as tables

    return {row.name for kind in kinds for row in getattr(tables, kind.upper())}


def parse_client_settings(kind: str, texts: Sequence[str]) -> dict[str, str]:
    """The settings of --set NAME=VALUE for a producer or a consumer."""
    settings = dict(parse_pairs(texts))
    known = known_names(kind)
    for name in settings:
        if name.replace("_", ".") not in known:
            fail(f"a {kind} has no setting {name}{nearest(name.replace('_', '.'), known)}")
    return settings


def check_client_settings(names: Iterable[str], where: str) -> None:
    """Checks settings for any client; `where` names the file, profile or option that they come from."""
    known = known_names(*KINDS)
    for name in names:
        if name in known or name in _KAFKA_ONLY or name.startswith(_PREFIXES):
            continue
        hint = nearest(name, known)
        if hint or name.startswith(_SECURITY):
            fail(f"{where}: clients have no setting {name}{hint}")
        note(f"{where}: clients have no setting {name}; it has no effect")


def load_client_config(file: str) -> dict[str, str]:
    from pathlib import Path

    from barnabas.config.properties import load_properties

    settings = load_properties(Path(file))
    check_client_settings(settings, file)
    return settings


def bootstrap_of(settings: Mapping[str, str]) -> str | None:
    return settings.get("bootstrap.servers") or None
