"""`barnabas produce`: records from standard input or files."""

from __future__ import annotations

import os
import select
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from barnabas.cli.shared.arguments import parse_pairs
from barnabas.cli.shared.client_settings import parse_client_settings
from barnabas.cli.shared.formats import INT64_MAX, LineReader, Outgoing
from barnabas.cli.shared.output import count_text, fail, note, show_json_line
from barnabas.cli.shared.progress import progress_bar
from barnabas.cli.shared.record_options import acks_option, compression_option, settings_option
from barnabas.cli.shared.target import Target, cluster_command, complete_topics, missing_topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.producer.futures import SendManyFuture
    from barnabas.client.producer.producer import Producer

READ_BYTES: Final = 1 << 20
# More than any broker accepts; bounds the memory for a line without an end.
RECORD_BYTES_MAX: Final = 64 << 20
UNANSWERED_MAX: Final = 256
LOOK_AROUND_S: Final = 0.02


@click.command(
    epilog="""\b
Examples:
  echo hello | barnabas produce greetings
  barnabas produce users --key-separator : < users.txt
  barnabas produce events --format json events.jsonl --compression zstd
  barnabas produce images --format file *.png --header kind=image"""
)
@click.argument("topic", shell_complete=complete_topics)
@click.argument(
    "files", nargs=-1, type=click.Path(exists=True, dir_okay=False, allow_dash=True), metavar="[FILE]..."
)
@click.option(
    "-f",
    "--format",
    "form",
    type=click.Choice(["lines", "json", "file"]),
    default="lines",
    show_default=True,
    help="One record per line, per line of JSON (as consume --json prints it), or per file.",
)
@click.option("-k", "--key-separator", metavar="TEXT", help="Separates key and value in each line.")
@click.option("--key", metavar="TEXT", help="Key for all records.")
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="Header for all records. May be repeated.",
)
@click.option("-p", "--partition", type=click.IntRange(min=0), metavar="N", help="Partition for all records.")
@click.option(
    "--timestamp",
    type=click.IntRange(0, INT64_MAX),
    metavar="MS",
    help="Timestamp for all records, in ms since 1970.",
)
@click.option("--null", metavar="TEXT", help="Text for a null key or value.")
@acks_option
@compression_option
@click.option("--create", is_flag=True, help="Create the topic if it does not exist.")
@settings_option("producer")
@cluster_command
def produce(
    target: Target,
    topic: str,
    files: tuple[str, ...],
    form: str,
    key_separator: str | None,
    key: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    timestamp: int | None,
    null: str | None,
    acks: str,
    compression: str,
    create: bool,
    settings: tuple[str, ...],
) -> None:
    """Send records to a topic, from files or from standard input.

    Exits with 0 if all records are acknowledged. --json prints the partition and offset of each record.
    """
    if key is not None and key_separator is not None:
        raise click.UsageError("--key and --key-separator do not go together.")
    if form == "json" and key_separator is not None:
        raise click.UsageError("JSON contains the keys: use --key-separator only with --format lines.")
    if key_separator == "":
        raise click.UsageError("--key-separator takes at least one character.")
    common = Outgoing()
    if key is not None:
        common["key"] = key.encode()
    if headers:
        common["headers"] = [(name, value.encode()) for name, value in parse_pairs(headers)]
    if partition is not None:
        common["partition"] = partition
    if timestamp is not None:
        common["timestamp_ms"] = timestamp
    chosen = parse_client_settings("producer", settings)
    _ensure_topic(target, topic, create=create)
    chosen = {"acks": acks, "compression.type": compression, **chosen}
    has_input = not files or "-" in files
    total_bytes = None if has_input else sum(os.path.getsize(file) for file in files)
    # A user who types the records sees them, and a progress bar would be in the way.
    is_typed = has_input and sys.stdin.isatty()
    with (
        target.unreachable_is_told(),
        open_producer(target, chosen) as producer,
        progress_bar(
            "producing", total_bytes, beside_output=target.as_json, is_wanted=not is_typed
        ) as advance,
    ):
        sending = Sending(producer, topic, as_json=target.as_json)
        if form == "file":
            for file in files or ("-",):
                with _open(file) as source:
                    data = source.read(RECORD_BYTES_MAX + 1)
                if len(data) > RECORD_BYTES_MAX:
                    fail(f"{file}: more than {RECORD_BYTES_MAX} bytes, too large for one record")
                sending.send([Outgoing(**common, value=data)])
                advance(len(data))
        else:
            reader = LineReader(form, key_separator, null, common)
            for file in files or ("-",):
                with _open(file) as source:
                    sending.send_lines(source, reader, "standard input" if file == "-" else file, advance)
        sending.finish()
    if sys.stderr.isatty() and not target.as_json:
        note(f"{count_text(sending.count, 'record')} sent to {topic}")


def open_producer(target: Target, settings: dict[str, Any]) -> Producer:
    from barnabas.client.producer.producer import Producer

    return Producer({**target.client_settings("producer", max_block_ms=target.timeout_ms), **settings})


def _ensure_topic(target: Target, topic: str, *, create: bool) -> None:
    """Fails if the topic does not exist. Most clusters would create a topic for a mistyped name."""
    from barnabas.client.admin.errors import AdminErrors
    from barnabas.errors import TopicAlreadyExists, UnknownTopicOrPartition

    with target.admin() as admin:
        try:
            admin.describe_topics([topic])
        except UnknownTopicOrPartition:
            if not create:
                missing_topics(
                    admin, [topic], f"Create it with `barnabas topics create {topic}`, or use --create"
                )
            try:
                admin.create_topics([topic])
            except (TopicAlreadyExists, AdminErrors):
                return


def _open(file: str) -> BinaryIO:
    if file != "-":
        return open(file, "rb")
    if sys.stdin.isatty():
        note("Type one record per line. Ctrl-D ends.")
    # Closing this must not close standard input.
    return os.fdopen(os.dup(sys.stdin.fileno()), "rb")


class Sending:
    """Passes records to a producer, many at a time, and checks their results."""

    def __init__(self, producer: Producer, topic: str, *, as_json: bool) -> None:
        self._producer = producer
        self._topic = topic
        self._as_json = as_json
        self._unanswered: deque[SendManyFuture] = deque()
        self.count = 0

    def send(self, records: Sequence[Outgoing]) -> None:
        if not records:
            return
        self._unanswered.append(self._producer.send_many(self._topic, list(records)))
        self.count += len(records)
        self.settle_done()

    def settle_done(self) -> bool:
        """Checks the results so far, and waits if many are missing; returns whether any record is still in flight."""
        while self._unanswered and (len(self._unanswered) > UNANSWERED_MAX or self._unanswered[0].done()):
            self._settle(self._unanswered.popleft())
        return bool(self._unanswered)

    def send_lines(
        self, source: BinaryIO, reader: LineReader, name: str, advance: Callable[[int], None]
    ) -> None:
        number = 0
        for lines, size_bytes in complete_lines(source, name, self.settle_done):
            records = []
            for line in lines:
                number += 1
                try:
                    records.append(reader.read(line))
                except ValueError as error:
                    # The records before it were accepted and are sent.
                    self.send(records)
                    self.finish()
                    fail(f"{name}, line {number}: {error}")
            self.send(records)
            advance(size_bytes)

    def finish(self) -> None:
        """Waits for the records in flight."""
        self._producer.flush()
        while self._unanswered:
            self._settle(self._unanswered.popleft())

    def _settle(self, future: SendManyFuture) -> None:
        for metadata in future.result():
            if not self._as_json:
                break
            show_json_line(metadata._asdict())
        if self._as_json:
            # A script may wait for the result before it writes the next line.
            sys.stdout.flush()


def complete_lines(
    source: BinaryIO, name: str, while_waiting: Callable[[], bool]
) -> Iterator[tuple[list[bytes], int]]:
    """The lines as they arrive, without their ends, and their sizes in bytes. Does not wait for a slow writer.

    While no line arrives, calls `while_waiting` from time to time, as long as it returns true.
    """
    kept: list[bytes] = []
    kept_bytes = 0
    while True:
        while while_waiting() and not select.select([source], [], [], LOOK_AROUND_S)[0]:
            pass
        data = os.read(source.fileno(), READ_BYTES)
        if not data:
            break
        if b"\n" not in data:
            kept.append(data)
            kept_bytes += len(data)
            if kept_bytes > RECORD_BYTES_MAX:
                fail(f"{name}: a line has more than {RECORD_BYTES_MAX} bytes, too large for one record")
            continue
        whole, _, rest = b"".join([*kept, data]).rpartition(b"\n")
        kept, kept_bytes = ([rest], len(rest)) if rest else ([], 0)
        yield [line.removesuffix(b"\r") for line in whole.split(b"\n")], len(data)
    if kept:
        yield [b"".join(kept).removesuffix(b"\r")], kept_bytes
