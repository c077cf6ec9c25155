"""Which topics match a regular expression that members subscribe to.

Expressions are RE2's, which take time in proportion to the text however they are written: a client's expression cannot
stall the broker. Still there may be many topics, so they are matched some at a time, with a timer in between.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from functools import lru_cache
from typing import Any, Final

from barnabas.errors import InvalidRegularExpression
from barnabas.groups.consumer_group import ResolvedRegex
from barnabas.groups.topics import Topics

# About a millisecond's work.
MATCHES_AT_ONCE: Final = 150
PAUSE_MS: Final = 1
_COMPILED_MAX: Final = 64
# An expression that would need more is refused, or matched more slowly.
_EXPRESSION_BYTES_MAX: Final = 1 << 20


@lru_cache(_COMPILED_MAX)
def compile_regex(regex: str) -> Any:
    """Raises InvalidRegularExpression. The library is loaded when the first expression comes."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = _EXPRESSION_BYTES_MAX
    try:
        return re2.compile(regex, options)
    except re2.error as error:
        why = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else error.args[0]
        raise InvalidRegularExpression(
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {why}."
        ) from None


class RegexResolution:
    """All expressions of a group against all topics there were when it began.

    `visible` are the topics that the member may describe whose request began it, as in Kafka; None for all.
    """

    def __init__(
        self, regexes: Iterable[str], image: Topics, version: int, visible: Container[str] | None = None
    ) -> None:
        self._visible = visible
        self._version = version
        self._names = list(image.topics)
        self._left = [(regex, compile_regex(regex)) for regex in regexes]
        self._matched: dict[str, set[str]] = {regex: set() for regex, _ in self._left}
        self._position = 0

    def advance(self) -> bool:
        """Does a part of the work; whether it was the last."""
        budget = MATCHES_AT_ONCE
        while self._left and budget > 0:
            regex, pattern = self._left[-1]
            names = self._names[self._position : self._position + budget]
            visible = self._visible
            self._matched[regex].update(
                name for name in names if pattern.fullmatch(name) and (visible is None or name in visible)
            )
            budget -= max(len(names), 1)
            self._position += len(names)
            if self._position >= len(self._names):
                self._left.pop()
                self._position = 0
        return not self._left

    def result(self, now_ms: int) -> dict[str, ResolvedRegex]:
        return {
            regex: ResolvedRegex(frozenset(topics), self._version, now_ms)
            for regex, topics in self._matched.items()
        }
