"""Client metrics in OpenTelemetry's protocol buffers, as far as Kafka's clients use them (KIP-714).

    MetricsData     1: ResourceMetrics*
    ResourceMetrics 1: Resource, 2: ScopeMetrics*
    Resource        1: KeyValue*
    ScopeMetrics    2: Metric*
    Metric          1: name, 5: Gauge, 7: Sum
    Gauge           1: NumberDataPoint*
    Sum             1: NumberDataPoint*, 2: aggregation temporality (1: deltas)
    NumberDataPoint 4: double, 6: sfixed64, 7: KeyValue*
    KeyValue        1: key, 2: AnyValue
    AnyValue        1: text, 2: bool, 3: int64, 4: double

Other fields are skipped, histograms too: Kafka's clients send none. The bytes come from a client, so the number of
samples has a bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from barnabas.errors import InvalidRecord

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DELTA: Final = 1
_VARINT_BYTES_MAX: Final = 10
_ATTRIBUTES_MAX: Final = 20
_TEXT_BYTES_MAX: Final = 256
_DOUBLE: Final = Struct("<d")
_SFIXED64: Final = Struct("<q")

Attributes = tuple[tuple[str, str], ...]


class Sample(NamedTuple):
    name: str
    attributes: Attributes
    value: float
    # Whether the value is added to the previous one.
    is_delta: bool


class _Field(NamedTuple):
    """A field of a message: the value of a varint, or the position of the bytes of another type."""

    number: int
    wire_type: int
    value: int
    start: int
    end: int


def parse_samples(data: bytes, samples_max: int) -> list[Sample]:
    """The first samples of a push. Raises InvalidRecord if the bytes are malformed."""
    samples: list[Sample] = []
    for resource in _messages(data, 0, len(data), 1):
        common: list[tuple[str, str]] = []
        for described in _messages(data, resource.start, resource.end, 1):
            common += _attributes(data, described, 1)
        for scope in _messages(data, resource.start, resource.end, 2):
            for metric in _messages(data, scope.start, scope.end, 2):
                for sample in _metric(data, metric, common):
                    samples.append(sample)
                    if len(samples) >= samples_max:
                        return samples
    return samples


def _metric(data: bytes, metric: _Field, common: list[tuple[str, str]]) -> Iterator[Sample]:
    name = ""
    kinds: list[_Field] = []
    for field in _fields(data, metric.start, metric.end):
        if field.number == 1 and field.wire_type == _BYTES:
            name = _text(data, field)
        elif field.number in (5, 7) and field.wire_type == _BYTES:
            kinds.append(field)
    for kind in kinds:
        is_delta = kind.number == 7 and any(
            field.number == 2 and field.wire_type == _VARINT and field.value == _DELTA
            for field in _fields(data, kind.start, kind.end)
        )
        for point in _messages(data, kind.start, kind.end, 1):
            value = _value(data, point)
            if value is not None:
                attributes = dict([*common, *_attributes(data, point, 7)])
                yield Sample(name, tuple(sorted(attributes.items())), value, is_delta)


def _value(data: bytes, point: _Field) -> float | None:
    value: float | None = None
    for field in _fields(data, point.start, point.end):
        if field.wire_type == _FIXED64 and field.number == 4:
            (value,) = _DOUBLE.unpack_from(data, field.start)
        elif field.wire_type == _FIXED64 and field.number == 6:
            value = float(_SFIXED64.unpack_from(data, field.start)[0])
    return value


def _attributes(data: bytes, message: _Field, number: int) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for pair in _messages(data, message.start, message.end, number):
        key = text = ""
        for field in _fields(data, pair.start, pair.end):
            if field.wire_type == _BYTES and field.number == 1:
                key = _text(data, field)
            elif field.wire_type == _BYTES and field.number == 2:
                text = _any_text(data, field)
        found.append((key, text))
        if len(found) >= _ATTRIBUTES_MAX:
            break
    return found


def _any_text(data: bytes, message: _Field) -> str:
    for field in _fields(data, message.start, message.end):
        match field.number, field.wire_type:
            case 1, 2:
                return _text(data, field)
            case 2, 0:
                return "true" if field.value else "false"
            case 3, 0:
                return str(field.value - (1 << 64) if field.value >> 63 else field.value)
            case 4, 1:
                return str(_DOUBLE.unpack_from(data, field.start)[0])
    return ""


def _text(data: bytes, field: _Field) -> str:
    return data[field.start : min(field.end, field.start + _TEXT_BYTES_MAX)].decode(errors="replace")


def _messages(data: bytes, start: int, end: int, number: int) -> Iterator[_Field]:
    return (
        field for field in _fields(data, start, end) if field.number == number and field.wire_type == _BYTES
    )


def _fields(data: bytes, start: int, end: int) -> Iterator[_Field]:
    position = start
    while position < end:
        tag, position = _varint(data, position, end)
        number, wire_type = tag >> 3, tag & 7
        value = 0
        if wire_type == _VARINT:
            value, after = _varint(data, position, end)
        elif wire_type == _BYTES:
            size_bytes, position = _varint(data, position, end)
            after = position + size_bytes
        elif wire_type in (_FIXED64, _FIXED32):
            after = position + (8 if wire_type == _FIXED64 else 4)
        else:
            raise InvalidRecord(f"the metrics have a field of the unknown type {wire_type}")
        if after > end:
            raise InvalidRecord("the metrics end within a field")
        yield _Field(number, wire_type, value, position, after)
        position = after


def _varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    value = 0
    for index in range(_VARINT_BYTES_MAX):
        if position + index >= end:
            raise InvalidRecord("the metrics end within a number")
        byte = data[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position + index + 1
    raise InvalidRecord("the metrics have a number that is too long")
