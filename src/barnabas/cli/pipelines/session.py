"""Shared parts of the pipeline commands: their options, a Spark session, and errors of Spark in one line."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click

from barnabas.cli.shared.arguments import parse_pairs
from barnabas.cli.shared.exit_codes import FAILED, NOT_FOUND, TRY_AGAIN, UNREACHABLE
from barnabas.cli.shared.output import fail

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.spark.pipeline.model import Pipeline

F = TypeVar("F", bound=Callable[..., Any])

file_argument: Final = click.argument(
    "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE"
)
json_option: Final = click.option("--json", "as_json", is_flag=True, help="JSON, for scripts.")


def session_options(command: F) -> F:
    """How to start Spark."""
    for option in (
        click.option("--debug", is_flag=True, help="Show the log of Spark and all stack traces."),
        click.option(
            "--conf",
            "settings",
            multiple=True,
            metavar="KEY=VALUE",
            help="A Spark setting; overrides the file. May be repeated.",
        ),
        click.option(
            "--workers",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            metavar="ARCHIVE",
            help="An archive of `pipeline pack`, for workers on machines without barnabas.",
        ),
        click.option(
            "--master",
            default="local[*]",
            show_default=True,
            help="Where Spark runs: local[2], spark://host:7077, yarn, k8s://….",
        ),
    ):
        command = option(command)
    return command


@contextmanager
def session(
    declared: Pipeline,
    master: str,
    settings: tuple[str, ...],
    *,
    workers: Path | None = None,
    debug: bool,
    log: Path | None = None,
) -> Iterator[SparkSession]:
    """A Spark session for a command, which is stopped afterwards; Java's output goes to the log, or nowhere."""
    from barnabas.spark.session import kept_quiet, start_session

    chosen = {**declared.spark, **dict(parse_pairs(settings))}
    with open(log or os.devnull, "ab") as output:
        with kept_quiet(None if debug else output):
            started = start_session(declared.name, master=master, settings=chosen, workers=workers)
        started.sparkContext.setLogLevel("INFO" if debug else "ERROR")
        try:
            yield started
        finally:
            started.stop()


@contextmanager
def told_in_a_line(debug: bool) -> Iterator[None]:
    """Turns errors of Spark and of brokers into one line and an exit code."""
    try:
        yield
    except (click.ClickException, click.Abort, click.exceptions.Exit):
        raise
    except Exception as error:
        from barnabas.spark.failures import told

        if debug:
            traceback.print_exception(error)
        fail_with(told(error))


def fail_with(error: Exception) -> NoReturn:
    fail("; ".join(str(error).splitlines()) or type(error).__name__, exit_code_of(error))


def exit_code_of(error: Exception) -> int:
    from barnabas.errors import (
        GroupIdNotFound,
        KafkaError,
        NetworkException,
        RequestTimedOut,
        UnknownTopicOrPartition,
    )

    if isinstance(error, NetworkException | RequestTimedOut):
        return UNREACHABLE
    if isinstance(error, UnknownTopicOrPartition | GroupIdNotFound):
        return NOT_FOUND
    from barnabas.spark.pipeline.restarts import is_transient

    return TRY_AGAIN if isinstance(error, KafkaError) and is_transient(error) else FAILED
