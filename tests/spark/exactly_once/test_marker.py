"""The marker of a query, and what is done about it: all cases, without Spark and without a broker."""

from __future__ import annotations

import pytest

from barnabas.errors import InvalidConfig
from barnabas.model import TopicPartition
from barnabas.spark.exactly_once.marker import (
    Marker,
    MarkerMismatch,
    Plan,
    is_batch_in,
    last_marker,
    marker_of,
    next_marker,
    parse_plan,
)

OWN = Marker(number=8, query_id="own", batch_id=7, plan="5f3ab001")


def decided(last: Marker | None, batch_id: int, plan: str = "5f3ab001", *, take_over: bool = False) -> bool:
    return is_batch_in(last, "own", batch_id, plan, group="g", take_over=take_over)


def test_a_marker_survives_its_way() -> None:
    metadata = OWN.to_metadata()
    assert metadata == '{"number":8,"query":"own","batch":7,"plan":"5f3ab001"}'
    assert marker_of(metadata) == OWN


@pytest.mark.parametrize(
    "metadata",
    [
        "",
        "text",
        "7",
        "[]",
        "{}",
        '{"number":1}',
        '{"number":"1","query":"q","batch":0,"plan":""}',
        "{" * 5000,
    ],
)
def test_what_others_have_written_is_no_marker(metadata: str) -> None:
    assert marker_of(metadata) is None


def test_the_last_marker_has_the_highest_number() -> None:
    older = Marker(number=6, query_id="before", batch_id=500, plan="")
    assert last_marker([older.to_metadata(), "", OWN.to_metadata(), "others"]) == OWN
    assert last_marker(["", "others"]) is None


def test_markers_are_numbered() -> None:
    assert next_marker(None, "q", 0, "p") == Marker(number=1, query_id="q", batch_id=0, plan="p")
    assert next_marker(OWN, "q", 0, "p").number == 9


def test_batches_of_a_query_that_runs() -> None:
    assert not decided(None, 0)
    assert not decided(OWN, 8)


def test_a_batch_that_is_in_is_skipped() -> None:
    assert decided(OWN, 7)
    assert decided(OWN, 7, take_over=True)


@pytest.mark.parametrize(
    ("last", "batch_id", "plan", "told"),
    [
        (None, 8, "", "has no marker, and the checkpoint is at batch 8"),
        (Marker(number=8, query_id="other", batch_id=41, plan=""), 0, "", "query other at batch 41.*deleted"),
        (Marker(number=8, query_id="other", batch_id=7, plan=""), 8, "", "this is query own at batch 8"),
        (OWN, 7, "another", "batch 7 of query own is committed.*planned again"),
        (OWN, 9, "", "marker of group 'g' is at batch 7 and the checkpoint at batch 9"),
        (OWN, 3, "", "at batch 7 and the checkpoint at batch 3"),
    ],
)
def test_what_does_not_belong_together_is_refused(
    last: Marker | None, batch_id: int, plan: str, told: str
) -> None:
    with pytest.raises(MarkerMismatch, match=told) as refused:
        decided(last, batch_id, plan)
    assert "barnabas pipeline reset" in str(refused.value)
    assert "take_over=True" in str(refused.value)
    assert not decided(last, batch_id, plan, take_over=True)


def test_where_a_batch_ends() -> None:
    text = 'v1\n{"batchWatermarkMs":0}\n{"clicks":{"0":23,"1":0}}\n-\n{"orders":{"0":5},"clicks":{"0":20}}'
    plan = parse_plan(text)
    assert plan.offsets == {
        TopicPartition("clicks", 0): 20,
        TopicPartition("clicks", 1): 0,
        TopicPartition("orders", 0): 5,
    }
    assert parse_plan(text) == plan
    assert parse_plan(text.replace("23", "24")).checksum != plan.checksum


@pytest.mark.parametrize("line", ["7", '{"logOffset":3}', '{"offset":400,"timestamp":4000}', '"text"', "{"])
def test_other_sources_than_topics(line: str) -> None:
    assert parse_plan(f"v1\n{{}}\n{line}").offsets is None
    assert parse_plan(f'v1\n{{}}\n{{"clicks":{{"0":1}}}}\n{line}').offsets is None


@pytest.mark.parametrize("line", ["-", "{}"])
def test_a_source_without_topics_at_the_moment(line: str) -> None:
    assert parse_plan(f"v1\n{{}}\n{line}").offsets == {}
    assert parse_plan(f'v1\n{{}}\n{{"clicks":{{"0":1}}}}\n{line}').offsets == {TopicPartition("clicks", 0): 1}


@pytest.mark.parametrize("text", ["", "v1", "v9\n{}\n-", "{}"])
def test_what_is_no_offset_log(text: str) -> None:
    with pytest.raises(InvalidConfig, match="offset log"):
        parse_plan(text)


def test_plans_compare_by_all_they_say() -> None:
    assert parse_plan("v1\n{}\n-") == Plan(offsets={}, checksum=parse_plan("v1\n{}\n-").checksum)
