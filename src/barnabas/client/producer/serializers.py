"""Keys, values and headers as bytes.

Without a serializer, bytes-like objects go as they are and text as UTF-8. A serializer is a function of the object, or
anything with a method `serialize(topic, object)`, as Java and others have it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

from barnabas.client.failures import SerializationError
from barnabas.client.producer.records import HeadersLike
from barnabas.errors import InvalidConfig
from barnabas.records.record import Headers

Serializer = Callable[[str, Any], Any]
# What is made bytes: "key", "value", or this, which has no serializer.
HEADER: Final = "header"


def serializer_for(setting: object, name: str) -> Serializer | None:
    """The value of a setting such as `value.serializer`, as a function of topic and object; None for the default."""
    if setting is None:
        return None
    if inspect.isclass(setting) and hasattr(setting, "serialize"):
        raise InvalidConfig(
            f"{name} takes an object of class {setting.__name__}, and not the class: {setting.__name__}(…)"
        )
    for_field = getattr(setting, "for_field", None)
    if for_field is not None:
        return cast(Serializer, for_field(name.partition(".")[0]))
    method = getattr(setting, "serialize", None)
    if method is not None:
        return cast(Serializer, method)
    if not callable(setting):
        raise InvalidConfig(f"{name} takes a function (object) -> bytes, and not {setting!r}")
    function = cast(Callable[[Any], Any], setting)
    return _WithoutTopic(function)


class _WithoutTopic:
    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def __call__(self, topic: str, given: Any) -> Any:
        return self._function(given)


def to_bytes(given: object, what: str) -> bytes | None:
    """The default serialization of an object, and the check of a serializer's result."""
    if given is None or type(given) is bytes:
        return given
    if isinstance(given, str):
        try:
            return given.encode()
        except UnicodeEncodeError as error:
            raise SerializationError(f"the {what} is text that UTF-8 cannot carry: {error}") from None
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    needed = f"the {what} is of type {type(given).__name__}, and bytes, str or None is needed"
    if what == HEADER:
        raise SerializationError(f"{needed}: encode it first, as in ('attempt', str(attempt))")
    raise SerializationError(
        f"{needed}: set {what}_serializer, such as {what}_serializer=lambda object: json.dumps(object).encode()"
    )


def serialized(serializer: Serializer, topic: str, given: object, what: str) -> bytes | None:
    try:
        made = serializer(topic, given)
    except Exception as error:
        raise SerializationError(
            f"{what}_serializer failed for topic {topic!r} and an object of type {type(given).__name__}: {error}"
        ) from error
    if inspect.isawaitable(made):
        if inspect.iscoroutine(made):
            made.close()
        raise SerializationError(f"{what}_serializer is a coroutine function; a plain function is needed")
    return to_bytes(made, what)


def to_headers(given: HeadersLike) -> Headers:
    """Headers as records have them; names are text, values bytes, text or None."""
    pairs: Iterable[Any] = given.items() if isinstance(given, Mapping) else given
    # A caller without type checks may have passed anything.
    if not isinstance(pairs, Iterable):
        raise SerializationError(f"headers are pairs, such as [('trace', b'1')], and not {given!r}")
    headers: list[tuple[str, bytes | None]] = []
    for pair in pairs:
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], str)):
            raise SerializationError(
                f"headers are pairs of a name and bytes, such as [('trace', b'1')], and not {pair!r}"
            )
        name, value = pair
        to_bytes(name, HEADER)
        headers.append((name, to_bytes(value, HEADER)))
    return tuple(headers)
