"""The messages between the brokers of one host and the process that has their store.

    frame       length of the body (u32), body
    request     kind (u8), request id (u32), what the kind needs
    answer      kind (u8), request id (u32), what the request asked for
    event       kind (u8), 0 (u32), type of the event (u8), path
    text        length (u32), UTF-8
    data        length (u32), bytes

All numbers are big-endian. A text may hold surrogates, as a path from a caller may: the store refuses it. Every length
is checked against the bytes that are there. A message that does not fit raises BadMessage, and ends the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from struct import Struct
from typing import Final, TypeVar

from barnabas.coordination.store.contract import (
    AccessDenied,
    BadArguments,
    BadVersion,
    Check,
    Create,
    CreateMode,
    Delete,
    EventType,
    MultiFailed,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    OperationResult,
    SessionExpired,
    SessionState,
    SetData,
    Stat,
    StoreError,
    StoreInUse,
    StoreUnavailable,
    WatchEvent,
)

T = TypeVar("T")

# The names of all topics at once take less.
FRAME_BYTES_MAX: Final = 64 << 20
# An answer with the data of many nodes ends after so many bytes, and the rest is asked for again.
ANSWER_BYTES: Final = 4 << 20

_LENGTH: Final = Struct(">I")
_BYTE: Final = Struct(">B")
_LONG: Final = Struct(">q")
_HEAD: Final = Struct(">BI")
_STAT: Final = Struct(">11q")
assert _STAT.size == 88


class Kind(IntEnum):
    # Requests.
    OPEN = 1
    PING = 2
    CLOSE = 3
    EXISTS = 4
    GET = 5
    GET_ALL = 6
    CHILDREN = 7
    MULTI = 8
    # Answers.
    RESULT = 20
    REFUSED = 21
    # What the store says by itself.
    EVENT = 30
    STATE = 31


class BadMessage(StoreUnavailable):
    """Bytes that are no message, or a message that is too large."""


# The position of a class is its number in a message.
_ERRORS: Final[tuple[type[StoreError], ...]] = (
    StoreError,
    NoNode,
    NodeExists,
    BadVersion,
    NotEmpty,
    NoChildrenForEphemerals,
    BadArguments,
    AccessDenied,
    SessionExpired,
    StoreUnavailable,
    StoreInUse,
    MultiFailed,
)
_MODES: Final = tuple(CreateMode)
_EVENT_TYPES: Final = tuple(EventType)
_STATES: Final = tuple(SessionState)


class Writer:
    """The body of a message."""

    __slots__ = ("_parts", "request_id", "size_bytes")

    def __init__(self, kind: Kind, request_id: int = 0) -> None:
        self.request_id = request_id
        self._parts = [_HEAD.pack(kind, request_id)]
        self.size_bytes = _HEAD.size

    def _add(self, part: bytes) -> None:
        self._parts.append(part)
        self.size_bytes += len(part)

    def byte(self, value: int) -> Writer:
        self._add(_BYTE.pack(value))
        return self

    def count(self, value: int) -> Writer:
        self._add(_LENGTH.pack(value))
        return self

    def long(self, value: int) -> Writer:
        self._add(_LONG.pack(value))
        return self

    def data(self, value: bytes) -> Writer:
        self._add(_LENGTH.pack(len(value)))
        self._add(value)
        return self

    def text(self, value: str) -> Writer:
        return self.data(value.encode(errors="surrogatepass"))

    def stat(self, value: Stat) -> Writer:
        self._add(
            _STAT.pack(
                value.czxid,
                value.mzxid,
                value.pzxid,
                value.ctime_ms,
                value.mtime_ms,
                value.version,
                value.cversion,
                value.aversion,
                value.ephemeral_owner,
                value.data_length,
                value.num_children,
            )
        )
        return self

    def frame(self) -> bytes:
        """Raises BadMessage if the message is too large."""
        if self.size_bytes > FRAME_BYTES_MAX:
            raise BadMessage(f"a message of {self.size_bytes} bytes is larger than {FRAME_BYTES_MAX}")
        return b"".join((_LENGTH.pack(self.size_bytes), *self._parts))


class Reader:
    """The body of a message that has arrived."""

    __slots__ = ("_body", "_position", "kind", "request_id")

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._position = 0
        kind, self.request_id = self._unpack(_HEAD)
        try:
            self.kind = Kind(kind)
        except ValueError:
            raise BadMessage(f"there is no message of kind {kind}") from None

    def _unpack(self, layout: Struct) -> tuple[int, ...]:
        start = self._position
        self._position += layout.size
        if self._position > len(self._body):
            raise BadMessage("a message ends too early")
        return layout.unpack_from(self._body, start)

    def byte(self) -> int:
        return self._unpack(_BYTE)[0]

    def count(self) -> int:
        """A number of things, each of which takes at least a byte."""
        (count,) = self._unpack(_LENGTH)
        if count > len(self._body) - self._position:
            raise BadMessage("a message ends too early")
        return count

    def long(self) -> int:
        return self._unpack(_LONG)[0]

    def data(self) -> bytes:
        size = self.count()
        start = self._position
        self._position += size
        return self._body[start : self._position]

    def text(self) -> str:
        try:
            return self.data().decode(errors="surrogatepass")
        except UnicodeDecodeError as error:
            raise BadMessage(f"a text is not UTF-8: {error}") from None

    def stat(self) -> Stat:
        values = self._unpack(_STAT)
        return Stat(
            czxid=values[0],
            mzxid=values[1],
            pzxid=values[2],
            ctime_ms=values[3],
            mtime_ms=values[4],
            version=values[5],
            cversion=values[6],
            aversion=values[7],
            ephemeral_owner=values[8],
            data_length=values[9],
            num_children=values[10],
        )

    def end(self) -> None:
        if self._position != len(self._body):
            raise BadMessage("a message has more bytes than it should")


class FrameSplitter:
    """Bytes as they arrive, in; bodies of messages, out."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterable[bytes]:
        """Raises BadMessage if a frame announces too many bytes. The result must be used up before the next call."""
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while len(buffer) - start >= _LENGTH.size:
                (size,) = _LENGTH.unpack_from(buffer, start)
                if not _HEAD.size <= size <= FRAME_BYTES_MAX:
                    raise BadMessage(f"a message cannot have {size} bytes")
                end = start + _LENGTH.size + size
                if end > len(buffer):
                    break
                body = bytes(memoryview(buffer)[start + _LENGTH.size : end])
                start = end
                yield body
        finally:
            del buffer[:start]


def write_operations(writer: Writer, operations: Sequence[Operation]) -> None:
    writer.count(len(operations))
    for operation in operations:
        match operation:
            case Create():
                writer.byte(1).text(operation.path).data(operation.data).byte(_MODES.index(operation.mode))
            case SetData():
                writer.byte(2).text(operation.path).data(operation.data).long(operation.version)
            case Delete():
                writer.byte(3).text(operation.path).long(operation.version)
            case Check():
                writer.byte(4).text(operation.path).long(operation.version)


def read_operations(reader: Reader) -> list[Operation]:
    operations: list[Operation] = []
    for _ in range(reader.count()):
        match reader.byte():
            case 1:
                path, data = reader.text(), reader.data()
                operations.append(Create(path, data, _choice(_MODES, reader.byte())))
            case 2:
                path, data = reader.text(), reader.data()
                operations.append(SetData(path, data, reader.long()))
            case 3:
                operations.append(Delete(reader.text(), reader.long()))
            case 4:
                operations.append(Check(reader.text(), reader.long()))
            case other:
                raise BadMessage(f"there is no operation {other}")
    return operations


def write_results(writer: Writer, results: Sequence[OperationResult]) -> None:
    writer.count(len(results))
    for result in results:
        if result is None:
            writer.byte(0)
        elif isinstance(result, str):
            writer.byte(1).text(result)
        else:
            writer.byte(2).stat(result)


def read_results(reader: Reader) -> list[OperationResult]:
    reads: tuple[Callable[[], OperationResult], ...] = (lambda: None, reader.text, reader.stat)
    return [_choice(reads, reader.byte())() for _ in range(reader.count())]


def write_error(writer: Writer, error: StoreError) -> None:
    if isinstance(error, MultiFailed):
        writer.byte(_ERRORS.index(MultiFailed)).long(error.index)
        error = error.error
    kind = next((each for each in type(error).__mro__ if each in _ERRORS), StoreError)
    writer.byte(_ERRORS.index(kind)).text(str(error))


def read_error(reader: Reader) -> StoreError:
    kind = _choice(_ERRORS, reader.byte())
    if kind is MultiFailed:
        index = reader.long()
        return MultiFailed(index, _choice(_ERRORS[:-1], reader.byte())(reader.text()))
    return kind(reader.text())


def event_frame(event: WatchEvent) -> bytes:
    return Writer(Kind.EVENT).byte(_EVENT_TYPES.index(event.type)).text(event.path).frame()


def read_event(reader: Reader) -> WatchEvent:
    kind = _choice(_EVENT_TYPES, reader.byte())
    return WatchEvent(type=kind, path=reader.text())


def state_frame(state: SessionState) -> bytes:
    return Writer(Kind.STATE).byte(_STATES.index(state)).frame()


def read_state(reader: Reader) -> SessionState:
    return _choice(_STATES, reader.byte())


def _choice(choices: Sequence[T], index: int) -> T:
    if index >= len(choices):
        raise BadMessage(f"there is no choice {index} of {len(choices)}")
    return choices[index]
