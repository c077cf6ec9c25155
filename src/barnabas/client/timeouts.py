"""Time-outs have one unit and one spelling in all clients: `timeout_ms`. Other clients have `timeout`, in seconds."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar

from barnabas.client.argument_hints import refuse_other_names

C = TypeVar("C")

# Other clients take the time-out of these as the last argument, without a name.
LAST_ELSEWHERE: Final = {
    "abort_transaction",
    "close",
    "commit_transaction",
    "flush",
    "init_transactions",
    "leave_transaction",
    "send_offsets_to_transaction",
}


def refuse_timeout(method: str, given: object) -> NoReturn:
    """Raises TypeError that names the argument to use."""
    hint = f"timeout_ms={given * 1000:g}" if isinstance(given, int | float) else "timeout_ms=1000"
    raise TypeError(
        f"{method}() takes timeout_ms, in milliseconds, and not timeout: {hint} if you meant seconds"
    )


def refuse_other_types(method: str, timeout_ms: object, *, allows_none: bool = True) -> None:
    """Raises TypeError that names the argument, if it is no number."""
    if not isinstance(timeout_ms, int | float) and not (timeout_ms is None and allows_none):
        raise TypeError(f"{method}() takes timeout_ms as a number of milliseconds, and not {timeout_ms!r}")


def timeouts_in_ms(client: type[C]) -> type[C]:
    """Makes all methods of a class that have `timeout_ms` refuse `timeout`, and what is no number, with a hint."""
    for name in dir(client):
        method = getattr(client, name)
        if inspect.isfunction(method) and not name.startswith("_"):
            named = inspect.signature(method).parameters
            if "timeout_ms" in named and "timeout" not in named:
                setattr(client, name, _hinting(method))
    return client


def _hinting(method: Callable[..., Any]) -> Callable[..., Any]:
    known = inspect.signature(method).parameters
    parameter = known["timeout_ms"]
    # Where it is among the arguments without a name; a keyword alone is never there.
    is_positional = parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    place = list(known).index("timeout_ms") - 1 if is_positional else sys.maxsize
    others = sum(each.kind is each.POSITIONAL_OR_KEYWORD for each in known.values()) - 1
    last = others if method.__name__ in LAST_ELSEWHERE and not is_positional else sys.maxsize
    default = parameter.default

    def checked(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, ...]:
        if "timeout" in keywords or len(arguments) == last + 1:
            other = keywords.pop("timeout") if "timeout" in keywords else arguments[last]
            arguments = arguments[:last]
            # Zero is the same in any unit, and allowed.
            if other == 0:
                keywords["timeout_ms"] = 0.0
            elif other is not None:
                refuse_timeout(method.__name__, other)
        given = arguments[place] if len(arguments) > place else keywords.get("timeout_ms", default)
        refuse_other_types(method.__name__, given, allows_none=default is None)
        refuse_other_names(method.__name__, keywords, known)
        return arguments

    if inspect.iscoroutinefunction(method):

        async def later(self: Any, /, *arguments: Any, **keywords: Any) -> Any:
            return await method(self, *checked(arguments, keywords), **keywords)

        return functools.update_wrapper(later, method)

    def now(self: Any, /, *arguments: Any, **keywords: Any) -> Any:
        return method(self, *checked(arguments, keywords), **keywords)

    return functools.update_wrapper(now, method)
