"""`barnabas reassign`: moves replicas between brokers."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.cli.shared.arguments import confirm, internal_option, partitions_of, topics_option, yes_option
from barnabas.cli.shared.exit_codes import NOT_FOUND
from barnabas.cli.shared.group import ClusterGroup
from barnabas.cli.shared.output import Column, bytes_text, count_text, fail, note, show, show_json
from barnabas.cli.shared.progress import progress_bar
from barnabas.cli.shared.target import Target, cluster_command, described_topics

if TYPE_CHECKING:
    from barnabas.client.admin.admin import Admin
    from barnabas.model import TopicPartition
    from barnabas.views.assignment import Assignment
    from barnabas.views.reassignment import Move

PLANNED: Final = (
    Column("topic", "topic"),
    Column("partition", "partition"),
    Column("replicas", "replicas"),
    Column("new_replicas", "new replicas"),
)
UNDER_WAY: Final = (
    Column("topic", "topic"),
    Column("partition", "partition"),
    Column("replicas", "replicas", rank=1),
    Column("adding", "adding"),
    Column("removing", "removing"),
    Column("done_bytes", "copied", bytes_text),
    Column("total_bytes", "of", bytes_text),
)
POLL_S: Final = 0.5
PLAN_BYTES_MAX: Final = 64 << 20
_RATE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMG]?)(i?)B?(?:/s)?")
_FACTORS: Final = {"": 0, "K": 1, "M": 2, "G": 3}


def parse_rate(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """Bytes per second, such as 50MB."""
    if text is None:
        return None
    found = _RATE.fullmatch(text.strip())
    rate = 0
    if found is not None:
        base = 1024 if found[3] else 1000
        rate = round(float(found[1]) * base ** _FACTORS[found[2].upper()])
    if not 0 < rate < 2**63:
        raise click.BadParameter(f"{text!r} is not a rate in bytes per second, such as 50MB or 50000000")
    return rate


throttle_option: Final = click.option(
    "--throttle",
    callback=parse_rate,
    metavar="RATE",
    help="Copy at most so many bytes per second and broker, such as 50MB.",
)


@click.group(cls=ClusterGroup)
def reassign() -> None:
    """Move replicas between brokers: plan, run, status, cancel."""


@reassign.command(
    epilog="""\b
Examples:
  barnabas reassign plan --all -o plan.json           spread all replicas over all brokers
  barnabas reassign plan --all --without 3 -o out.json    move all replicas away from broker 3
  barnabas reassign plan --topic orders -r 3 -o plan.json"""
)
@topics_option()
@click.option("--all", "everything", is_flag=True, help="All partitions.")
@internal_option
@click.option("--brokers", metavar="ID,...", help="Brokers that get the replicas.  [default: all]")
@click.option("--without", metavar="ID,...", help="Brokers that get none.")
@click.option(
    "-r", "--replication-factor", type=click.IntRange(min=1), metavar="N", help="Number of replicas."
)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, writable=True), metavar="FILE", help="Write the plan."
)
@click.option(
    "--current",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="Write a plan that goes back to the present replicas.",
)
@cluster_command
def plan(
    target: Target,
    topics: tuple[str, ...],
    everything: bool,
    internal: bool,
    brokers: str | None,
    without: str | None,
    replication_factor: int | None,
    output: str | None,
    current: str | None,
) -> None:
    """Plan where replicas should be. Nothing is moved.

    The plan moves as few replicas as possible and spreads them evenly, over racks as well. --json prints the plan in
    the format of Kafka's kafka-reassign-partitions, which -o writes to a file.
    """
    from barnabas.views.assignment import changes_of, plan_assignment, plan_text

    if bool(topics) == everything:
        raise click.UsageError("Specify partitions: --topic TOPIC[:P,...], or --all.")
    with target.admin() as admin:
        present = _present(admin, topics, internal=internal)
        racks = _chosen_brokers(admin, brokers, without)
    if not present:
        fail("there are no partitions to plan for. --internal includes internal topics", NOT_FOUND)
    changes = changes_of(present, plan_assignment(present, racks, replication_factor))
    if current is not None:
        Path(current).write_text(plan_text({key: present[key] for key in changes or present}) + "\n")
    if output is not None and changes:
        Path(output).write_text(plan_text(changes) + "\n")
    if target.as_json:
        click.echo(plan_text(changes))
        return
    rows = _planned_rows(present, changes)
    show(
        rows,
        PLANNED,
        as_json=False,
        nothing="All replicas are where they should be. There is nothing to move.",
    )
    if changes:
        moved = sum(len(set(replicas) - set(present[key])) for key, replicas in changes.items())
        run_it = (
            f"`barnabas reassign run {output}` carries it out"
            if output
            else "Write it to a file with -o FILE"
        )
        note(
            f"{len(changes):,} of {count_text(len(present), 'partition')} change,"
            f" {count_text(moved, 'replica')} {'is' if moved == 1 else 'are'} copied. {run_it}."
        )


def _planned_rows(
    present: Mapping[TopicPartition, Sequence[int]], changes: Assignment
) -> list[dict[str, Any]]:
    return [
        {
            "topic": key.topic,
            "partition": key.partition,
            "replicas": list(present[key]),
            "new_replicas": list(replicas),
        }
        for key, replicas in sorted(changes.items())
    ]


def _present(admin: Admin, topics: Sequence[str], *, internal: bool) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas of these partitions, or of all."""
    from barnabas.model import TopicPartition

    if topics:
        chosen = set(partitions_of(admin, topics))
        described = described_topics(admin, sorted({each.topic for each in chosen}))
    else:
        chosen = None
        described = {
            name: topic
            for name, topic in admin.describe_topics().items()
            if internal or not topic.is_internal
        }
    found = {
        TopicPartition(name, each.partition): each.replicas
        for name, topic in described.items()
        for each in topic.partitions
    }
    return {key: replicas for key, replicas in found.items() if chosen is None or key in chosen}


def _chosen_brokers(admin: Admin, brokers: str | None, without: str | None) -> dict[int, str | None]:
    """The racks of the brokers that get replicas."""
    alive = {node.id: node.rack for node in admin.describe_cluster().nodes}
    chosen = _ids("--brokers", brokers) if brokers is not None else sorted(alive)
    _check_alive(alive, chosen)
    left_out = _ids("--without", without) if without is not None else []
    racks = {broker: alive[broker] for broker in chosen if broker not in left_out}
    if not racks:
        fail("no broker is left that could get replicas")
    return racks


def _ids(option: str, text: str) -> list[int]:
    try:
        return sorted({int(each) for each in text.split(",")})
    except ValueError:
        raise click.UsageError(f"{option}: {text!r} is not a list of broker ids, such as 1,2,3.") from None


def _check_alive(alive: Iterable[int], brokers: Iterable[int]) -> None:
    missing = sorted(set(brokers) - set(alive))
    if missing:
        known = ", ".join(map(str, sorted(alive)))
        fail(f"no broker {', '.join(map(str, missing))} is alive; there are {known}", NOT_FOUND)


@reassign.command(
    epilog="""\b
Examples:
  barnabas reassign run plan.json --throttle 50MB
  barnabas reassign run plan.json --no-wait --yes"""
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False), metavar="PLAN")
@throttle_option
@click.option("--no-wait", is_flag=True, help="Return when the reassignment has begun.")
@click.option("--additional", is_flag=True, help="Run although other reassignments are under way.")
@yes_option
@cluster_command
def run(target: Target, file: str, throttle: int | None, no_wait: bool, additional: bool, yes: bool) -> None:
    """Carry out a plan, and wait until all replicas are in sync.

    PLAN is a file of `barnabas reassign plan`, or of Kafka's kafka-reassign-partitions. Ctrl-C ends the waiting only:
    the cluster goes on. A throttle is removed at the end.
    """
    from barnabas.views.assignment import changes_of
    from barnabas.views.reassignment import throttle_changes

    planned = _read_plan(file)
    with target.admin() as admin:
        present = _present(admin, sorted({key.topic for key in planned}), internal=True)
        _check_plan(admin, planned, present)
        changes = changes_of(present, planned)
        under_way = admin.list_reassignments()
        # A partition on its way has the replicas of both ends.
        changes.update({key: planned[key] for key in planned if key in under_way})
        if under_way and not additional:
            fail(
                f"{count_text(len(under_way), 'reassignment')} already under way. Wait for the end with `barnabas"
                " reassign status --wait`, or use --additional"
            )
        if changes:
            confirm(f"change the replicas of {count_text(len(changes), 'partition')}", yes=yes)
            if throttle is not None:
                admin.alter_configs(throttle_changes(present, changes, throttle))
            _begin(admin, changes, has_throttle=throttle is not None)
            if not no_wait:
                _await(admin, changes, has_throttle=throttle is not None)
    rows = _planned_rows(present, changes)
    if target.as_json:
        show_json([{**row, "done": not no_wait} for row in rows])
    elif not changes:
        note("all replicas are where they should be")
    elif no_wait:
        click.echo(f"{count_text(len(changes), 'reassignment')} begun")
        note("`barnabas reassign status --wait` waits for the end, and removes the throttle if there is one.")
    else:
        click.echo(f"{count_text(len(changes), 'partition')} reassigned")


def _read_plan(file: str) -> Assignment:
    from barnabas.errors import InvalidReplicaAssignment
    from barnabas.views.assignment import parse_plan

    path = Path(file)
    if path.stat().st_size > PLAN_BYTES_MAX:
        fail(f"{file} is larger than {bytes_text(PLAN_BYTES_MAX)}: it is no plan")
    try:
        return parse_plan(path.read_text(encoding="utf-8"))
    except (InvalidReplicaAssignment, UnicodeDecodeError) as error:
        fail(f"{file}: {error}")


def _check_plan(admin: Admin, planned: Assignment, present: Mapping[TopicPartition, Sequence[int]]) -> None:
    for key in planned:
        if key not in present:
            count = sum(each.topic == key.topic for each in present)
            fail(
                f"{key.topic} has no partition {key.partition}; it has partitions 0 to {count - 1}", NOT_FOUND
            )
    alive = [node.id for node in admin.describe_cluster().nodes]
    _check_alive(alive, {broker for replicas in planned.values() for broker in replicas})


def _begin(admin: Admin, changes: Assignment, *, has_throttle: bool) -> None:
    from barnabas.client.admin.errors import AdminErrors
    from barnabas.views.reassignment import end_throttles

    try:
        admin.alter_reassignments(changes)
    except BaseException as error:
        begun = len(error.results) if isinstance(error, AdminErrors) else 0
        if has_throttle and not begun:
            end_throttles(admin)
        if begun:
            note(f"{count_text(begun, 'reassignment')} begun; `barnabas reassign cancel` cancels them.")
        raise


def _await(admin: Admin, partitions: Iterable[TopicPartition], *, has_throttle: bool) -> None:
    """Returns when none of the partitions is on its way any more."""
    from barnabas.views.reassignment import moves_under_way

    try:
        wanted = sorted(partitions)
        moves = moves_under_way(admin, wanted)
        total = sum(move.total_bytes for move in moves)
        done = _Done(moves)
        warned: set[int] = set()
        with progress_bar("copying replicas", total) as advance:
            while moves:
                _warn_of_dead(admin, moves, warned)
                time.sleep(POLL_S)
                moves = moves_under_way(admin, [move.partition for move in moves])
                advance(done.advanced(moves))
    except KeyboardInterrupt:
        note(
            "The cluster goes on with the reassignment. `barnabas reassign status --wait` waits for its end"
            + (" and removes the throttle" if has_throttle else "")
            + "; `barnabas reassign cancel` cancels it."
        )
        raise
    if has_throttle:
        _end_throttle(admin)


class _Done:
    """How many bytes are copied, of moves that end one by one and of partitions that may grow meanwhile."""

    def __init__(self, moves: Iterable[Move]) -> None:
        self._totals = {move.partition: move.total_bytes for move in moves}
        self._last = 0

    def advanced(self, moves: Iterable[Move]) -> int:
        copied = {move.partition: min(move.done_bytes, self._totals[move.partition]) for move in moves}
        now = sum(copied.get(partition, total) for partition, total in self._totals.items())
        before, self._last = self._last, max(now, self._last)
        return self._last - before


def _warn_of_dead(admin: Admin, moves: Iterable[Move], warned: set[int]) -> None:
    """Notes each broker once that replicas are copied to and that is not alive."""
    wanted = {broker for move in moves for broker in move.reassignment.adding_replicas}
    dead = wanted - {node.id for node in admin.describe_cluster().nodes} - warned
    warned |= dead
    for broker in sorted(dead):
        note(f"Broker {broker} is not alive. The reassignment goes on when it is back.")


def _end_throttle(admin: Admin) -> None:
    from barnabas.views.reassignment import end_throttles

    if admin.list_reassignments():
        note("The throttle stays, because other reassignments are under way.")
    elif end_throttles(admin):
        note("The throttle is removed.")


@reassign.command()
@topics_option("Only this topic, or some of its partitions. May be repeated.")
@click.option("--wait", is_flag=True, help="Wait for the end, and remove the throttle if there is one.")
@cluster_command
def status(target: Target, topics: tuple[str, ...], wait: bool) -> None:
    """Show the reassignments under way, and how much of the new replicas is copied."""
    from barnabas.views.reassignment import moves_under_way, throttles

    with target.admin() as admin:
        chosen = partitions_of(admin, topics) if topics else None
        moves = moves_under_way(admin, chosen)
        if wait:
            _await(admin, [move.partition for move in moves], has_throttle=True)
            moves = moves_under_way(admin, chosen)
        throttled = throttles(admin)
    rows = [
        {
            "topic": move.partition.topic,
            "partition": move.partition.partition,
            "replicas": list(move.reassignment.replicas),
            "adding": list(move.reassignment.adding_replicas),
            "removing": list(move.reassignment.removing_replicas),
            "done_bytes": move.done_bytes,
            "total_bytes": move.total_bytes,
        }
        for move in moves
    ]
    show(rows, UNDER_WAY, as_json=target.as_json, nothing="no reassignments under way")
    if throttled and not target.as_json:
        end = "" if moves else " `barnabas reassign status --wait` removes it."
        note(f"Replication is throttled on {count_text(len(throttled), 'broker or topic')}.{end}")


@reassign.command()
@topics_option()
@click.option("--all", "everything", is_flag=True, help="All reassignments.")
@yes_option
@cluster_command
def cancel(target: Target, topics: tuple[str, ...], everything: bool, yes: bool) -> None:
    """Cancel reassignments: partitions go back to the replicas that they had."""
    if bool(topics) == everything:
        raise click.UsageError("Specify partitions: --topic TOPIC[:P,...], or --all.")
    with target.admin() as admin:
        chosen = partitions_of(admin, topics) if topics else None
        under_way = admin.list_reassignments(chosen)
        if under_way:
            confirm(f"cancel {count_text(len(under_way), 'reassignment')}", yes=yes)
            admin.alter_reassignments(dict.fromkeys(under_way))
            _await(admin, under_way, has_throttle=True)
    if target.as_json:
        show_json([{"topic": key.topic, "partition": key.partition} for key in sorted(under_way)])
    elif under_way:
        for key in sorted(under_way):
            click.echo(f"{key}: cancelled")
    else:
        note("no reassignments under way")
