"""Commands about offsets: records deleted before one, groups set to those of a file; and when people are asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from barnabas.cli.main import barnabas as group
from barnabas.testing import Broker
from tests.cli.conftest import START_MS, Barnabas
from tests.cli.test_cluster_commands import commands


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_records_are_deleted_after_a_preview(
    run: Barnabas, ok: Callable[..., str], rows: Callable[..., Any], numbered: str
) -> None:
    preview = run("topics", "delete-records", f"{numbered}:0", "--before", "4")
    assert (preview.exit_code, preview.stderr) == (
        0,
        "Nothing was deleted. Use --execute to delete the records.\n",
    )
    assert lines(preview.stdout) == [
        ["topic", "partition", "first", "new", "first", "end", "deleted"],
        ["numbered", "0", "0", "4", "10", "4"],
    ]
    assert len(ok("consume", numbered).split()) == 20
    refused = run("topics", "delete-records", f"{numbered}:0", "--before", "4", "--execute")
    assert (refused.exit_code, refused.stderr) == (
        1,
        "barnabas: Refusing to delete 4 records of 1 partition without confirmation. Use --yes.\n",
    )
    assert len(ok("consume", numbered).split()) == 20
    assert rows("topics", "delete-records", f"{numbered}:0", "--before", "4", "--yes") == [
        {
            "topic": numbered,
            "partition": 0,
            "first_offset": 0,
            "new_first_offset": 4,
            "end_offset": 10,
            "deleted": 4,
            "executed": True,
        }
    ]
    assert ok("consume", f"{numbered}:0", "-n", "1") == "r-0-4\n"
    again = run("topics", "delete-records", f"{numbered}:0", "--before", "4", "--yes")
    assert (again.exit_code, again.stderr) == (0, "no records to delete\n")


@pytest.mark.parametrize(
    ("where", "left"),
    [
        ("end", 0),
        ("-3", 6),
        ("beginning", 20),
        ("2023-11-14T22:13:25Z", 10),
        (f"@{START_MS + 99_000}", 0),
        ("1h", 0),
        ("10", 0),
        ("0", 20),
    ],
)
def test_places_before_which_records_are_deleted(
    ok: Callable[..., str], numbered: str, where: str, left: int
) -> None:
    ok("topics", "delete-records", numbered, "--before", where, "--yes")
    assert len(ok("consume", numbered).split()) == left


def test_records_are_deleted_by_a_file_of_kafka(
    ok: Callable[..., str], rows: Callable[..., Any], numbered: str, tmp_path: Path
) -> None:
    file = tmp_path / "offsets.json"
    partitions = [
        {"topic": numbered, "partition": 0, "offset": -1},
        {"topic": numbered, "partition": 1, "offset": 7},
    ]
    file.write_text(json.dumps({"partitions": partitions, "version": 1}))
    deleted = rows("topics", "delete-records", "--from-file", str(file), "--yes")
    assert [(row["partition"], row["new_first_offset"], row["deleted"]) for row in deleted] == [
        (0, 10, 10),
        (1, 7, 7),
    ]
    assert ok("consume", numbered).split() == ["r-1-7", "r-1-8", "r-1-9"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "this is not JSON"),
        ("[]", 'this is not {"partitions"'),
        ('{"partitions": []}', 'this is not {"partitions"'),
        ('{"version": 2, "partitions": [{}]}', "unknown version 2"),
        ('{"partitions": [{"topic": "numbered"}]}', "partition 1 of the list: this is not"),
        ('{"partitions": [{"topic": "numbered", "partition": "x", "offset": 1}]}', "must be whole numbers"),
        ('{"partitions": [{"topic": "nmbered", "partition": 0, "offset": 1}]}', "did you mean numbered?"),
        (
            '{"partitions": [{"topic": "numbered", "partition": 7, "offset": 1}]}',
            "has no partition 7",
        ),
        ('{"partitions": [{"topic": "numbered", "partition": 0, "offset": 11}]}', "ends at offset 10"),
        ('{"partitions": [{"topic": "numbered", "partition": 0, "offset": -2}]}', "ends at offset 10"),
    ],
)
def test_files_that_delete_nothing(
    run: Barnabas, numbered: str, tmp_path: Path, content: str, told: str
) -> None:
    file = tmp_path / "offsets.json"
    file.write_text(content)
    result = run("topics", "delete-records", "--from-file", file, "--yes")
    assert result.exit_code in (1, 4)
    assert told in result.stderr


def test_wrong_use_of_delete_records(run: Barnabas, tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    file.write_text("{}")
    for arguments in ((), ("orders",), ("--before", "3"), ("orders", "--before", "3", "--from-file", file)):
        result = run("topics", "delete-records", *arguments)
        assert result.exit_code == 2, arguments
        assert "Name topics and --before WHERE, or --from-file FILE." in result.stderr


def test_offsets_go_to_a_file_and_back(
    run: Barnabas, ok: Callable[..., str], rows: Callable[..., Any], numbered: str, tmp_path: Path
) -> None:
    ok("groups", "reset-offsets", "saved", "--topic", f"{numbered}:0-1", "--to-offset", "6", "--yes")
    exported = ok("groups", "reset-offsets", "saved", "--all-topics", "--to-current", "--export")
    # As kafka-consumer-groups --export writes it, for its --from-file.
    assert exported == "numbered,0,6\nnumbered,1,6\n"
    ok("groups", "reset-offsets", "saved", "--all-topics", "--to-latest", "--yes")
    file = tmp_path / "offsets.csv"
    file.write_text(exported)
    reset = rows("groups", "reset-offsets", "saved", "--from-file", str(file), "--yes")
    assert [(row["committed_offset"], row["new_offset"], row["executed"]) for row in reset] == [
        (10, 6, True),
        (10, 6, True),
    ]
    # Lines may name groups, as Kafka writes them for several; offsets become the nearest that there are.
    stdin = b"other,numbered,0,1\nsaved,numbered,0,99\n\n"
    ok("groups", "reset-offsets", "saved", "--from-file", "-", "--yes", stdin=stdin)
    (described,) = rows("groups", "describe", "saved")
    assert [row["committed_offset"] for row in described["offsets"]] == [10, 6]
    ok("groups", "delete", "saved", "--yes")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "has no offsets of saved"),
        ("other,numbered,0,1\n", "has no offsets of saved"),
        ("numbered,0\n", "line 1: 'numbered,0' is not topic,partition,offset"),
        (
            "numbered,0,1\nnumbered,x,1\n",
            "line 2: the partition 'x' and the offset '1' must be whole numbers",
        ),
        ("numbered,0,1\nnumbered,0,2\n", "line 2: numbered-0 is listed twice"),
        ("nmbered,0,1\n", "there is no topic nmbered; did you mean numbered?"),
        ("numbered,9,1\n", "numbered has no partition 9; it has partitions 0 to 1"),
    ],
)
def test_files_that_reset_nothing(
    run: Barnabas, numbered: str, tmp_path: Path, content: str, told: str
) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text(content)
    result = run("groups", "reset-offsets", "saved", "--from-file", file, "--yes")
    assert result.exit_code in (1, 4)
    assert told in result.stderr


def test_wrong_use_of_files(run: Barnabas, tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text("")
    for arguments, told in (
        (("--from-file", file, "--topic", "x"), "--from-file names the partitions"),
        (("--from-file", file, "--to-latest"), "Use exactly one of"),
        (("--all-topics", "--to-current", "--export", "--json"), "--export and --json"),
    ):
        result = run("groups", "reset-offsets", "saved", *arguments)
        assert result.exit_code == 2
        assert told in result.stderr


def test_nothing_is_deleted_or_reset_without_a_yes(run: Barnabas, broker: Broker, numbered: str) -> None:
    """Without a terminal each of these commands refuses, in the same words, and changes nothing."""
    with broker.admin() as admin:
        admin.alter_group_offsets("kept", {(numbered, 0): 3})  # type: ignore[dict-item]
        admin.fence_producers("kept-id")
        admin.alter_quotas({(("user", "kept"),): {"request_percentage": 50.0}})
        for arguments, action in (
            (("topics", "delete", numbered), "delete 1 topic with all records (numbered)"),
            (
                ("topics", "delete-records", numbered, "--before", "end", "--execute"),
                "delete 20 records of 2 partitions",
            ),
            (("groups", "delete", "kept"), "delete 1 group with all offsets (kept)"),
            (
                ("groups", "delete-offsets", "kept", "--topic", numbered),
                "delete the offsets of kept for numbered",
            ),
            (
                ("groups", "reset-offsets", "kept", "--all-topics", "--to-latest", "--execute"),
                "reset 1 offset of kept",
            ),
            (("groups", "remove-members", "kept", "--all"), "remove all members from kept"),
            (
                ("quotas", "delete", "--user", "kept", "request_percentage"),
                "delete request_percentage of user kept",
            ),
            (("transactions", "fence", "kept-id"), "fence the producers of kept-id"),
            (
                ("transactions", "abort", numbered, "0", "--start-offset", "3"),
                "abort the transaction on numbered-0 that begins at offset 3",
            ),
            (
                ("leaders", "elect", "--topic", numbered, "--unclean"),
                "elect leaders that were not in sync, which may lose records",
            ),
        ):
            result = run(*arguments)
            assert (result.exit_code, result.stderr) == (
                1,
                f"barnabas: Refusing to {action} without confirmation. Use --yes.\n",
            )
        assert admin.list_group_offsets("kept")[(numbered, 0)].offset == 3  # type: ignore[index]
        assert len(admin.describe_quotas({"user": "kept"})) == 1
        admin.alter_quotas({(("user", "kept"),): {"request_percentage": None}})
        admin.delete_groups("kept")


def test_every_command_that_deletes_or_resets_takes_yes() -> None:
    asked = set()
    context = click.Context(group)
    for words in commands():
        command: Any = group
        for word in words:
            command = command.get_command(context, word)
        has_yes = any("--yes" in parameter.opts for parameter in command.params)
        if words[-1].startswith(("delete", "reset", "remove", "abort", "fence")):
            assert has_yes, words
        if has_yes:
            asked.add(" ".join(words))
    assert asked >= {"topics delete", "topics delete-records", "groups reset-offsets", "profile delete"}
