"""The offset map of a mirror: what is translated is never behind the record that is meant."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from barnabas.errors import InvalidConfig
from barnabas.model import TopicPartition
from barnabas.spark.mirror.offsets import FINE_SLOTS, LINES_MAX, Copied, OffsetMap, parse_copied
from barnabas.spark.mirror.sink import MirrorSink
from tests.sampling import seeds

SOURCE = TopicPartition("orders", 3)


def copied(batch_id: int, source: tuple[int, int], target: tuple[int, int]) -> Copied:
    return Copied(
        source=SOURCE,
        target_topic="eu.orders",
        batch_id=batch_id,
        source_start=source[0],
        source_end=source[1],
        target_start=target[0],
        target_end=target[1],
    )


def translated(offset_map: OffsetMap, offset: int) -> int | None:
    found = offset_map.translate(SOURCE, offset)
    assert found is None or found[0] == TopicPartition("eu.orders", 3)
    return None if found is None else found[1]


def test_offsets_without_gaps_are_translated_exactly() -> None:
    offset_map = OffsetMap([copied(0, (0, 100), (0, 100)), copied(1, (100, 250), (101, 251))])
    assert [translated(offset_map, offset) for offset in (0, 40, 100, 101, 180, 250)] == [
        0,
        40,
        100,
        102,
        181,
        251,
    ]
    # Nothing behind is copied yet: a consumer goes on behind what is.
    assert translated(offset_map, 300) == 251
    assert offset_map.translate(TopicPartition("orders", 0), 7) is None


def test_a_mirror_that_began_late_has_nothing_before_its_first_batch() -> None:
    offset_map = OffsetMap([copied(0, (0, 1000), (0, 10))])
    assert [translated(offset_map, offset) for offset in (5, 990, 995, 1000)] == [0, 0, 5, 10]


def test_what_the_map_has_forgotten_is_not_guessed_ahead() -> None:
    offset_map = OffsetMap([copied(5, (500, 600), (505, 605)), copied(9, (900, 1000), (909, 1009))])
    assert translated(offset_map, 499) is None
    assert translated(offset_map, 700) == 605
    assert translated(offset_map, 901) == 910


@pytest.mark.parametrize("seed", seeds(20, fast=5))
def test_no_record_is_skipped_whatever_is_missing(seed: int) -> None:
    rng = Random(seed)
    offset_map = OffsetMap()
    source_end = target_end = 0
    place_of: dict[int, int] = {}
    for batch_id in range(40):
        start, target_start = source_end, target_end
        for _ in range(rng.randrange(30)):
            # Here and there an offset has no record: it is a marker, or was compacted.
            source_end += rng.choice((1, 1, 1, 1, 2, 7))
            place_of[source_end - 1] = target_end
            target_end += 1
        if source_end > start and rng.random() < 0.9:
            offset_map.add(copied(batch_id, (start, source_end), (target_start, target_end)))
        target_end += 1
    for offset in range(source_end):
        found = translated(offset_map, offset)
        meant = min((place for source, place in place_of.items() if source >= offset), default=None)
        assert found is None or meant is None or found <= meant


def test_a_source_that_was_made_anew_is_translated_by_its_new_lines() -> None:
    """Before, the old lines stood in the way until all of their slots were used again."""
    old = [copied(0, (0, 100), (0, 100)), copied(1, (100, 200), (101, 201))]
    offset_map = OffsetMap([*old, copied(0, (0, 150), (202, 352)), copied(1, (150, 200), (353, 403))])
    assert [translated(offset_map, offset) for offset in (0, 50, 151, 200, 900)] == [202, 252, 354, 403, 403]


def test_a_mirror_that_was_made_anew_has_nothing_of_before() -> None:
    offset_map = OffsetMap([copied(0, (0, 100), (0, 100)), copied(1, (100, 200), (0, 100))])
    assert translated(offset_map, 50) is None
    assert translated(offset_map, 150) == 50
    renamed = replace(copied(2, (200, 300), (500, 600)), target_topic="us.orders")
    offset_map.add(renamed)
    assert offset_map.translate(SOURCE, 150) is None
    assert offset_map.translate(SOURCE, 250) == (TopicPartition("us.orders", 3), 550)


def test_a_mirror_that_is_begun_again_at_the_latest_keeps_what_it_had() -> None:
    """Its first line tells no beginning: only what it has for certain is taken from those before."""
    offset_map = OffsetMap([copied(0, (0, 100), (0, 100)), copied(0, (0, 300), (101, 201))])
    assert [translated(offset_map, offset) for offset in (50, 100, 200, 250)] == [50, 100, 101, 151]


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(15, fast=3))
def test_no_record_is_skipped_whatever_is_made_anew(seed: int) -> None:
    rng = Random(seed)
    offset_map = OffsetMap()
    place_of: dict[int, int] = {}
    source_end = target_end = batch_id = 0
    is_first = True
    for _ in range(40):
        event = rng.random()
        if event < 0.08:
            # The topic is made anew at the source, and the mirror is begun again.
            place_of, source_end, batch_id, is_first = {}, 0, 0, True
        elif event < 0.12:
            # The mirror's topic is made anew.
            place_of, target_end = {}, 0
        elif event < 0.16:
            # The mirror is begun again with what comes from now on, or with everything.
            batch_id, is_first = 0, True
            if rng.random() < 0.5:
                place_of, source_end = {}, 0
        start, target_start = source_end, target_end
        for _ in range(rng.randrange(1, 30)):
            source_end += rng.choice((1, 1, 1, 2, 7))
            place_of[source_end - 1] = target_end
            target_end += 1
        offset_map.add(copied(batch_id, (0 if is_first else start, source_end), (target_start, target_end)))
        batch_id, is_first = batch_id + 1, False
        target_end += 1
        for offset in range(source_end):
            found = translated(offset_map, offset)
            meant = min((place for source, place in place_of.items() if source >= offset), default=None)
            assert found is None or meant is None or found <= meant


def test_the_map_does_not_grow_for_ever() -> None:
    batches = 3 * LINES_MAX
    offset_map = OffsetMap(
        copied(number, (10 * number, 10 * number + 10), (11 * number, 11 * number + 10))
        for number in range(1, batches)
    )
    assert len(offset_map) <= LINES_MAX
    assert translated(offset_map, 10 * (batches - FINE_SLOTS) + 3) == 11 * (batches - FINE_SLOTS) + 3
    # Of those long ago one in so many is known, and what follows it is read again.
    assert translated(offset_map, 10 * (FINE_SLOTS + 700)) == 11 * FINE_SLOTS + 10


def test_lines_of_the_map_come_back_and_others_are_no_lines() -> None:
    first = copied(7, (100, 250), (101, 251))
    ((key, value),) = first.records()
    assert parse_copied(key, value) == first
    assert b'"slot":"7"' in key
    kept_for_long = copied(3 * FINE_SLOTS, (0, 1), (0, 1))
    keys = [key for key, _ in kept_for_long.records()]
    assert [b"every-1000-3" in key for key in keys] == [False, True]
    for strange in ((None, b"{}"), (b"x", b"{}"), (key, None), (key, b'{"source":[1],"offset":[1,2]}')):
        assert parse_copied(*strange) is None
    # A batch that stands in two slots is one.
    assert len(OffsetMap([kept_for_long, kept_for_long])) == 1


HERE = {"kafka.bootstrap.servers": "here:1"}
THERE = {"kafka.bootstrap.servers": "there:1"}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"rename": "copy"}, "with {topic} in it"),
        ({"rename": "{topic}.{topic}"}, "with {topic} in it, once"),
        ({"groups": "("}, "no regular expression"),
        ({"checkpoint": ""}, "checkpoint is empty"),
    ],
)
def test_what_is_wrong_with_options_is_told(options: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        MirrorSink(HERE, THERE, **{"checkpoint": "/c", **options})
    assert told in str(raised.value)


def test_a_cluster_is_not_mirrored_to_itself_under_the_same_names() -> None:
    with pytest.raises(InvalidConfig, match="would be mirrored to itself"):
        MirrorSink(HERE, HERE, checkpoint="/c")
    assert MirrorSink(HERE, HERE, checkpoint="/c", rename="copy.{topic}").target_topic("a") == "copy.a"
