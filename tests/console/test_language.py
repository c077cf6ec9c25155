from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.console.search.language import (
    QUERY_CHARACTERS_MAX,
    TERMS_MAX,
    BadQuery,
    Operation,
    Target,
    Term,
    parse_path,
    parse_query,
)


def one(text: str) -> Term:
    (term,) = parse_query(text)
    return term


def test_words_are_looked_for_everywhere() -> None:
    assert [each.operand for each in parse_query('apple "two words" http://x')] == [
        "apple",
        "two words",
        "http://x",
    ]
    assert {each.target for each in parse_query("apple pear")} == {Target.ANY}


@pytest.mark.parametrize(
    ("text", "target", "operation", "operand", "name"),
    [
        ("key:a", Target.KEY, Operation.CONTAINS, "a", ""),
        ("key=a:b", Target.KEY, Operation.EQUALS, "a:b", ""),
        ('value:"x y"', Target.VALUE, Operation.CONTAINS, "x y", ""),
        ("header:t", Target.HEADER, Operation.CONTAINS, "t", ""),
        ("header.trace-id=t", Target.HEADER, Operation.EQUALS, "t", "trace-id"),
        ("value:/a b+/", Target.VALUE, Operation.MATCHES, "a b+", ""),
        ("/var/log", Target.ANY, Operation.CONTAINS, "/var/log", ""),
        (r"/a\/b/", Target.ANY, Operation.MATCHES, "a/b", ""),
        ("is:tombstone", Target.TOMBSTONE, Operation.CONTAINS, "tombstone", ""),
        (r'"say \"hi\""', Target.ANY, Operation.CONTAINS, 'say "hi"', ""),
    ],
)
def test_terms(text: str, target: Target, operation: Operation, operand: str, name: str) -> None:
    term = one(text)
    assert (term.target, term.operation, term.operand, term.name) == (target, operation, operand, name)


@pytest.mark.parametrize("operation", ["=", "!=", ">", ">=", "<", "<=", ":"])
def test_json_paths(operation: str) -> None:
    term = one(f'$.a["b c"][0][*].d-e{operation}7')
    assert term.target is Target.JSON
    assert term.path == ("a", "b c", 0, None, "d-e")
    assert (term.operation, term.operand) == (Operation(operation), "7")


def test_a_minus_negates_and_a_minus_alone_does_not() -> None:
    assert one("-key:a").is_negated
    assert not one("key:-a").is_negated
    assert one("- ").operand == "-"


def test_regular_expressions_may_ignore_case() -> None:
    assert one("/a/i").ignores_case
    assert not one("/a/").ignores_case


@pytest.mark.parametrize(
    "text", ["key:", "is:new", "$.a>/x/", "x" * (QUERY_CHARACTERS_MAX + 1), "a " * (TERMS_MAX + 1)]
)
def test_what_cannot_be_understood_is_an_error(text: str) -> None:
    with pytest.raises(BadQuery):
        parse_query(text)


def test_a_path_that_is_none() -> None:
    with pytest.raises(BadQuery, match="JSON path"):
        parse_path("$.a..b")


@given(st.text(max_size=60))
def test_any_text_is_terms_or_an_error(text: str) -> None:
    with contextlib.suppress(BadQuery):
        parse_query(text)
