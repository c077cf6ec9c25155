"""Values: small immutable objects with named fields, compared by their fields. Written and typed like dataclasses.

    class Write(Value):
        operations: Sequence[Operation]
        is_last: bool = False

A dataclass compiles five functions when its module is loaded: half a millisecond for a class. A starting broker loads
dozens of such classes and uses few of them, so a value takes its functions from here. A class of which many values are
made gets an `__init__` of its own, which is as fast as a dataclass's: a topic may have thousands of partitions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, dataclass_transform

T = TypeVar("T")

# After so many values with named fields or defaults, a class gets an `__init__` of its own.
OWN_INIT_AFTER: Final = 200

if TYPE_CHECKING:
    from dataclasses import replace
else:

    def replace(value, /, **changes):
        """A copy in which some fields differ; type checkers know the fields."""
        values = [
            changes.pop(name) if name in changes else getattr(value, name) for name in value.__match_args__
        ]
        return type(value)(*values, **changes)


class _Factory:
    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


def field(*, default_factory: Callable[[], T]) -> T:
    """A default that is made for each value."""
    factory: Any = _Factory(default_factory)
    return factory  # type: ignore[no-any-return]


__all__ = ["Value", "field", "replace"]


class _DataclassFields:
    """For the functions of `dataclasses`: they accept values, too."""

    def __init__(self) -> None:
        # Of the classes that were asked for: to make them takes half a millisecond.
        self._made: dict[_ValueType, dict[str, Any]] = {}

    def __get__(self, value: object, cls: _ValueType) -> dict[str, Any]:
        fields = self._made.get(cls)
        if fields is None:
            from dataclasses import make_dataclass

            like: Any = make_dataclass(cls.__name__, cls.__match_args__, init=False, repr=False, eq=False)
            fields = self._made[cls] = like.__dataclass_fields__
        return fields


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class _ValueType(type):
    """Makes slots of the fields. Only type checkers see to `kw_only`."""

    _defaults: dict[str, Any]
    _setters: tuple[Any, ...]
    _made: int
    __match_args__: tuple[str, ...]

    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], *, kw_only: bool = False
    ) -> _ValueType:
        # Annotations are texts: each module has them postponed.
        annotations: dict[str, str] = namespace.get("__annotations__", {})
        own = [each for each, kind in annotations.items() if not kind.startswith("ClassVar")]
        inherited = next((base for base in bases if isinstance(base, _ValueType)), None)
        defaults = dict(inherited._defaults) if inherited is not None else {}
        defaults |= {each: namespace.pop(each) for each in own if each in namespace}
        before = inherited.__match_args__ if inherited is not None else ()
        fields = (*before, *(each for each in own if each not in before))
        namespace["__slots__"] = fields[len(before) :]
        namespace["__match_args__"] = fields
        if inherited is not None:
            # The one above may get its own, with fewer fields.
            namespace.setdefault("__init__", Value.__init__)
        made = super().__new__(cls, name, bases, namespace)
        made._defaults = defaults
        made._made = 0
        made._setters = tuple(getattr(made, each).__set__ for each in fields)
        return made

    def _all_values(cls, values: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """One value a field, in their order; TypeError as from a function that is called wrongly."""
        found = list(values)
        for name in cls.__match_args__[len(values) :]:
            if name in named:
                found.append(named.pop(name))
            elif name in cls._defaults:
                default = cls._defaults[name]
                found.append(default.make() if type(default) is _Factory else default)
            else:
                raise TypeError(f"{cls.__name__} needs a value for {name}")
        if named or len(found) > len(cls._setters):
            raise TypeError(f"{cls.__name__} has fewer fields than that: {cls.__match_args__}")
        return tuple(found)

    def _give_own_init(cls) -> None:
        if type.__getattribute__(cls, "__init__") is not Value.__init__:
            return
        names: dict[str, Any] = {"missing": _Factory}
        parameters, lines = ["self"], []
        for index, name in enumerate(cls.__match_args__):
            names[f"set_{index}"] = cls._setters[index]
            default = cls._defaults.get(name, _Factory)
            if default is _Factory:
                if "=" in parameters[-1]:
                    # A field without a default after one that has one.
                    return
                parameters.append(name)
            elif type(default) is _Factory:
                names[f"make_{index}"] = default.make
                parameters.append(f"{name}=missing")
                lines.append(f"    if {name} is missing: {name} = make_{index}()")
            else:
                names[f"default_{index}"] = default
                parameters.append(f"{name}=default_{index}")
            lines.append(f"    set_{index}(self, {name})")
        exec(f"def __init__({', '.join(parameters)}):\n" + "\n".join(lines), names)
        type.__setattr__(cls, "__init__", names["__init__"])


class Value(metaclass=_ValueType):
    # Type checkers take a value for a frozen dataclass. With these methods they would accept any attribute.
    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Any]]
    else:
        __dataclass_fields__ = _DataclassFields()

        def __setattr__(self, name, value):
            raise AttributeError(f"{type(self).__name__} is immutable: {name}")

        def __delattr__(self, name):
            raise AttributeError(f"{type(self).__name__} is immutable: {name}")

    def __init__(self, *values: Any, **named: Any) -> None:
        cls = type(self)
        setters = cls._setters
        if named or len(values) != len(setters):
            values = cls._all_values(values, named)
            cls._made += 1
            if cls._made == OWN_INIT_AFTER:
                cls._give_own_init()
        for set_field, value in zip(setters, values):  # noqa: B905  # They are as many, and this is faster.
            set_field(self, value)

    def _values(self) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in type(self).__match_args__])

    def _compared(self) -> tuple[Any, ...]:
        return self._values()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Value) or type(other) is not type(self):
            return NotImplemented
        return self._compared() == other._compared()

    def __hash__(self) -> int:
        return hash(self._compared())

    def __repr__(self) -> str:
        fields = zip(type(self).__match_args__, self._values(), strict=True)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in fields)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._values()
