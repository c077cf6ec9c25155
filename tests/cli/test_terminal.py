"""What a person sees on a terminal: no bar while typing, a row a line, questions, and no control characters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.model import TopicPartition
from barnabas.testing import Broker
from tests.cli.terminal import CTRL_C, CTRL_D, TIMEOUT_S, on_terminal

LONG_TOPIC = "customer-events-from-the-web-shop"
GROUP = "billing-of-the-web-shop"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker with a topic of a long name, and a group with a member that reads it."""
    with Broker(topics={"orders": 3, LONG_TOPIC: 2}) as running:
        with running.producer() as producer:
            producer.send_many("orders", [b"x"] * 10).result(TIMEOUT_S)
        topics = ("orders", LONG_TOPIC)
        with running.consumer(*topics, group_id=GROUP, client_id="billing-worker-1") as consumer:
            while len(consumer.assignment()) < 5:
                consumer.poll(100)
            yield running


@pytest.fixture
def bootstrap(broker: Broker) -> dict[str, str]:
    return {"BARNABAS_BOOTSTRAP": broker.bootstrap}


def test_no_bar_stands_in_the_way_of_typing(broker: Broker, bootstrap: dict[str, str]) -> None:
    with broker.admin() as admin:
        admin.create_topics("typed")
    with on_terminal("produce", "typed", environment=bootstrap) as terminal:
        terminal.wait_for("Ctrl-D ends.\n")
        for line in ("first", "second"):
            terminal.type(f"{line}\n")
            terminal.wait_for(f"{line}\n")
        terminal.type(CTRL_D)
        assert terminal.finish() == 0
    assert terminal.screen == (
        "Type one record per line. Ctrl-D ends.\nfirst\nsecond\n2 records sent to typed\n"
    )
    with broker.consumer("typed") as consumer:
        assert [next(consumer).value, next(consumer).value] == [b"first", b"second"]


@pytest.mark.slow
def test_output_beside_a_bar_goes_where_it_belongs(
    broker: Broker, bootstrap: dict[str, str], tmp_path: Path
) -> None:
    with broker.admin() as admin:
        admin.create_topics("barred")
    records, printed = tmp_path / "records", tmp_path / "printed"
    records.write_text("".join(f"{number}\n" for number in range(1_000)))
    with (
        printed.open("wb") as stdout,
        on_terminal(
            "produce", "barred", str(records), "--json", stdout=stdout, environment=bootstrap
        ) as terminal,
    ):
        assert terminal.finish() == 0
    assert "producing" in terminal.screen
    assert "offset" not in terminal.screen
    assert [json.loads(line)["offset"] for line in printed.read_text().splitlines()] == list(range(1_000))


@pytest.mark.slow
def test_no_bar_beside_a_pipe(broker: Broker, bootstrap: dict[str, str]) -> None:
    """What reads the pipe may print to the same terminal, as less and head do."""
    read_end, write_end = os.pipe()
    with (
        os.fdopen(read_end, "rb") as reader,
        os.fdopen(write_end, "wb") as stdout,
        on_terminal("consume", "orders", stdout=stdout, environment=bootstrap) as terminal,
    ):
        stdout.close()
        assert terminal.finish() == 0
        assert reader.read() == b"x\n" * 10
    assert terminal.raw == b""


@pytest.mark.parametrize(
    ("columns", "titles"),
    [
        pytest.param(70, ["topic", "partition", "committed", "end", "lag"], marks=pytest.mark.slow),
        pytest.param(80, ["topic", "partition", "committed", "end", "lag"], marks=pytest.mark.slow),
        (90, ["topic", "partition", "committed", "end", "lag", "client"]),
        pytest.param(
            120, ["topic", "partition", "committed", "end", "lag", "client", "host"], marks=pytest.mark.slow
        ),
        pytest.param(
            200,
            ["topic", "partition", "committed", "end", "lag", "client", "host", "member"],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_table_has_the_columns_that_there_is_room_for(
    bootstrap: dict[str, str], columns: int, titles: list[str]
) -> None:
    with on_terminal("groups", "describe", GROUP, columns=columns, environment=bootstrap) as terminal:
        assert terminal.finish() == 0
    assert max(map(len, terminal.screen.splitlines())) <= columns
    lines = terminal.screen.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("topic"))
    assert lines[start].split() == titles
    rows = lines[start + 1 : start + 6]
    assert [row.split()[:2] for row in rows] == [
        *([LONG_TOPIC, str(number)] for number in range(2)),
        *(["orders", str(number)] for number in range(3)),
    ]
    left_out = " ".join(lines[start + 6 :])
    assert left_out == (
        ""
        if "member" in titles
        else f"Not shown here: {', '.join(each for each in ('client', 'host', 'member') if each not in titles)}."
        " A wider terminal or --json shows all."
    )


@pytest.mark.slow
def test_where_there_is_no_room_text_goes_on_and_numbers_stay_whole(bootstrap: dict[str, str]) -> None:
    with on_terminal("groups", "describe", GROUP, columns=60, environment=bootstrap) as terminal:
        assert terminal.finish() == 0
    lines = terminal.screen.splitlines()
    assert max(map(len, lines)) <= 60
    assert "topic                         partition  committed  end  lag" in lines
    name = [line.split()[0] for line in lines if line.startswith(("customer-", "-shop"))]
    assert "".join(name) == LONG_TOPIC * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "columns"),
    [
        (("topics", "list", "--internal"), 80),
        (("topics", "describe"), 80),
        (("topics", "describe", "orders", LONG_TOPIC), 80),
        (("groups", "describe", "--members"), 80),
        (("configs", "describe", "topic", "orders", "--all"), 80),
        (("leaders", "list"), 80),
        (("transactions", "producers", "orders"), 80),
        (("cluster", "describe"), 60),
        (("log-dirs", "describe", "--replicas"), 120),
        (("topics", "--help"), 60),
    ],
)
def test_nothing_is_wider_than_the_terminal_and_no_row_is_broken(
    bootstrap: dict[str, str], arguments: tuple[str, ...], columns: int
) -> None:
    with on_terminal(*arguments, columns=columns, environment=bootstrap) as terminal:
        assert terminal.finish() == 0
    lines = terminal.screen.splitlines()
    assert max(map(len, lines)) <= columns
    # A broken row would go on with nothing in the first column.
    assert not [line for line in lines if line.startswith(" " * 12)] or "--help" in arguments


def test_lines_of_messages_end_between_words(bootstrap: dict[str, str]) -> None:
    with on_terminal("topics", "list", "-b", "127.0.0.1:1", columns=60) as terminal:
        assert terminal.finish() == 3
    assert terminal.screen.splitlines() == [
        "barnabas: no broker answers at 127.0.0.1:1 (connection",
        "refused). Check that a broker runs there (`barnabas start`",
        "starts one), or name another with -b HOST:PORT",
    ]


@pytest.mark.parametrize(
    ("answer", "exit_code", "told"),
    [
        ("y\n", 0, "asked: deleted\n"),
        pytest.param("n\n", 1, "barnabas: nothing was changed\n", marks=pytest.mark.slow),
        pytest.param(CTRL_C, 130, "^C\n", marks=pytest.mark.slow),
    ],
)
def test_a_person_is_asked(
    broker: Broker, bootstrap: dict[str, str], answer: str, exit_code: int, told: str
) -> None:
    with broker.admin() as admin:
        admin.create_topics("asked")
        with on_terminal("topics", "delete", "asked", environment=bootstrap) as terminal:
            terminal.wait_for("Delete 1 topic with all records (asked)? [y/N]: ")
            terminal.wait_until_it_reads()
            terminal.type(answer)
            assert terminal.finish() == exit_code
        assert terminal.screen.endswith(told)
        left = [topic.name for topic in admin.list_topics()]
        assert ("asked" in left) == (exit_code != 0)
        if exit_code:
            admin.delete_topics("asked")


@pytest.mark.slow
def test_a_preview_is_shown_before_the_question(broker: Broker, bootstrap: dict[str, str]) -> None:
    command = ("groups", "reset-offsets", "someone", "--topic", "orders", "--to-latest", "--execute")
    with on_terminal(*command, environment=bootstrap) as terminal:
        terminal.wait_for("Reset 3 offsets of someone? [y/N]: ")
        assert terminal.screen.startswith("topic   partition  committed  new  change\n")
        terminal.type("y\n")
        assert terminal.finish() == 0
    assert terminal.screen.endswith("y\ndone\n")
    with broker.admin() as admin:
        assert len(admin.list_group_offsets("someone")) == 3
        admin.delete_groups("someone")


@pytest.mark.slow
def test_records_do_not_steer_the_terminal(broker: Broker, bootstrap: dict[str, str], tmp_path: Path) -> None:
    value = "café \x1b[31mred\x9b0m\x07\ttab".encode() + b"\xff\x00"
    with broker.admin() as admin, broker.producer() as producer:
        admin.create_topics("binary")
        producer.send("binary", value).result(TIMEOUT_S)
    escaped = "café \\x1b[31mred\\x9b0m\\x07\ttab\\xff\\x00\n"
    for form in ("value", "{value}"):
        with on_terminal("consume", "binary", "--format", form, environment=bootstrap) as terminal:
            assert terminal.finish() == 0
        assert terminal.raw.decode().replace("\r\n", "\n") == escaped
    # In a pipe the bytes are those that were sent.
    piped = subprocess.run(
        [sys.executable, "-m", "barnabas", "consume", "binary", "-b", broker.bootstrap],
        capture_output=True,
        check=True,
        timeout=TIMEOUT_S,
    )
    assert piped.stdout == value + b"\n"


@pytest.mark.slow
def test_names_do_not_steer_the_terminal(broker: Broker, bootstrap: dict[str, str]) -> None:
    group = "evil\x1b]0;title\x07\x9b2J"
    with broker.admin() as admin:
        admin.alter_group_offsets(group, {TopicPartition("orders", 0): 1})
        for arguments, shown in (
            (("groups", "list"), "evil\\x1b]0;title\\x07\\x9b2J"),
            (("groups", "describe", group), "evil\\x1b]0;title\\x07\\x9b2J: Empty"),
            (("groups", "list", "--json"), '"evil\\u001b]0;title\\u0007\\u009b2J"'),
        ):
            with on_terminal(*arguments, environment=bootstrap) as terminal:
                assert terminal.finish() == 0
            assert shown in terminal.screen
            assert not {"\x1b", "\x07", "\x9b"} & set(terminal.screen), arguments
        admin.delete_groups(group)


@pytest.mark.slow
def test_nothing_to_print_is_told(broker: Broker, bootstrap: dict[str, str]) -> None:
    with on_terminal("consume", LONG_TOPIC, environment=bootstrap) as terminal:
        assert terminal.finish() == 0
    assert terminal.screen == "no records\n"


@pytest.mark.slow
def test_ctrl_c_leaves_the_prompt_a_line_of_its_own(broker: Broker, bootstrap: dict[str, str]) -> None:
    with on_terminal("consume", "orders", "--follow", "-n", "11", environment=bootstrap) as terminal:
        terminal.wait_for("x\n" * 10)
        terminal.type(CTRL_C)
        assert terminal.finish() == 130
    assert terminal.screen == "x\n" * 10 + "^C\n"
