"""Options that several commands about records take: of producers and consumers, and of ranges of records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
ISOLATIONS: Final = ("read_uncommitted", "read_committed")
# The default of socket.request.max.bytes: a broker takes no larger request.
SIZE_MAX_BYTES: Final = 100 * 1024 * 1024

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

acks_option: Final = click.option(
    "--acks",
    type=click.Choice(["all", "1", "0"]),
    default="all",
    show_default=True,
    help="Which replicas must acknowledge: all in sync, the leader, or none.",
)
compression_option: Final = click.option(
    "--compression",
    type=click.Choice(COMPRESSIONS),
    default="none",
    show_default=True,
    help="Compression of batches.",
)
until_option: Final = click.option(
    "--until", metavar="WHERE", help="Where to stop.  [default: end, or never with --follow]"
)
follow_option: Final = click.option(
    "-f", "--follow", is_flag=True, help="Wait for more records, until Ctrl-C."
)


def isolation_option(default: str) -> Decorator:
    return click.option(
        "--isolation",
        type=click.Choice(ISOLATIONS),
        default=default,
        show_default=True,
        help="read_committed skips records of open and aborted transactions.",
    )


def settings_option(kind: str) -> Decorator:
    return click.option(
        "-X",
        "--set",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        help=f"A {kind} setting. May be repeated.",
    )


def records_option(default: int) -> Decorator:
    return click.option(
        "-n",
        "--records",
        type=click.IntRange(min=1),
        default=default,
        show_default=True,
        metavar="N",
        help="Number of records.",
    )


def size_option(min_bytes: int) -> Decorator:
    return click.option(
        "-s",
        "--size",
        type=click.IntRange(min_bytes, SIZE_MAX_BYTES),
        default=100,
        show_default=True,
        metavar="BYTES",
        help="Size of a value.",
    )
