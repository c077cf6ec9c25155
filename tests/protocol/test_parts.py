"""Responses in parts: records stay what they are, and the parts together are the bytes of the whole."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from barnabas.primitives.file_slice import FileSlice
from barnabas.protocol.codec import encode, encode_parts
from barnabas.protocol.errors import EncodeError
from barnabas.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData


class OpenFile:
    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY)

    def pread(self, size_bytes: int, position: int) -> bytes:
        return os.pread(self._descriptor, size_bytes, position)

    def fileno(self) -> int:
        return self._descriptor

    def __del__(self) -> None:
        os.close(self._descriptor)


@pytest.mark.parametrize("version", range(19))
def test_slices_of_files_stay_slices(version: int, tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(os.urandom(10_000))
    file = OpenFile(path)
    slices = [FileSlice(file, 0, 5_000), FileSlice(file, 100, 7), FileSlice(file, 9_000, 0)]

    def response(records: Sequence[FileSlice | bytes]) -> FetchResponse:
        partitions = [
            PartitionData(partition_index=index, records=each) for index, each in enumerate(records)
        ]
        partitions.append(PartitionData(records=b"in memory"))
        partitions.append(PartitionData(records=None))
        topic = FetchableTopicResponse(topic="t" if version < 13 else "", partitions=partitions)
        return FetchResponse(responses=[topic])

    parts = encode_parts(response(slices), version)
    assert [part for part in parts if isinstance(part, FileSlice)] == slices
    joined = b"".join(part.read() if isinstance(part, FileSlice) else part for part in parts)
    assert joined == encode(response([each.read() for each in slices]), version)
    with pytest.raises(EncodeError):
        encode(response(slices), version)
