"""`barnabas pipeline`: data pipelines on Spark, each a TOML file."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NoReturn

import click

from barnabas.cli.pipelines.run import run
from barnabas.cli.pipelines.session import (
    exit_code_of,
    fail_with,
    file_argument,
    json_option,
    session,
    session_options,
    told_in_a_line,
)
from barnabas.cli.shared.arguments import confirm, execute_option, yes_option
from barnabas.cli.shared.exit_codes import FAILED
from barnabas.cli.shared.group import CommandGroup
from barnabas.cli.shared.output import Column, note, show, show_json, show_table, time_text

CHECKS: Final = (
    Column("where", "where"),
    Column("what", "what"),
    Column("state", "state"),
    Column("told", ""),
)
LISTED: Final = (
    Column("name", "pipeline"),
    Column("reads", "reads"),
    Column("writes", "writes"),
    Column("state", "state"),
    Column("file", "file"),
)
LAGS: Final = (
    Column("source", "source"),
    Column("topic", "topic"),
    Column("partition", "partition"),
    Column("committed_offset", "committed"),
    Column("end_offset", "end"),
    Column("lag", "lag"),
)
RESETS: Final = (
    Column("topic", "topic"),
    Column("partition", "partition"),
    Column("committed_offset", "committed"),
    Column("new_offset", "new"),
)


@click.group(cls=CommandGroup)
def pipeline() -> None:
    """Data pipelines on Spark, each a TOML file."""


@pipeline.command()
@file_argument
@click.option(
    "--connect", is_flag=True, help="Also connect to brokers and schema registries, and check the topics."
)
@click.option(
    "--no-spark", is_flag=True, help="Skip the checks that need Spark. This is faster and needs no Java."
)
@json_option
def validate(file: Path, connect: bool, no_spark: bool, as_json: bool) -> None:
    """Check a pipeline's file without running it: its keys, and with Spark's parser its schemas, SQL and columns.

    Reports all errors, and what was not checked.
    """
    from barnabas.spark.pipeline.check import WHAT_SPARK_CHECKS, Findings, check_apart
    from barnabas.spark.pipeline.connect import connect as connected
    from barnabas.spark.pipeline.load import load_pipeline
    from barnabas.spark.pipeline.tables import InvalidPipeline

    try:
        declared = load_pipeline(file)
    except InvalidPipeline as error:
        _tell_faults(file, list(error.faults), [], as_json=as_json)
    checks = connected(declared) if connect else []
    rows = [
        {"where": each.where, "what": each.what, "state": each.state, "told": each.told} for each in checks
    ]
    failed = next((each.error for each in checks if each.error is not None), None)
    if no_spark or failed is not None:
        reason = "--no-spark" if no_spark else "--connect checks are skipped until these are fixed"
        found = Findings(not_checked=[f"{WHAT_SPARK_CHECKS}: {reason}"])
    else:
        found = check_apart(file, declared, asks_registries=connect)
    if found.faults:
        _tell_faults(file, found.faults, found.not_checked, as_json=as_json)
    if as_json:
        show_json(
            {
                "file": str(file),
                "valid": True,
                "faults": [],
                "not_checked": found.not_checked,
                "name": declared.name,
                "checks": rows,
            }
        )
    elif rows:
        show_table(rows, CHECKS)
    if failed is not None:
        if as_json:
            raise click.exceptions.Exit(exit_code_of(failed))
        fail_with(failed)
    if as_json:
        return
    for line in found.not_checked:
        note(f"not checked: {line}")
    so_far = ", as far as it was checked" if found.not_checked else ""
    click.echo(f"{file}: {declared.name} is a valid pipeline{so_far}")


def _tell_faults(file: Path, faults: list[str], not_checked: list[str], *, as_json: bool) -> NoReturn:
    if as_json:
        show_json({"file": str(file), "valid": False, "faults": faults, "not_checked": not_checked})
    else:
        for fault in faults:
            note(f"barnabas: {file}: {fault}")
        for line in not_checked:
            note(f"not checked: {line}")
    raise click.exceptions.Exit(FAILED)


@pipeline.command()
@file_argument
@session_options
@json_option
def plan(
    file: Path, master: str, workers: Path | None, settings: tuple[str, ...], debug: bool, as_json: bool
) -> None:
    """Show what would run: sources and their lag, steps and their columns, the sink, and Spark's plan."""
    from barnabas.spark.pipeline.connect import require_connected
    from barnabas.spark.pipeline.load import load_pipeline
    from barnabas.spark.session import require_spark

    declared = load_pipeline(file)
    with told_in_a_line(debug):
        require_connected(declared)
        require_spark()
        from barnabas.spark.pipeline.plan import plan_of, plan_text

        with session(declared, master, settings, workers=workers, debug=debug) as spark:
            found = plan_of(spark, declared, file.parent)
    if as_json:
        show_json(found)
    else:
        click.echo(plan_text(found))


@pipeline.command("list")
@click.argument("paths", type=click.Path(exists=True, path_type=Path), nargs=-1, metavar="[FOLDER|FILE]...")
@json_option
def list_(paths: tuple[Path, ...], as_json: bool) -> None:
    """List the pipelines in folders, by default the current one, with their progress. Connects to nothing.

    Files that declare no pipeline are left out; a pipeline with errors is listed with the first of them.
    """
    from barnabas.spark.pipeline.listing import listed

    found = [each.as_dict() for each in listed(paths or (Path(),))]
    show(found, LISTED, as_json=as_json, nothing="no file here declares a pipeline")


@pipeline.command(
    epilog="""\b
Examples:
  barnabas pipeline pack workers.tar.gz
  barnabas pipeline run orders.toml --master spark://host:7077 --workers workers.tar.gz"""
)
@click.argument("archive", type=click.Path(dir_okay=False, path_type=Path), metavar="ARCHIVE")
@click.option(
    "--without",
    multiple=True,
    metavar="PACKAGE",
    help="Leave out a package that no step of the pipeline uses, such as deltalake. May be repeated.",
)
@json_option
def pack(archive: Path, without: tuple[str, ...], as_json: bool) -> None:
    """Write an archive of barnabas and its packages, for Spark's workers on machines without them.

    The name ends in .tar.gz, or in .tar, which is faster to write and larger.
    """
    from barnabas.spark.packing import pack as write_archive

    with told_in_a_line(debug=False):
        packages = write_archive(archive, without=without)
    size = archive.stat().st_size
    if as_json:
        show_json({"archive": str(archive), "bytes": size, "packages": packages})
        return
    click.echo(f"{archive}: {size / 1e6:,.0f} MB")
    click.echo(", ".join(f"{name} {version}" for name, version in packages.items()))


@pipeline.command()
@file_argument
@click.option("--checkpoint", metavar="PATH", help="Use this checkpoint instead of the one in the file.")
@json_option
def status(file: Path, checkpoint: str | None, as_json: bool) -> None:
    """Show the progress of a pipeline from its checkpoint and its group. Does not need Spark."""
    from barnabas.spark.pipeline.load import load_pipeline
    from barnabas.spark.pipeline.status import status_of

    declared = load_pipeline(file)
    with told_in_a_line(debug=False):
        found = status_of(declared, checkpoint)
    if as_json:
        show_json(found)
        return
    click.echo(f"{found['name']}: {found['checkpoint']}")
    for query in found["queries"]:
        if query["query_id"] is None:
            click.echo(f"{query['query']}: {query['told']}")
            continue
        done = query["committed_batch_id"]
        at_ms = query["planned_at_ms"]
        repeats = query["planned_batch_id"] != done
        click.echo(
            f"{query['query']}: {'no batch' if done is None else f'batch {done}'} is done"
            + (f", batch {query['planned_batch_id']} is under way or to be repeated" if repeats else "")
            + (f", the last began at {time_text(at_ms)}" if at_ms else "")
            + (f", watermark {time_text(query['watermark_ms'])}" if query["watermark_ms"] else "")
            + f" (query {query['query_id']})"
        )
    columns = LAGS if len(found["groups"]) == 1 else (Column("group", "group"), *LAGS)
    show(found["partitions"], columns, as_json=False, nothing="no topics are read as streams")


@pipeline.command(
    epilog="""\b
Examples:
  barnabas pipeline reset orders.toml
  barnabas pipeline reset orders.toml --to-latest --execute"""
)
@file_argument
@click.option("--to-earliest", is_flag=True, help="Start at the first record.")
@click.option("--to-latest", is_flag=True, help="Start after the last record.")
@click.option("--to-time", metavar="TIME", help="Start at the first record at or after a time.")
@click.option("--checkpoint", metavar="PATH", help="Another checkpoint than the file's.")
@execute_option
@yes_option
@json_option
def reset(
    file: Path,
    to_earliest: bool,
    to_latest: bool,
    to_time: str | None,
    checkpoint: str | None,
    execute: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Reset a stopped pipeline, so that it starts from the beginning: removes its checkpoint and its group's offsets.

    Without an option for the start, the next run starts where the file says (starting). The data in the sink stays
    there.
    """
    from barnabas.cli.shared.times import parse_time_ms
    from barnabas.spark.pipeline.load import load_pipeline
    from barnabas.spark.pipeline.reset import execute_reset, plan_reset

    if sum((to_earliest, to_latest, to_time is not None)) > 1:
        raise click.UsageError("Use at most one of --to-earliest, --to-latest, --to-time.")
    place: int | None = None
    if to_earliest or to_latest:
        place = -2 if to_earliest else -1
    elif to_time is not None:
        place = max(0, parse_time_ms(to_time, "--to-time"))
    execute = execute or yes
    declared = load_pipeline(file)
    with told_in_a_line(debug=False):
        planned = plan_reset(declared, checkpoint, place)
        if execute:
            confirm(
                f"remove {planned.checkpoint} and the offsets of {', '.join(planned.groups) or 'no group'}",
                yes=yes,
            )
            execute_reset(declared, planned)
    rows = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "committed_offset": planned.committed.get(partition),
            "new_offset": planned.offsets.get(partition),
        }
        for partition in sorted(planned.committed.keys() | planned.offsets.keys())
    ]
    if as_json:
        show_json(
            {
                "name": declared.name,
                "checkpoint": planned.checkpoint,
                "checkpoint_exists": planned.checkpoint_exists,
                "sink_logs": planned.sink_logs,
                "groups": planned.groups,
                "offsets": rows,
                "executed": execute,
            }
        )
        return
    gone = "removed" if execute else "to be removed"
    click.echo(f"checkpoint {planned.checkpoint}: {gone if planned.checkpoint_exists else 'there is none'}")
    for log in planned.sink_logs:
        click.echo(f"log of the sink {log}: {gone}; existing files stay, and new files are added")
    show(rows, RESETS, as_json=False, nothing="the group has no offsets")
    note("done" if execute else "Nothing was changed. Use --execute to make the changes.")


pipeline.add_command(run)
