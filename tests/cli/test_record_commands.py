"""Commands that send and read records, against a running broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from barnabas.testing import Broker
from tests.cli.conftest import START_MS, Barnabas

# This bounds a wait on a busy machine; it is not what is expected.
TIMEOUT_S = 120


@pytest.fixture
def rows(ok: Callable[..., str]) -> Callable[..., list[dict[str, Any]]]:
    def call(*arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in ok(*arguments, "--json").splitlines()]

    return call


def test_lines_go_in_and_come_out(ok: Callable[..., str]) -> None:
    assert ok("produce", "lines", "--create", stdin=b"hello\nworld\r\n\nlast without an end") == ""
    assert ok("consume", "lines") == "hello\nworld\n\nlast without an end\n"


def test_keys_headers_nulls_and_places(
    ok: Callable[..., str], rows: Callable[..., Any], run: Barnabas
) -> None:
    ok("topics", "create", "keyed", "-p", "4")
    arguments = (
        "-k",
        "=>",
        "-H",
        "a=1",
        "-H",
        "b=2",
        "-p",
        "3",
        "--timestamp",
        "1700000000000",
        "--null",
        "NULL",
    )
    told = run("produce", "keyed", *arguments, "--json", stdin=b"k=>v\nx=>NULL\n")
    assert [json.loads(line)["offset"] for line in told.stdout.splitlines()] == [0, 1]
    first, second = rows("consume", "keyed")
    assert first == {
        "topic": "keyed",
        "partition": 3,
        "offset": 0,
        "timestamp_ms": START_MS,
        "key": "k",
        "value": "v",
        "headers": [["a", "1"], ["b", "2"]],
    }
    assert (second["key"], second["value"]) == ("x", None)
    assert ok("consume", "keyed", "--format", "key-value", "-k", "|") == "k|v\nx|null\n"


def test_json_goes_round(ok: Callable[..., str], rows: Callable[..., Any], tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    records.write_text(
        '{"value":"text","key":"k","headers":[["h","v"],["h",null]],"timestamp_ms":5}\n'
        '{"value":{"base64":"//79"},"key":null}\n'
        '{"value":{"any":["json",1]}}\n'
    )
    ok("topics", "create", "json-1", "json-2")
    ok("produce", "json-1", "-f", "json", records)
    again = ok("consume", "json-1", "--json")
    ok("produce", "json-2", "--format", "json", stdin=again.encode())
    first, second = rows("consume", "json-1"), rows("consume", "json-2")
    for row in first + second:
        del row["topic"]
    assert first == second
    assert first[0]["headers"] == [["h", "v"], ["h", None]]
    assert first[0]["timestamp_ms"] == 5
    assert first[1]["value"] == {"base64": "//79"}
    assert first[2]["value"] == '{"any":["json",1]}'


def test_the_key_of_all_records_is_that_of_json_too(ok: Callable[..., str], rows: Callable[..., Any]) -> None:
    lines = b'{"value":"1"}\n{"value":"2","key":"own"}\n'
    ok("produce", "one-key", "--create", "--format", "json", "--key", "k", stdin=lines)
    assert [(row["key"], row["value"]) for row in rows("consume", "one-key")] == [("k", "1"), ("k", "2")]


def test_files_as_records(ok: Callable[..., str], rows: Callable[..., Any], tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"{name}\nof two lines")
    ok("produce", "files", "--create", "--format", "file", tmp_path / "one", tmp_path / "two", "--key", "k")
    assert [(row["key"], row["value"]) for row in rows("consume", "files")] == [
        ("k", "one\nof two lines"),
        ("k", "two\nof two lines"),
    ]


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compressions(ok: Callable[..., str], compression: str) -> None:
    lines = "".join(f"line {number}\n" for number in range(1_000))
    ok("produce", f"small-{compression}", "--create", "--compression", compression, stdin=lines.encode())
    assert ok("consume", f"small-{compression}") == lines


@pytest.mark.parametrize(
    ("arguments", "line", "told"),
    [
        (["-k", ":"], b"a:b\nno key\n", "standard input, line 2: there is no ':' between key and value"),
        (["-f", "json"], b"{\n", "standard input, line 1: this is not JSON"),
        (["-f", "json"], b"[" * 100_000 + b"\n", "standard input, line 1: this is not JSON"),
        (["-f", "json"], b'{"value":1,"timestamp_ms":9223372036854775808}\n', "timestamp_ms is from 0 to"),
        (["-f", "json"], b'{"value":1,"timestamp_ms":-9223372036854775809}\n', "timestamp_ms is from 0 to"),
        (["-f", "json"], b"[]\n", 'standard input, line 1: a record is {"value"'),
        (["-f", "json"], b'{"value":1,"partition":"x"}\n', "partition is a whole number, not 'x'"),
        (["-f", "json"], b'{"value":{"base64":"="}}\n', "this is not a record"),
        (["-f", "json"], b'{"value":"v","headers":[1]}\n', "this is not a record"),
        (["-p", "9"], b"x\n", "partition"),
        (["-X", "max.request.size=100"], b"x" * 1000 + b"\n", "max.request.size"),
        (["-X", "linger=3"], b"x\n", "did you mean linger.ms"),
    ],
)
def test_what_cannot_be_sent(
    run: Barnabas, ok: Callable[..., str], arguments: list[str], line: bytes, told: str
) -> None:
    ok("topics", "create", "refusing", "--if-not-exists")
    result = run("produce", "refusing", *arguments, stdin=line)
    assert result.exit_code in (1, 4)
    assert result.stderr.startswith("barnabas: ")
    assert told in result.stderr


def test_records_before_a_bad_line_are_sent(run: Barnabas, ok: Callable[..., str]) -> None:
    run("produce", "until-bad", "--create", "-k", ":", stdin=b"a:1\nb:2\nbad\nc:3\n")
    assert ok("consume", "until-bad") == "1\n2\n"


def test_a_topic_that_is_not_there(run: Barnabas, ok: Callable[..., str]) -> None:
    ok("topics", "create", "invoices")
    result = run("produce", "invoics", stdin=b"x\n")
    assert result.exit_code == 4
    assert result.stderr == (
        "barnabas: there is no topic invoics; did you mean invoices? Create it with `barnabas topics create invoics`,"
        " or use --create\n"
    )
    assert run("consume", "invoics").exit_code == 4
    assert run("copy", "invoics", "x").exit_code == 4
    result = run("consume", "invoices:3")
    assert result.stderr == "barnabas: invoices has no partition 3; it has partitions 0 to 0\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--from", "8"], ["r-0-8", "r-0-9", "r-1-8", "r-1-9"]),
        (["--from", "-1"], ["r-0-9", "r-1-9"]),
        (["--from", "end"], []),
        (["--until", "1"], ["r-0-0", "r-1-0"]),
        (["--from", f"@{START_MS + 8_500}"], ["r-0-9", "r-1-9"]),
        (["--until", "2023-11-14T22:13:21Z"], ["r-0-0", "r-1-0"]),
        (["--from", "3", "--until", "4"], ["r-0-3", "r-1-3"]),
        (["--from", "4", "--until", "3"], []),
        (["--from", "1h"], []),
        (["--from", "99999"], []),
    ],
)
def test_from_and_until(
    ok: Callable[..., str], numbered: str, arguments: list[str], expected: list[str]
) -> None:
    assert sorted(ok("consume", numbered, *arguments).split()) == expected


def test_one_partition_and_a_number_of_records(ok: Callable[..., str], numbered: str) -> None:
    assert ok("consume", f"{numbered}:1", "-n", "2") == "r-1-0\nr-1-1\n"
    form = "{topic}/{partition}/{offset} {key}={value} {headers} {timestamp} {size}"
    assert ok("consume", f"{numbered}:1", "-n", "1", "--format", form) == (
        f"numbered/1/0 k0=r-1-0 n=0 {START_MS} 5\n"
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--from", "soon"], "'soon' is none of: beginning, end"),
        (["--format", "keyvalue"], "has no name in braces"),
        (["--format", "{nothing}"], "there are topic, partition, offset"),
        (["--format", "{value"], "there are topic, partition, offset"),
        (["--follow", "--until", "end"], "--follow and --until do not go"),
        (["--group", "g", "--until", "3"], "A group assigns"),
        (["--group", "g", "--from", "3"], "beginning or end"),
        (["-n", "0"], "0 is not in the range"),
    ],
)
def test_wrong_use(run: Barnabas, numbered: str, arguments: list[str], told: str) -> None:
    result = run("consume", numbered, *arguments)
    assert result.exit_code == 2
    assert told in result.stderr


@pytest.mark.slow
def test_several_topics_and_regular_expressions(
    run: Barnabas, ok: Callable[..., str], broker: Broker
) -> None:
    for name in ("re-one", "re-two", "re-other", "more-re-one"):
        ok("produce", name, "--create", stdin=f"{name}\n".encode())
    assert sorted(ok("consume", "re-one", "re-other:0").split()) == ["re-one", "re-other"]
    assert sorted(ok("consume", "--regex", "re-o.*").split()) == ["re-one", "re-other"]
    # Whole names, and any of several expressions.
    assert sorted(ok("consume", "-r", "re-(?:one|two)", ".*other").split()) == [
        "re-one",
        "re-other",
        "re-two",
    ]
    assert sorted(ok("consume", "-r", "re-.*", "--group", "g-regex").split()) == [
        "re-one",
        "re-other",
        "re-two",
    ]
    assert ok("consume", "-r", "re-.*", "--group", "g-regex") == ""
    ok("groups", "delete", "g-regex", "--yes")
    result = run("consume", "-r", "re-o", ".*consumer_offsets")
    assert (result.exit_code, result.stderr) == (4, "barnabas: no topic matches re-o or .*consumer_offsets\n")
    result = run("consume", "-r", "re-(")
    assert result.exit_code == 2
    assert "'re-(' is not a regular expression: " in result.stderr


def test_ranges_of_partitions(run: Barnabas, ok: Callable[..., str]) -> None:
    ok("topics", "create", "wide", "-p", "6")
    for number in range(6):
        ok("produce", "wide", "-p", str(number), stdin=b"%d\n" % number)
    assert sorted(ok("consume", "wide:0-2,5").split()) == ["0", "1", "2", "5"]
    for text in ("wide:", "wide:1-", "wide:-1", "wide:1-2-3", "wide:x", "wide:1,,2", "wide:0-99999999"):
        result = run("consume", text)
        assert (result.exit_code == 2) == (text != "wide:"), text
    assert "no partition 6" in run("consume", "wide:4-6").stderr


def test_as_a_member_of_a_group(
    ok: Callable[..., str], rows: Callable[..., Any], numbered: str, run: Barnabas
) -> None:
    first = ok("consume", numbered, "--group", "g-reading", "-n", "7").split()
    rest = ok("consume", numbered, "--group", "g-reading").split()
    assert len(first) == 7
    assert sorted(first + rest) == sorted(
        f"r-{partition}-{number}" for partition in range(2) for number in range(10)
    )
    assert ok("consume", numbered, "--group", "g-reading") == ""
    (group,) = json.loads(ok("groups", "describe", "g-reading", "--json"))
    assert [row["lag"] for row in group["offsets"]] == [0, 0]
    ok("groups", "reset-offsets", "g-reading", "--topic", f"{numbered}:0", "--shift-by", "-3", "--yes")
    assert ok("consume", numbered, "--group", "g-reading").split() == ["r-0-7", "r-0-8", "r-0-9"]
    ok("groups", "delete", "g-reading", "--yes")


def test_transactions(ok: Callable[..., str], rows: Callable[..., Any], broker: Broker) -> None:
    """Markers at the end of a partition are no records, and an open transaction is not waited for."""
    ok("topics", "create", "accounts")
    with broker.producer(transactional_id="bank") as producer:
        with producer.transaction():
            producer.send("accounts", b"committed")
        producer.begin_transaction()
        producer.send("accounts", b"aborted").result(TIMEOUT_S)
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send("accounts", b"open").result(TIMEOUT_S)
        for isolation, expected in (
            ("read_committed", ["committed"]),
            ("read_uncommitted", ["committed", "aborted", "open"]),
        ):
            chosen = ("--isolation", isolation)
            assert ok("consume", "accounts", *chosen).split() == expected
            assert ok("consume", "accounts", *chosen, "--group", f"accounts-{isolation}").split() == expected
        (described,) = json.loads(ok("transactions", "describe", "bank", "--json"))
        assert (described["state"], described["partitions"]) == ("Ongoing", ["accounts-0"])
        (writing,) = json.loads(ok("transactions", "producers", "accounts", "--open", "--json"))
        assert writing["transaction_start_offset"] == 4
        producer.abort_transaction()


def test_copies(ok: Callable[..., str], rows: Callable[..., Any], numbered: str, run: Barnabas) -> None:
    result = run("copy", numbered, "n-copy")
    assert result.exit_code == 4
    assert "Use --create to create it with 2 partitions, as numbered has" in result.stderr
    result = run("copy", numbered, "n-copy", "--create", "--exact")
    assert (result.exit_code, result.stderr) == (0, "20 records copied from numbered to n-copy\n")
    original, copied = rows("consume", numbered), rows("consume", "n-copy")
    for row in original + copied:
        del row["topic"]
    assert sorted(original, key=str) == sorted(copied, key=str)

    ok("topics", "create", "n-plain")
    assert json.loads(ok("copy", f"{numbered}", "n-plain", "--from", "8", "--json"))["records"] == 4
    for row in rows("consume", "n-plain"):
        assert row["key"] in ("k8", "k9")
        assert row["headers"] == []
        assert row["timestamp_ms"] > START_MS + 10_000
    result = run("copy", numbered, "n-plain", "--keep-partitions")
    assert "n-plain has 1 partition, and numbered 2: add partitions" in result.stderr
    result = run("copy", numbered, numbered)
    assert result.stderr == "barnabas: numbered is the source itself; name another topic or another cluster\n"
    assert run("copy", numbered).exit_code == 2


@pytest.mark.slow
def test_a_copy_to_another_cluster(ok: Callable[..., str], numbered: str, run: Barnabas) -> None:
    with Broker() as other:
        result = run("copy", numbered, "--to-bootstrap", other.bootstrap, "--create", "--exact")
        assert (result.exit_code, result.stderr) == (0, "20 records copied from numbered to numbered\n")
        there = ok("consume", numbered, "--json", "--bootstrap", other.bootstrap)
    assert sorted(there.splitlines()) == sorted(ok("consume", numbered, "--json").splitlines())


def test_measures(ok: Callable[..., str], run: Barnabas) -> None:
    ok("topics", "create", "perf", "-p", "2")
    assert run("perf", "consume", "perf").stderr == "barnabas: there are no records to read\n"
    produced = json.loads(ok("perf", "produce", "perf", "-n", "2000", "--json"))
    assert (produced["records"], produced["bytes"]) == (2000, 200_000)
    each = json.loads(ok("perf", "produce", "perf", "-n", "500", "-s", "10", "--each", "--json"))
    assert 0 < each["p50_ms"] <= each["p99_ms"] <= each["max_ms"]
    paced = json.loads(ok("perf", "produce", "perf", "-n", "100", "--rate", "1000", "--json"))
    assert paced["seconds"] >= 0.09
    for form in ("records", "batches"):
        assert json.loads(ok("perf", "consume", "perf", "--as", form, "--json"))["records"] == 2600
    latency = json.loads(ok("perf", "latency", "perf", "-n", "20", "--rate", "200", "--json"))
    assert 0 < latency["p50_ms"] <= latency["max_ms"]
    assert ok("perf", "consume", "perf").startswith("records  seconds  records/s")


@contextmanager
def start(broker: Broker, *arguments: str, **streams: Any) -> Iterator[subprocess.Popen[bytes]]:
    """The command as a process, which does not outlive the test. Ctrl-C reaches it wherever the tests were started."""
    process = subprocess.Popen(
        [sys.executable, "-m", "barnabas", *arguments],
        env={**os.environ, "BARNABAS_BOOTSTRAP": broker.bootstrap},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        **streams,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.mark.slow
def test_following_until_ctrl_c(broker: Broker) -> None:
    with broker.admin() as admin:
        admin.create_topics("followed")
    with start(broker, "consume", "followed", "--follow") as following, broker.producer() as producer:
        assert following.stdout is not None
        for number in range(3):
            producer.send("followed", b"%d" % number).result(TIMEOUT_S)
            assert following.stdout.readline() == b"%d\n" % number
        following.send_signal(signal.SIGINT)
        _, errors = following.communicate(timeout=TIMEOUT_S)
    assert following.returncode == 130
    assert errors.strip() == b""


@pytest.mark.slow
def test_a_slow_writer_is_not_waited_for(broker: Broker) -> None:
    """Each line is on its way before the next is there."""
    with start(broker, "produce", "slow", "--create", "--json", stdin=subprocess.PIPE) as producing:
        assert producing.stdin is not None
        assert producing.stdout is not None
        producing.stdin.write(b"first\n")
        producing.stdin.flush()
        assert json.loads(producing.stdout.readline())["offset"] == 0
        with broker.consumer("slow") as consumer:
            assert next(consumer).value == b"first"
        output, errors = producing.communicate(b"second\n", timeout=TIMEOUT_S)
    assert (producing.returncode, errors) == (0, b"")
    assert json.loads(output)["offset"] == 1


@pytest.mark.slow
def test_a_reader_that_has_seen_enough(broker: Broker) -> None:
    with broker.admin() as admin, broker.producer() as producer:
        admin.create_topics("plenty")
        producer.send_many("plenty", [b"x" * 1000] * 5_000).result(TIMEOUT_S)
    read_end, write_end = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-m", "barnabas", "consume", "plenty", "--bootstrap", broker.bootstrap],
        stdout=write_end,
        stderr=subprocess.PIPE,
    )
    os.close(write_end)
    with os.fdopen(read_end, "rb") as reader:
        assert reader.readline() == b"x" * 1000 + b"\n"
    _, errors = child.communicate(timeout=TIMEOUT_S)
    assert (child.returncode, errors) == (1, b"")
