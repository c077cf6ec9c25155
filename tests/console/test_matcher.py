from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.console.search.chunks import Bounds, CutBatch, Damaged, walk
from barnabas.console.search.language import BadQuery, parse_query
from barnabas.console.search.matcher import Matcher
from barnabas.log.reader.transactions import Aborted, AbortedBatches
from barnabas.model import Offset, TimestampMs
from barnabas.records.builder import BatchBuilder
from barnabas.records.layout import CompressionType
from barnabas.records.record import Headers

ALL = Bounds(start_offset=0, end_offset=2**63 - 1, start_ms=-(2**63), end_ms=2**63 - 1)
Fields = tuple[bytes | None, bytes | None, Headers]


def batch(
    base_offset: int,
    records: list[Fields],
    compression: CompressionType = CompressionType.NONE,
    **options: Any,
) -> bytes:
    builder = BatchBuilder(base_offset=Offset(base_offset), compression=compression, **options)
    for index, (key, value, headers) in enumerate(records):
        builder.append(TimestampMs(1000 + index), key, value, headers)
    return builder.build()


def matches(query: str, key: bytes | None = None, value: bytes | None = None, headers: Headers = ()) -> bool:
    return Matcher(parse_query(query)).matches(key, value, headers)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("apple", True),
        ("k-1", True),
        ("t-9", True),
        ("trace", True),
        ("Apple", False),
        ("/Apple/i", True),
        ("key:k", True),
        ("key=k", False),
        ("key=k-1", True),
        ("value:k-1", False),
        ("header:t-9", True),
        ("header.trace=t-9", True),
        ("header.other=t-9", False),
        ("-pear", True),
        ("apple -key:k", False),
        ("$.fruit=apple", True),
        ("$.fruit:ppl", True),
        ("$.fruit:/^a.*e$/", True),
        ("$.n=7", True),
        ("$.n=7.0", True),
        ('$.n="7"', True),
        ("$.n!=7", False),
        ("$.n>6", True),
        ("$.n>=7", True),
        ("$.n<7", False),
        ("$.deep.list[1].x=2", True),
        ("$.deep.list[*].x=1", True),
        ("$.deep.list[9].x=1", False),
        ("$.ok=true", True),
        ("$.missing!=1", False),
        ("is:tombstone", False),
        ("value:/é.o/", True),
    ],
)
def test_records(query: str, expected: bool) -> None:
    value = {"fruit": "apple", "n": 7, "ok": True, "deep": {"list": [{"x": 1}, {"x": 2}]}, "text": "é€o"}
    data = json.dumps(value, ensure_ascii=False).encode()
    assert matches(query, b"k-1", data, (("trace", b"t-9"), ("none", None))) is expected


def test_tombstones_and_values_that_are_no_json() -> None:
    assert matches("is:tombstone", b"k", None)
    assert matches("-is:tombstone", b"k", b"")
    assert not matches("$.a=1", b"k", b"\xff{")
    assert not matches("$.a=1", b"k", b"[" * 100_000)
    assert matches("key=", b"", b"v")
    assert not matches("key=", None, b"v")


def test_a_bad_pattern_names_the_fault() -> None:
    with pytest.raises(BadQuery, match=r"missing \)"):
        Matcher(parse_query("/a(b/"))


TEXTS = st.text(alphabet='ab\\"é{}:17', max_size=6)
QUERIES = st.sampled_from(
    (
        *("a", "ab", "key:a", "key=ab", "value:b", "header:a", "header.a:b", "/a.b/", "/^a/", "/A/i", "/b$/"),
        *("$.a=1", "$.é=1", '$.a:"b"', "-a", "is:tombstone", "a b", r"/\ba/"),
    )
)


@given(
    st.lists(
        st.tuples(
            TEXTS.map(str.encode) | st.none(),
            TEXTS.map(str.encode) | st.sampled_from([b'{"a":1}', b'{"\\u0061":1}', b'{"a":"b"}']) | st.none(),
            st.lists(st.tuples(TEXTS, TEXTS.map(str.encode) | st.none()), max_size=2).map(tuple),
        ),
        min_size=1,
        max_size=4,
    ),
    QUERIES,
    st.sampled_from([CompressionType.NONE, CompressionType.LZ4]),
)
def test_no_batch_with_a_match_is_left_out(
    records: list[Fields], query: str, compression: CompressionType
) -> None:
    matcher = Matcher(parse_query(query))
    data = batch(5, records, compression)
    if any(matcher.matches(*each) for each in records):
        assert walk(data, matcher, ALL, None).candidates == [0]


def test_only_batches_that_may_match_are_candidates() -> None:
    batches = [batch(number * 10, [(None, f"value-{number}".encode(), ())] * 10) for number in range(4)]
    packed = batch(40, [(None, b"value-3", ())], CompressionType.ZSTD)
    data = b"".join((*batches, packed))
    found = walk(data, Matcher(parse_query("value-3")), ALL, None)
    assert found.candidates == [sum(map(len, batches[:3])), sum(map(len, batches))]
    assert (found.position, found.record_count) == (len(data), 41)


def test_offsets_and_times_leave_out_batches() -> None:
    batches = [batch(number * 10, [(None, b"x", ())] * 10) for number in range(3)]
    data = b"".join(batches)
    bounds = Bounds(start_offset=10, end_offset=20, start_ms=0, end_ms=10_000)
    assert walk(data, Matcher(parse_query("x")), bounds, None).candidates == [len(batches[0])]
    late = Bounds(start_offset=0, end_offset=30, start_ms=5_000, end_ms=10_000)
    assert walk(data, Matcher(parse_query("x")), late, None).candidates == []


def test_a_chunk_that_ends_inside_a_batch_is_walked_up_to_it() -> None:
    first, second = (batch(number, [(None, b"needle", ())]) for number in range(2))
    data = first + second
    for end in range(len(first), len(data)):
        assert walk(data[:end], Matcher(parse_query("needle")), ALL, None).position == len(first)
    with pytest.raises(CutBatch) as caught:
        walk(first[:-1], Matcher(parse_query("needle")), ALL, None)
    assert caught.value.size_bytes == len(first)


@pytest.mark.parametrize("data", [b"\0" * 100, b"\xff" * 100, b"\0" * 8 + b"\xff" * 92, b"\0\1"])
def test_bytes_that_are_no_batch(data: bytes) -> None:
    with pytest.raises(Damaged):
        walk(data, Matcher(()), ALL, None)


def test_batches_of_aborted_transactions_are_left_out() -> None:
    options: dict[str, Any] = {
        "producer_id": 7,
        "producer_epoch": 0,
        "base_sequence": 0,
        "is_transactional": True,
    }
    data = batch(0, [(None, b"x", ())], **options)
    aborted = AbortedBatches([Aborted(7, 0, 5)])
    assert walk(data, Matcher(()), ALL, aborted).candidates == []
    assert walk(data, Matcher(()), ALL, AbortedBatches([Aborted(8, 0, 5)])).candidates == [0]
