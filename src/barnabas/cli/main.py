"""`barnabas`: finds the command's module, and turns our own errors into one line and an exit code."""

from __future__ import annotations

import importlib
import io
import os
import sys

import click

from barnabas import __version__
from barnabas.cli.shared.exit_codes import FAILED, FAULT, INTERRUPTED, NOT_FOUND
from barnabas.cli.shared.group import ClusterGroup, connects, given_options
from barnabas.errors import GroupIdNotFound, KafkaError, TransactionalIdNotFound, UnknownTopicOrPartition

# name -> (module that holds a click command of that name, one line for the list of commands)
COMMANDS: dict[str, tuple[str, str]] = {
    "start": ("barnabas.cli.start", "Run a broker."),
    "topics": ("barnabas.cli.topics", "Create, list, describe, alter and delete topics."),
    "produce": ("barnabas.cli.produce", "Send records to a topic."),
    "consume": ("barnabas.cli.consume", "Print the records of topics."),
    "copy": ("barnabas.cli.copy", "Copy records to another topic or cluster."),
    "groups": ("barnabas.cli.groups", "Show consumer groups: members, lag and offsets."),
    "configs": ("barnabas.cli.configs", "Show and change settings of topics, brokers and groups."),
    "transactions": ("barnabas.cli.transactions", "Show and end transactions, and their producers."),
    "log-dirs": ("barnabas.cli.log_dirs", "Show log directories and replicas, and move replicas."),
    "leaders": ("barnabas.cli.leaders", "Show and elect the leaders of partitions."),
    "reassign": ("barnabas.cli.reassign", "Move replicas between brokers: plan, run, status, cancel."),
    "quotas": ("barnabas.cli.quotas", "Show, set and delete quotas of users, clients and addresses."),
    "users": ("barnabas.cli.users", "Create, list and delete users that log in with a password."),
    "acls": ("barnabas.cli.acls", "Allow and deny operations, and show who may do what."),
    "cluster": (
        "barnabas.cli.cluster",
        "Show a cluster and its problems, or move it to ZooKeeper.",
    ),
    "features": ("barnabas.cli.features", "Show the features of a cluster, and change their levels."),
    "profile": ("barnabas.cli.profile", "Save clusters with their settings, and switch between them."),
    "pipeline": ("barnabas.cli.pipelines.pipeline", "Check and run data pipelines on Spark."),
    "console": ("barnabas.cli.console", "Serve a web console for a cluster."),
    "perf": ("barnabas.cli.perf", "Measure how fast a cluster is."),
    "log": ("barnabas.cli.offline.log", "Inspect, verify and recover log directories."),
    "wire": ("barnabas.cli.offline.wire", "Decode and check bytes of the Kafka protocol."),
    "certs": ("barnabas.cli.offline.certs", "Create certificates for development."),
    "completion": ("barnabas.cli.completion", "Print a completion script for bash, zsh or fish."),
    "version": ("barnabas.cli.version", "Show the version, and what a bug report needs."),
}


DEBUG_VARIABLE = "BARNABAS_DEBUG"


class LazyGroup(ClusterGroup):
    """A group that lists its commands without loading them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        command = getattr(module, cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        given = given_options(ctx)
        if given and not connects(command) and not ctx.resilient_parsing:
            option = "--" + next(iter(given)).replace("_", "-")
            raise click.UsageError(
                f"`barnabas {cmd_name}` does not connect to a cluster and has no option {option}.", ctx
            )
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Many people try `barnabas help topics` first.
        return super().parse_args(ctx, [*args[1:], "--help"] if args[:1] == ["help"] else args)

    def summaries(self, ctx: click.Context) -> list[tuple[str, str]]:
        return [(name, summary) for name, (_, summary) in COMMANDS.items()]


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Commands that connect to a cluster take -b HOST[:PORT], --profile NAME, --client-config FILE and --timeout"
    " SECONDS, before or after the command.",
)
@click.version_option(__version__, prog_name="barnabas")
def barnabas() -> None:
    """Barnabas, a Kafka in Python."""


def told(error: Exception) -> str:
    """An error in one line.

    If an error has only Kafka's name, the line has no sentence, but the user can look it up.
    """
    text = str(error)
    return "; ".join(text.splitlines()) if text else type(error).__name__


def exit_code_of(error: Exception) -> int:
    """The exit code for scripts: something does not exist, or failed."""
    is_missing = isinstance(error, UnknownTopicOrPartition | GroupIdNotFound | TransactionalIdNotFound)
    return NOT_FOUND if is_missing else FAILED


def complain(text: str) -> None:
    from barnabas.cli.shared.output import complain

    complain(text)


def replace_closed_streams() -> None:
    """A closed standard stream is None, and its number would go to the next file or socket."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The system gives the lowest free number, which is that of the stream.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def main() -> None:
    replace_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        # Text comes from peers and files: a character that the terminal cannot show must not hide the rest.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        # Without standalone mode click returns the code of `ctx.exit(code)`, or what the command returned.
        exit_code = barnabas.main(prog_name="barnabas", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        from barnabas.cli.shared.output import show_error

        show_error(error)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt) as error:
        if error.__cause__ is None and sys.stderr.isatty():
            # Ctrl-C at a question. The shell's prompt needs a new line; elsewhere click prints one.
            click.echo(err=True)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # The reader (head, for example) has closed the pipe. Buffered output has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except (KafkaError, ExceptionGroup) as error:
        complain(told(error))
        sys.exit(exit_code_of(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        complain(f"{where}{error.strerror or error}")
        sys.exit(FAILED)
    except Exception as error:
        if DEBUG_VARIABLE in os.environ:
            raise
        complain(
            f"this is a bug in barnabas: {type(error).__name__}: {error}. Set {DEBUG_VARIABLE}=1 to see where"
        )
        sys.exit(FAULT)
    sys.exit(exit_code if isinstance(exit_code, int) else 0)
