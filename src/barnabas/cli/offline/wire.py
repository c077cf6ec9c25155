"""`barnabas wire`: the tables, bytes and corpora of the Kafka protocol, for people and for scripts."""

from __future__ import annotations

import difflib
import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from barnabas.cli.shared.group import CommandGroup
from barnabas.cli.shared.progress import progress_bar

if TYPE_CHECKING:
    from barnabas.cli.offline.wire_check import Checked
    from barnabas.cli.offline.wire_decode import Call, Failure
    from barnabas.protocol.apis import Api

# More than any broker takes in one request, and enough for a capture of many.
MAX_INPUT_BYTES: Final = 1 << 30


@click.group(cls=CommandGroup)
def wire() -> None:
    """Decode and check bytes of the Kafka protocol."""


@wire.command(short_help="List the APIs and their versions.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
def apis(as_json: bool) -> None:
    """List the APIs: key, name, versions, and the versions that are flexible (compact lengths, tagged fields)."""
    from barnabas.protocol.apis import APIS

    if as_json:
        _print_json([_api_row(api) for api in APIS], indent=2)
        return
    width = max(len(api.name) for api in APIS)
    click.echo(f"{'key':>3}  {'name':{width}}  versions  flexible")
    for api in APIS:
        flexible = "never" if api.first_flexible_version is None else f"{api.first_flexible_version}+"
        versions = f"{api.first_version}-{api.last_version}"
        click.echo(f"{api.key:>3}  {api.name:{width}}  {versions:8}  {flexible}")


def _api_row(api: Api) -> dict[str, Any]:
    return {
        "key": api.key,
        "name": api.name,
        "first_version": api.first_version,
        "last_version": api.last_version,
        "first_flexible_version": api.first_flexible_version,
    }


@wire.command(
    epilog="""\b
Examples:
  barnabas wire decode --direction request capture.bin
  xxd -p request.bin | barnabas wire decode --direction request
  barnabas wire decode --direction response --requests client.bin broker.bin --records
  barnabas wire decode --direction response --api Metadata --version 12 response.hex
  barnabas wire decode --message OffsetCommitValue --version 4 value.bin"""
)
@click.argument("file", type=click.File("rb"), default="-")
@click.option(
    "--direction",
    type=click.Choice(["request", "response"]),
    help="Whether the bytes are requests or responses. Complete frames need no other option, unless responses of"
    " several APIs look the same.",
)
@click.option("--api", "api_name", metavar="NAME|KEY", help="The API, such as Fetch or 1.")
@click.option(
    "--message", "message_name", metavar="NAME", help="The bytes are this message and nothing else."
)
@click.option("--version", type=int, metavar="N", help="The version of the API or the message.")
@click.option(
    "--requests",
    type=click.File("rb"),
    help="A capture of the requests, which gives the API and version of each response.",
)
@click.option(
    "--form",
    type=click.Choice(["auto", "frames", "payload", "body"]),
    default="auto",
    show_default=True,
    help="Frames (size, header, body); one payload (header, body); or one body alone.",
)
@click.option(
    "--encoding",
    type=click.Choice(["auto", "hex", "binary"]),
    default="auto",
    show_default=True,
    help="How the bytes are written. Spaces, colons and 0x between hex digits do not matter.",
)
@click.option(
    "--records", "with_records", is_flag=True, help="Show the records in a message instead of their bytes."
)
@click.option("--compact", is_flag=True, help="Print one line per message.")
def decode(
    file: BinaryIO,
    direction: str | None,
    api_name: str | None,
    message_name: str | None,
    version: int | None,
    requests: BinaryIO | None,
    form: str,
    encoding: str,
    with_records: bool,
    compact: bool,
) -> None:
    """Print requests, responses or any other message as JSON.

    FILE holds hex or binary, of one direction of a connection; without it, or with -, standard input is read.
    Bytes are printed in base64, but keys and values of --records in hex.

    Frames that do not decode are named on standard error, the others are printed; then the exit code is 1.
    """
    rules = (
        (
            message_name is None and direction is None,
            "Add --direction request or response, or --message NAME.",
        ),
        (
            message_name is not None and version is None,
            "A message does not contain its version: add --version N.",
        ),
        (
            message_name is not None and bool(direction or api_name or requests or form != "auto"),
            "--message is for a bare message, and only --version goes with it.",
        ),
        (
            message_name is None and (api_name is None) != (version is None),
            "--api and --version go together.",
        ),
        (requests is not None and direction != "response", "--requests goes with --direction response."),
        (
            form == "body" and api_name is None,
            "A bare body does not contain its type: add --api and --version.",
        ),
    )
    for is_broken, advice in rules:
        if is_broken:
            raise click.UsageError(advice)
    from barnabas.cli.offline import wire_decode

    data = wire_decode.bytes_of(_read(file), encoding)
    if not data:
        raise click.ClickException("the input is empty")
    if message_name is not None:
        assert version is not None
        name = _message(message_name)
        body = wire_decode.decode_body(name, version, data, with_records=with_records)
        documents: Iterator[dict[str, Any] | Failure] = iter([body])
    else:
        assert direction is not None
        documents = wire_decode.decode_stream(
            data,
            direction=direction,
            form=form,
            call=None if api_name is None or version is None else _call(api_name, version),
            requests=None if requests is None else wire_decode.bytes_of(_read(requests), encoding),
            with_records=with_records,
        )
    _print_all(documents, compact)


def _read(file: BinaryIO) -> bytes:
    data = file.read(MAX_INPUT_BYTES + 1)
    if len(data) > MAX_INPUT_BYTES:
        raise click.ClickException(f"{file.name} has more than {MAX_INPUT_BYTES} bytes: split it")
    return data


def _call(name: str, version: int) -> Call:
    from barnabas.cli.offline.wire_decode import Call
    from barnabas.protocol.apis import APIS

    found = [api for api in APIS if name.lower() == api.name.lower() or name == str(api.key)]
    if not found:
        raise _unknown("API", name, [api.name for api in APIS], "`barnabas wire apis` lists them")
    api = found[0]
    if not api.has_version(version):
        raise click.BadParameter(
            f"{api.name} has versions {api.first_version}-{api.last_version}, not {version}."
        )
    return Call(api=api, version=version)


def _message(name: str) -> str:
    from barnabas.protocol.schema import message_names

    names = message_names()
    found = [known for known in names if known.lower() == name.lower()]
    if not found:
        raise _unknown(
            "message", name, names, "requests and responses are named FetchRequest, FetchResponse, …"
        )
    return found[0]


def _unknown(what: str, name: str, names: list[str], advice: str) -> click.BadParameter:
    by_small_letters = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), by_small_letters, n=3)
    if near:
        advice = "did you mean " + " or ".join(by_small_letters[match] for match in near) + "?"
    return click.BadParameter(f"there is no {what} {name!r}: {advice}")


def _print_all(documents: Iterator[dict[str, Any] | Failure], compact: bool) -> None:
    from barnabas.cli.offline.wire_decode import Failure

    failed = False
    for document in documents:
        if isinstance(document, Failure):
            failed = True
            click.echo(f"barnabas: {document.what}", err=True)
        else:
            _print_json(document, indent=None if compact else 2)
    if failed:
        raise click.exceptions.Exit(1)


@wire.command(
    epilog="""\b
Examples:
  barnabas wire check golden.jsonl.gz
  zcat golden.jsonl.gz | grep FetchRequest | barnabas wire check -

\b
A line of a corpus is a JSON object:
  message       such as FetchRequest
  version
  json          the message in Kafka's JSON form
  hex           the bare message, without size and header
  unknown_tags  [[tag, hex], …], if the hex has tagged fields that the schema does not know"""
)
@click.argument("files", nargs=-1, required=True, metavar="FILE…", type=click.File("rb"))
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print a JSON line for each message that fails, and one for the totals.",
)
def check(files: tuple[BinaryIO, ...], as_json: bool) -> None:
    """Compare messages that Apache Kafka has encoded with ours.

    The command decodes each hex and compares it with the JSON beside it, and encodes each JSON and compares it with the
    hex. It prints all differences, with message, version and field. FILE is plain or gzipped, - is standard input. The
    exit code is 1 if a message fails.
    """
    from barnabas.cli.offline.wire_check import check_file

    passed = failed = 0
    for file in files:
        for checked in _with_progress(file, check_file(file.name, file)):
            if not checked.differences:
                passed += 1
                continue
            failed += 1
            if as_json:
                _print_json(checked.as_json())
            else:
                click.echo(str(checked))
    if as_json:
        _print_json({"passed": passed, "failed": failed})
    else:
        click.echo(f"{passed} passed, {failed} failed")
    if failed:
        raise click.exceptions.Exit(1)


def _with_progress(file: BinaryIO, items: Iterable[Checked]) -> Iterator[Checked]:
    """The same items, with a bar if the file's size is known."""
    if not file.seekable():
        yield from items
        return
    done_bytes = 0
    with progress_bar(os.path.basename(file.name), os.fstat(file.fileno()).st_size) as advance:
        for item in items:
            position = file.tell()
            advance(position - done_bytes)
            done_bytes = position
            yield item


def _print_json(value: Any, indent: int | None = None) -> None:
    """Characters as they are if the terminal can show them, else escaped."""
    is_unicode = sys.stdout.encoding.lower().startswith("utf")
    click.echo(json.dumps(value, indent=indent, ensure_ascii=not is_unicode))
