"""The error of a call with several items of which some failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self

from barnabas.errors import KafkaError

SHOWN_ERRORS_MAX: Final = 5


class AdminErrors(ExceptionGroup[KafkaError]):
    """Some items of a call have failed. `errors` has the error of each, `results` the results of the others."""

    errors: Mapping[Any, KafkaError]
    results: Mapping[Any, Any]
    _what: str

    def __new__(cls, what: str, errors: Mapping[Any, KafkaError], results: Mapping[Any, Any]) -> Self:
        shown = [
            # Many messages already name the item.
            str(error) if str(item) in str(error) else f"{item}: {error}"
            for item, error in list(errors.items())[:SHOWN_ERRORS_MAX]
        ]
        if len(errors) > SHOWN_ERRORS_MAX:
            shown.append("…")
        count = len(errors) + len(results)
        group = super().__new__(
            cls, f"{what}: {len(errors)} of {count} failed: {'; '.join(shown)}", list(errors.values())
        )
        group.errors = errors
        group.results = results
        group._what = what
        return group

    def __init__(self, what: str, errors: Mapping[Any, KafkaError], results: Mapping[Any, Any]) -> None:
        super().__init__(self.message, list(errors.values()))

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle and copy."""
        return type(self), (self._what, self.errors, self.results), self.__dict__
