"""One damaged side file in a data directory: no answer of the broker is another one, and no partition is affected.

Each case is one of a seed: what SIGKILL or a clean stop has left, one file of one kind, and what was done to it.
`make soak` does 2,000; SIDE_FILES_CASES sets another number, SIDE_FILES_SEED runs one seed alone.
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final

import pytest

from barnabas.errors import KafkaError
from tests.faults.side_files import (
    KINDS,
    MAY_REFUSE,
    Answers,
    Template,
    ask,
    ask_all,
    damage,
    files_of,
    make_templates,
    serving,
)

DEFAULT_CASES: Final = "2000" if os.environ.get("BARNABAS_SOAK") == "1" else "100"
CASES: Final = int(os.environ.get("SIDE_FILES_CASES", DEFAULT_CASES))
ONLY_SEED: Final = os.environ.get("SIDE_FILES_SEED")
CASES_PER_TEST: Final = 50
# One case in so many is started once more.
RESTARTS: Final = 5
IN_MEMORY: Final = Path("/dev/shm")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """In memory if possible: thousands of copies are made, and none has to last."""
    parent = IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="barnabas-side-files-", dir=parent) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def templates(folder: Path) -> dict[str, Template]:
    return make_templates(folder)


def differences(found: Answers, expected: Answers) -> list[str]:
    return [
        f"{what}: {str(found.get(what))[:600]}\n  where it was {str(expected.get(what))[:600]}"
        for what in {**expected, **found}
        if found.get(what) != expected.get(what)
    ]


def without_internal(answers: Answers) -> Answers:
    """What the broker itself has written meanwhile has the time of the moment."""
    return {what: answer for what, answer in answers.items() if " of __" not in what}


def compare(template: Template, copy: Path, damage: Callable[[Path], None], *, restarts: bool) -> list[str]:
    """What a broker on a damaged copy answers otherwise than on an intact one."""
    with serving(template, copy, damage) as broker:
        answers = ask_all(broker, template)
        if answers == template.answers_without_mark != template.answers:
            return []
        found = differences(answers, template.answers)
        if restarts and not found:
            # What was rebuilt is right the next time too.
            broker.stop()
            broker.start()
            expected = without_internal(template.answers_after_restart)
            found = differences(without_internal(ask(broker, template)), expected)
        return found


def run(seed: int, templates: dict[str, Template], copy: Path) -> None:
    rng = Random(seed)
    stop = rng.choice(sorted(templates))
    template = templates[stop]
    kind = rng.choice([kind for kind in KINDS if files_of(kind, template.path)])
    chosen = rng.choice(files_of(kind, template.path)).relative_to(template.path)
    done: list[str] = []
    try:
        problems = compare(
            template,
            copy,
            lambda path: done.append(damage(path / chosen, rng)),
            restarts=seed % RESTARTS == 0,
        )
    except Exception as error:
        if kind in MAY_REFUSE and isinstance(error, KafkaError):
            return
        problems = [repr(error)]
    if problems:
        pytest.fail(
            f"seed {seed} (SIDE_FILES_SEED={seed} runs it alone): after a stop that was {stop}, {chosen} was"
            f" {' '.join(done)}\n" + "\n".join(problems)
        )


def seed_ranges() -> list[range]:
    """Ranges of cases, so that the workers of a test run share them."""
    if ONLY_SEED is not None:
        return [range(int(ONLY_SEED), int(ONLY_SEED) + 1)]
    return [range(first, min(first + CASES_PER_TEST, CASES)) for first in range(0, CASES, CASES_PER_TEST)]


@pytest.mark.parametrize("seeds", seed_ranges(), ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}")
def test_no_answer_depends_on_an_intact_side_file(
    templates: dict[str, Template], folder: Path, seeds: range
) -> None:
    for seed in seeds:
        run(seed, templates, folder / "copy")


def cut_in_half(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])


def add_random_tail(file: Path) -> None:
    file.write_bytes(file.read_bytes() + Random(7).randbytes(96))


def flip_every_entry(file: Path) -> None:
    file.write_bytes(bytes(byte ^ 0x11 if at % 8 == 3 else byte for at, byte in enumerate(file.read_bytes())))


def set_the_top_bit_of_a_position(file: Path) -> None:
    data = file.read_bytes()
    offset, position = struct.unpack_from(">iI", data)
    file.write_bytes(struct.pack(">iI", offset, position | 1 << 31) + data[8:])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def raise_every_offset(file: Path) -> None:
    """One digit more, where the file still looks like a checkpoint."""
    file.write_text(
        "".join(
            f"{line}9\n" if line.count(" ") == 2 else f"{line}\n"
            for line in file.read_text().split("\n")[:-1]
        )
    )


@pytest.mark.parametrize("stop", ["clean", "killed"])
@pytest.mark.parametrize(
    ("pattern", "harm"),
    [
        ("__consumer_offsets-*/*.index", add_random_tail),
        ("plain-0/*.index", flip_every_entry),
        ("idempotent-0/*.index", set_the_top_bit_of_a_position),
        ("transactions-0/*.txnindex", cut_in_half),
        ("transactions-0/*.txnindex", Path.unlink),
        ("idempotent-0/*.timeindex", cut_in_half),
        ("idempotent-0/*.timeindex", empty),
        ("idempotent-0/*.snapshot", Path.unlink),
        ("*/*.snapshot", empty),
        ("*/barnabas.side-files", Path.unlink),
        ("*/partition.metadata", Path.unlink),
        ("*/leader-epoch-checkpoint", cut_in_half),
        ("*/leader-epoch-checkpoint", Path.unlink),
        ("log-start-offset-checkpoint", Path.unlink),
        ("log-start-offset-checkpoint", raise_every_offset),
        ("recovery-point-offset-checkpoint", raise_every_offset),
        ("*-checkpoint", Path.unlink),
    ],
)
def test_a_whole_kind_may_be_damaged(
    templates: dict[str, Template], folder: Path, stop: str, pattern: str, harm: Callable[[Path], None]
) -> None:
    def harm_all(path: Path) -> None:
        chosen = sorted(path.glob(pattern))
        assert chosen
        for file in chosen:
            harm(file)

    assert compare(templates[stop], folder / "copy", harm_all, restarts=True) == []
