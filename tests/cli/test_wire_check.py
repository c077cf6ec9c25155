from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.offline import wire_check
from barnabas.protocol.codec import encode
from barnabas.protocol.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntryData,
    OpData,
)
from tests.cli.conftest import Barnabas
from tests.protocol.golden import CORPUS_PATH

CORPUS = gzip.decompress(CORPUS_PATH.read_bytes()).splitlines(keepends=True)


def golden(message: str, version: int, instance: int = 0) -> dict[str, Any]:
    for line in CORPUS:
        entry: dict[str, Any] = json.loads(line)
        if (entry["message"], entry["version"], entry["instance"]) == (message, version, instance):
            return entry
    raise AssertionError(f"{message} v{version} is not in the corpus")


def corpus_of(*entries: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)


@pytest.mark.slow
def test_the_golden_corpus_passes(barnabas: Barnabas) -> None:
    result = barnabas("wire", "check", CORPUS_PATH)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "1702 passed, 0 failed\n", "")


def test_plain_gzipped_and_standard_input(barnabas: Barnabas, tmp_path: Path) -> None:
    some = b"".join(CORPUS[::50])
    plain, zipped = tmp_path / "plain.gz", tmp_path / "zipped.jsonl"
    plain.write_bytes(some)
    zipped.write_bytes(gzip.compress(some))
    for arguments, stdin, count in (
        ((plain,), b"", 35),
        ((zipped,), b"", 35),
        ((plain, zipped, plain), b"", 105),
        (("-",), some, 35),
        (("-",), gzip.compress(some), 35),
        ((plain, "-"), b"\n\n" + some, 70),
    ):
        result = barnabas("wire", "check", *arguments, stdin=stdin)
        assert (result.exit_code, result.stdout) == (0, f"{count} passed, 0 failed\n")


def change_json(entry: dict[str, Any]) -> None:
    entry["json"]["brokers"][0]["port"] += 1


def change_hex(entry: dict[str, Any]) -> None:
    entry["hex"] = entry["hex"][:40] + "ff" + entry["hex"][42:]


def cut_hex(entry: dict[str, Any]) -> None:
    entry["hex"] = entry["hex"][:-2]


def lengthen_hex(entry: dict[str, Any]) -> None:
    entry["hex"] += "00"


def leave_out(entry: dict[str, Any]) -> None:
    del entry["json"]["clusterId"]


def add_field(entry: dict[str, Any]) -> None:
    entry["json"]["topics"][0]["color"] = "red"


def add_element(entry: dict[str, Any]) -> None:
    entry["json"]["topics"][0]["partitions"][0]["isrNodes"].append(5)


def change_type(entry: dict[str, Any]) -> None:
    entry["json"]["topics"][0]["isInternal"] = 1


def change_to_null(entry: dict[str, Any]) -> None:
    entry["json"]["topics"] = None


def change_whole(entry: dict[str, Any]) -> None:
    entry["json"] = []


def break_text(entry: dict[str, Any]) -> None:
    entry["json"]["clusterId"] = "\ud800"


def expect_tag(entry: dict[str, Any]) -> None:
    entry["unknown_tags"] = [[77, "ab"]]


def expect_tag_twice(entry: dict[str, Any]) -> None:
    entry["unknown_tags"] = [[77, "ab"], [77, "ab"]]


def change_message(entry: dict[str, Any]) -> None:
    entry["message"] = "MetadataRespond"


def change_version(entry: dict[str, Any]) -> None:
    entry["version"] = 99


@pytest.mark.parametrize(
    ("change", "reports"),
    [
        (
            change_json,
            [r"brokers\[0\]\.port: decoded 711, expected 712", r"brokers\[0\]\.port: the JSON encodes to"],
        ),
        (change_hex, [r"brokers\[0\]\.port: decoded \d+, expected 711", r"\.port: .*; from byte 20 on 00"]),
        (
            cut_hex,
            [r"does not decode at byte 305: the bytes end", r"the JSON encodes to 306 bytes, expected 305"],
        ),
        (
            lengthen_hex,
            [r"does not decode at byte 306: 1 bytes left over", r"from byte 306 on nothing, expected 00"],
        ),
        (
            leave_out,
            [r"clusterId: decoded \".*\", expected nothing", r"clusterId: the JSON does not encode: missing"],
        ),
        (add_field, [r"topics\[0\]\.color: decoded nothing, expected \"red\"", r"there is no field 'color'"]),
        (
            add_element,
            [r"topics\[0\]\.partitions\[0\]\.isrNodes: decoded 1 elements, expected 2", r"the JSON encodes"],
        ),
        (
            change_type,
            [r"topics\[0\]\.isInternal: decoded true, expected 1", r"isInternal: the JSON does not encode"],
        ),
        (change_to_null, [r"topics: decoded \[.*, expected null", r"topics: the JSON does not encode: null"]),
        (change_whole, [r"decoded \{.*, expected \[\]", r"the JSON does not encode: an object wanted"]),
        (break_text, [r"clusterId: decoded \".*\", expected \"\\ud800\"", r"clusterId: .* UTF-8"]),
        (
            expect_tag,
            [r"unknown_tags: decoded \[\], expected \[\[77, \"ab\"\]\]", r"from byte 305 on 014d01ab"],
        ),
        (expect_tag_twice, [r"unknown_tags: decoded \[\]", r"tag 77 stands behind tag 77"]),
        (change_message, [r"MetadataRespond version 12: there is no such message"]),
        (change_version, [r"MetadataResponse version 99: there is no such version, only 0-13"]),
    ],
)
def test_differences_are_named(
    barnabas: Barnabas, tmp_path: Path, change: Callable[[dict[str, Any]], None], reports: list[str]
) -> None:
    good = golden("MetadataResponse", 12)
    bad = golden("MetadataResponse", 12)
    change(bad)
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(corpus_of(good, bad, good))
    result = barnabas("wire", "check", path)
    assert result.exit_code == 1
    *lines, last = result.stdout.splitlines()
    assert last == "2 passed, 1 failed"
    assert len(lines) == len(reports)
    for line, report in zip(lines, reports, strict=True):
        assert line.startswith(f"{path}:2: {bad['message']} version {bad['version']}: ")
        assert re.search(report, line), line


@pytest.mark.parametrize(
    ("line", "report"),
    [
        (b"not JSON", "not JSON: Expecting value"),
        (b"\xff\xfe", "not JSON: 'utf-8' codec"),
        (b"[" * 100_000, "not JSON: "),
        (b'{"message": ' + b"9" * 5000 + b"}", "not JSON: Exceeds the limit"),
        (b"[]", "not a JSON object"),
        (b"{}", '"message" is missing'),
        (b'{"message": 5}', '"message" must be a name, not 5'),
        (b'{"message": "A"}', '"version" is missing'),
        (b'{"message": "A", "version": true}', '"version" must be a whole number, not true'),
        (b'{"message": "A", "version": 1, "hex": ""}', '"json" is missing'),
        (b'{"message": "A", "version": 1, "json": {}}', '"hex" is missing'),
        (b'{"message": "A", "version": 1, "json": {}, "hex": "0g"}', '"hex" is not hex'),
        (
            b'{"message": "A", "version": 1, "json": {}, "hex": "", "unknown_tags": {}}',
            '"unknown_tags" must be',
        ),
        (
            b'{"message": "A", "version": 1, "json": {}, "hex": "", "unknown_tags": [5]}',
            '"unknown_tags" must be',
        ),
        (b'{"message": "A", "version": 1, "json": {}, "hex": "", "unknown_tags": [[-1, ""]]}', "[-1"),
        (b'{"message": "A", "version": 1, "json": {}, "hex": "", "unknown_tags": [[1, "x"]]}', "tag 1"),
        (
            b'{"message": "../x", "version": 1, "json": {}, "hex": ""}',
            "../x version 1: there is no such message",
        ),
    ],
    ids=range(17),
)
def test_bad_lines_are_named_by_file_and_number(
    barnabas: Barnabas, tmp_path: Path, line: bytes, report: str
) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(CORPUS[0] + b"\n" + line + b"\n" + CORPUS[1])
    result = barnabas("wire", "check", path)
    assert result.exit_code == 1
    first, last = result.stdout.splitlines()
    assert first.startswith(f"{path}:3: ")
    assert report in first
    assert last == "2 passed, 1 failed"


@pytest.mark.parametrize("kept_bytes", [3, 20, 5000])
def test_a_gzip_that_breaks_off(barnabas: Barnabas, tmp_path: Path, kept_bytes: int) -> None:
    path = tmp_path / "corpus.gz"
    path.write_bytes(CORPUS_PATH.read_bytes()[:kept_bytes])
    result = barnabas("wire", "check", path)
    assert result.exit_code == 1
    *_, fault, last = result.stdout.splitlines()
    assert re.match(rf"{path}:\d+: cannot be decompressed from here on", fault)
    assert last.endswith("passed, 1 failed")


def test_a_gzip_of_garbage(barnabas: Barnabas, tmp_path: Path) -> None:
    path = tmp_path / "corpus.gz"
    data = bytearray(CORPUS_PATH.read_bytes())
    data[2000:2100] = bytes(100)
    path.write_bytes(data)
    result = barnabas("wire", "check", path)
    assert result.exit_code == 1
    assert "failed" in result.stdout.splitlines()[-1]


def test_a_line_without_end(barnabas: Barnabas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_check, "MAX_LINE_BYTES", 5000)
    path = tmp_path / "corpus.gz"
    path.write_bytes(gzip.compress(CORPUS[0] + b"x" * 1_000_000))
    result = barnabas("wire", "check", path)
    assert result.exit_code == 1
    assert result.stdout == (
        f"{path}:2: longer than 5000 bytes: the rest of the file is not read\n1 passed, 1 failed\n"
    )


def test_json_for_scripts(barnabas: Barnabas, tmp_path: Path) -> None:
    bad = golden("MetadataResponse", 12)
    change_json(bad)
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(CORPUS[0] + corpus_of(bad))
    result = barnabas("wire", "check", "--json", path)
    assert result.exit_code == 1
    found, sums = (json.loads(line) for line in result.stdout.splitlines())
    assert sums == {"passed": 1, "failed": 1}
    assert (found["file"], found["line"], found["message"], found["version"]) == (
        str(path),
        2,
        "MetadataResponse",
        12,
    )
    assert found["differences"][0] == {"field": "brokers[0].port", "what": "decoded 711, expected 712"}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), -0.0, 5e-324, 1e22])
def test_doubles_that_are_not_plain_numbers(barnabas: Barnabas, value: float) -> None:
    message = AlterClientQuotasRequest(entries=[EntryData(ops=[OpData(key="k", value=value)])])
    named = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    ops = [{"key": "k", "value": named.get(str(value), value), "remove": False}]
    entry = {
        "message": "AlterClientQuotasRequest",
        "version": 1,
        "json": {"entries": [{"entity": [], "ops": ops}], "validateOnly": False},
        "hex": encode(message, 1).hex(),
    }
    result = barnabas("wire", "check", "-", stdin=corpus_of(entry))
    assert result.stdout == "1 passed, 0 failed\n"


def test_a_bar_on_a_terminal_only(
    barnabas: Barnabas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(b"".join(CORPUS[:20]))
    assert barnabas("wire", "check", path).stderr == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    result = barnabas("wire", "check", path)
    assert result.stdout == "20 passed, 0 failed\n"
    assert path.name in result.stderr


def test_a_missing_file_is_named(barnabas: Barnabas, tmp_path: Path) -> None:
    result = barnabas("wire", "check", tmp_path / "nothing.gz")
    assert result.exit_code == 2
    assert "No such file or directory" in result.stderr
    result = barnabas("wire", "check")
    assert result.exit_code == 2
    assert "Missing argument" in result.stderr
