"""Random histories of a compacted log, and a crash at every step of a cleaning; each replayable from its seed."""

from __future__ import annotations

import os
from dataclasses import replace
from random import Random

import pytest

from barnabas.records.layout import CompressionType
from tests.log.compacted import CONFIG, DIRECTORY, CompactedLog, KeyValue
from tests.log.simulated import SimulatedCrash
from tests.sampling import cases

SEED = int(os.environ.get("BARNABAS_CRASH_SEED", "0"))
HISTORIES = int(os.environ.get("BARNABAS_CRASH_HISTORIES", "300"))
FAST_HISTORIES = cases(25, fast=8)
KEYS = [b"key-%d" % number for number in range(40)]
PRODUCERS = range(1, 5)


def random_records(rng: Random) -> list[KeyValue]:
    return [
        (rng.choice(KEYS), None if rng.random() < 0.15 else rng.randbytes(rng.randrange(60)))
        for _ in range(rng.randrange(1, 12))
    ]


def step(log: CompactedLog, rng: Random) -> str:
    chosen = rng.choices(
        ("append", "idempotent", "transactional", "end", "roll", "clean", "wait", "reopen", "crash"),
        (8, 5, 5, 4, 4, 4, 2, 1, 1),
    )[0]
    compression = rng.choice(list(CompressionType))
    idle = [producer for producer in PRODUCERS if producer not in log.transaction_of]
    match chosen:
        case "append":
            log.append(*random_records(rng), compression=compression)
        case "idempotent":
            if idle:
                log.append(*random_records(rng), producer_id=rng.choice(idle), compression=compression)
        case "transactional":
            producer = rng.choice(PRODUCERS)
            log.append(*random_records(rng), producer_id=producer, transactional=True)
        case "end":
            if log.transaction_of:
                producer = rng.choice(sorted(log.transaction_of))
                log.end_transaction(producer, commits=rng.random() < 0.6)
        case "roll":
            log.roll()
        case "clean":
            clean(log, rng)
        case "wait":
            log.clock.advance_ms(rng.choice((1, CONFIG.delete_retention_ms)))
        case "reopen":
            log.reopen()
        case "crash":
            # What is not flushed may be lost, and with it the end of a transaction: the model knows of no such thing.
            log.log.flush()
            log.crash(rng)
    return chosen


def known_producers(log: CompactedLog) -> list[tuple[int, ...]]:
    """Without timestamps and coordinators' epochs: they are those of records and markers that may be gone."""
    return sorted(
        (
            producer.producer_id,
            producer.producer_epoch,
            producer.last_sequence,
            producer.last_offset,
            producer.current_txn_start_offset,
        )
        for producer in log.log.active_producers()
    )


def clean(log: CompactedLog, rng: Random) -> None:
    """Cleans, sometimes with a crash in the middle, after which the log is what it was, or cleaned in part."""
    log.log.flush()
    producers = known_producers(log)
    end_offset = log.log.log_end_offset
    memory_bytes = rng.choice((1, 1 << 20))
    if rng.random() < 0.3:
        log.fs.crash_after(rng.randrange(60))
    try:
        log.clean(memory_bytes)
    except SimulatedCrash:
        log.crash(rng)
    else:
        log.fs.crash_after(1 << 60)
    log.check()
    assert log.log.log_end_offset == end_offset
    assert known_producers(log) == producers


def run_history(seed: int) -> None:
    rng = Random(seed)
    config = replace(
        CONFIG,
        segment_bytes=rng.choice((1500, 4000, 20_000)),
        segment_index_bytes=rng.choice((100, 1000)),
        index_interval_bytes=rng.choice((0, 200, 1000)),
        delete_retention_ms=rng.choice((0, CONFIG.delete_retention_ms)),
    )
    log = CompactedLog(config)
    steps: list[str] = []
    try:
        while len(steps) < 60:
            steps.append(step(log, rng))
        log.check()
        log.reopen()
        log.check()
    except BaseException as error:
        error.add_note(f"replay: BARNABAS_CRASH_SEED={seed} BARNABAS_CRASH_HISTORIES=1; steps {steps}")
        raise


@pytest.mark.slow
def test_histories_sample() -> None:
    for seed in range(SEED, SEED + FAST_HISTORIES):
        run_history(seed)


@pytest.mark.slow
def test_histories() -> None:
    for seed in range(SEED, SEED + HISTORIES):
        run_history(seed)


def filled_log(rng: Random) -> CompactedLog:
    log = CompactedLog(replace(CONFIG, segment_bytes=1200))
    for number in range(8):
        log.append(*random_records(rng))
        if number % 2:
            log.append(*random_records(rng), producer_id=1, transactional=True)
            log.end_transaction(1, commits=number % 4 == 1)
    log.roll()
    log.log.flush()
    return log


@pytest.mark.slow
@pytest.mark.parametrize("power_fails", [True, False])
def test_crash_at_every_step_of_a_cleaning(power_fails: bool) -> None:
    changes = 0
    crashed = True
    while crashed:
        log = filled_log(Random(7))
        before = log.log.log_end_offset
        log.fs.crash_after(changes)
        try:
            log.clean()
            crashed = False
        except SimulatedCrash:
            if power_fails:
                log.crash(Random(changes))
            else:
                log.kill()
        log.fs.crash_after(1 << 60)
        log.check()
        assert log.log.log_end_offset == before
        assert not [name for name in log.fs.list_dir(DIRECTORY) if name.endswith((".cleaned", ".swap"))]
        # What was begun can be done again.
        log.clean()
        log.check()
        changes += 1
    assert changes > 30
