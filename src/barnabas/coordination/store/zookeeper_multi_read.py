"""One request that reads many nodes, which ZooKeeper has since 3.6 and kazoo does not know.

A request to kazoo costs several switches between its thread and the event loop, so that many small ones cost more than
their answers. The server answers for each node, with its data or with an error of its own, and leaves no watches.

    request     for each path:  type 4 (int32)  done 0 (int8)  error -1 (int32)  path (string)  watch 0 (int8)
                at the end:     type -1         done 1         error -1
    response    for each path:  type 4          done 0         error 0           data (bytes)  stat (68 bytes)
                or:             type -1         done 0         error             error (int32)
                at the end:     type -1         done 1         error -1
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, TypeAlias

from kazoo.exceptions import EXCEPTIONS, NoNodeError
from kazoo.protocol.paths import _prefix_root
from kazoo.protocol.states import ZnodeStat

MULTI_READ: Final = 22
_GET_DATA: Final = 4
_HEADER: Final = Struct("!ibi")
_INT: Final = Struct("!i")
_STAT: Final = Struct("!qqqqiiiqiiq")
_END: Final = _HEADER.pack(-1, 1, -1)
_READ: Final = _HEADER.pack(_GET_DATA, 0, -1)

# What was found at a path: data and stat, None if there is no node, or why it cannot be read.
Found: TypeAlias = list[tuple[bytes, Any] | Exception | None]


class MultiRead:
    """A request, as kazoo's connection takes it."""

    type = MULTI_READ

    def __init__(self, chroot: str, paths: Sequence[str]) -> None:
        self._chroot = chroot
        self._paths = paths

    def __repr__(self) -> str:
        return f"MultiRead of {len(self._paths)} nodes"

    def serialize(self) -> bytearray:
        data = bytearray()
        for path in self._paths:
            name = _prefix_root(self._chroot, path).encode()
            data += _READ
            data += _INT.pack(len(name))
            data += name
            data.append(0)
        data += _END
        return data

    def deserialize(self, data: bytes, offset: int) -> Found:
        found: Found = []
        while True:
            kind, is_end, _ = _HEADER.unpack_from(data, offset)
            offset += _HEADER.size
            if is_end:
                break
            if kind == _GET_DATA:
                (length,) = _INT.unpack_from(data, offset)
                offset += _INT.size
                value = bytes(data[offset : offset + max(length, 0)])
                offset += len(value)
                found.append((value, ZnodeStat._make(_STAT.unpack_from(data, offset))))
                offset += _STAT.size
            else:
                (code,) = _INT.unpack_from(data, offset)
                offset += _INT.size
                found.append(None if code == NoNodeError.code else EXCEPTIONS[code]())
        if len(found) != len(self._paths):
            raise ValueError(f"ZooKeeper answers for {len(found)} nodes of {len(self._paths)}")
        return found
