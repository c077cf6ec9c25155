from __future__ import annotations

import contextlib
import gzip
import random
import struct
import zlib

import cramjam
import pytest

from barnabas.records.compression import CorruptCompression, compress, decompress
from barnabas.records.header import BatchHeader
from barnabas.records.layout import MAGIC_V0, MAGIC_V1, MAGIC_V2, MESSAGE_HEADER_V0, CompressionType
from tests.records.golden import golden_segments

COMPRESSIONS = [compression for compression in CompressionType if compression is not CompressionType.NONE]
SIZES = (0, 1, 100, 32 * 1024, 32 * 1024 + 1, 300_000)


def text(size: int) -> bytes:
    rng = random.Random(size)
    return bytes(rng.choices(b"kafka \n", k=size))


def formats_of(compression: CompressionType) -> tuple[int, ...]:
    return (MAGIC_V2,) if compression is CompressionType.ZSTD else (MAGIC_V0, MAGIC_V1, MAGIC_V2)


@pytest.mark.slow
@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("size", SIZES)
def test_round_trip(compression: CompressionType, size: int) -> None:
    for content in (text(size), random.Random(size).randbytes(size), bytes(size)):
        for magic in formats_of(compression):
            compressed = compress(content, compression, magic=magic)
            assert decompress(compressed, compression, magic=magic) == content
            # Exactly the bound is allowed.
            assert decompress(compressed, compression, magic=magic, max_decompressed_bytes=size) == content


@pytest.mark.parametrize(
    ("compression", "levels"),
    [
        (CompressionType.GZIP, (1, 9)),
        (CompressionType.LZ4, (1, 9, 17)),
        (CompressionType.ZSTD, (-5, 1, 19)),
    ],
)
def test_levels(compression: CompressionType, levels: tuple[int, ...]) -> None:
    content = text(50_000)
    for level in levels:
        assert decompress(compress(content, compression, level=level), compression) == content


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_output_has_a_bound(compression: CompressionType) -> None:
    bomb = compress(bytes(30_000_000), compression)
    assert len(bomb) < 2_000_000
    with pytest.raises(CorruptCompression):
        decompress(bomb, compression, max_decompressed_bytes=1_000_000)
    with pytest.raises(CorruptCompression):
        decompress(compress(bytes(1001), compression), compression, max_decompressed_bytes=1000)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_broken_streams(compression: CompressionType) -> None:
    content = text(5_000)
    compressed = compress(content, compression)
    rng = random.Random(7)
    for magic in formats_of(compression):
        for cut in rng.sample(range(len(compressed)), 60):
            _decompress_or_raise(compressed[:cut], compression, magic)
        for _ in range(300):
            broken = bytearray(compressed)
            for _ in range(rng.randint(1, 3)):
                broken[rng.randrange(min(len(broken), rng.choice([20, 1 << 20])))] = rng.randrange(256)
            _decompress_or_raise(bytes(broken), compression, magic)
        _decompress_or_raise(rng.randbytes(200), compression, magic)


def _decompress_or_raise(data: bytes, compression: CompressionType, magic: int) -> None:
    """A stream may be broken in ways that its framing does not show; it then gives bytes, but never too many."""
    with contextlib.suppress(CorruptCompression):
        assert len(decompress(data, compression, magic=magic, max_decompressed_bytes=100_000)) <= 100_000


def test_gzip_of_several_members() -> None:
    stream = gzip.compress(b"one ") + gzip.compress(b"") + gzip.compress(b"two")
    assert decompress(stream, CompressionType.GZIP) == b"one two"
    with pytest.raises(CorruptCompression):
        decompress(stream, CompressionType.GZIP, max_decompressed_bytes=6)


def test_snappy_is_read_in_all_its_spellings() -> None:
    content = text(1_000)
    block = bytes(cramjam.snappy.compress_raw(content))
    framed = struct.pack(">i", len(block)) + block
    big = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    little = b"\x82SNAPPY\x00" + struct.pack("<ii", 1, 1)
    assert decompress(block, CompressionType.SNAPPY) == content
    assert decompress(big + framed, CompressionType.SNAPPY) == content
    assert decompress(little + framed, CompressionType.SNAPPY) == content
    assert decompress(big + framed + framed, CompressionType.SNAPPY) == content * 2
    assert decompress(big + framed + little + framed, CompressionType.SNAPPY) == content * 2
    with pytest.raises(CorruptCompression, match="version"):
        decompress(b"\x82SNAPPY\x00" + bytes(8) + framed, CompressionType.SNAPPY)


def test_snappy_is_written_as_xerial_does() -> None:
    compressed = compress(text(100_000), CompressionType.SNAPPY)
    assert compressed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    sizes = []
    position = 16
    while position < len(compressed):
        (length,) = struct.unpack_from(">i", compressed, position)
        sizes.append(len(cramjam.snappy.decompress_raw(compressed[position + 4 : position + 4 + length])))
        position += 4 + length
    assert sizes == [32 * 1024] * 3 + [100_000 - 3 * 32 * 1024]


def test_lz4_blocks_are_independent() -> None:
    """Java refuses frames whose blocks lean on one another."""
    flags = compress(text(200_000), CompressionType.LZ4)[4]
    assert flags >> 6 == 1
    assert flags & 0x20


def test_lz4_header_checksum_is_wrong_where_kafkas_is() -> None:
    content = text(100)
    good = compress(content, CompressionType.LZ4, magic=MAGIC_V1)
    wrong = compress(content, CompressionType.LZ4, magic=MAGIC_V0)
    assert good[:6] == wrong[:6]
    assert good[6] != wrong[6]
    assert good[7:] == wrong[7:]
    with pytest.raises(CorruptCompression):
        decompress(wrong, CompressionType.LZ4, magic=MAGIC_V2)
    assert decompress(wrong, CompressionType.LZ4, magic=MAGIC_V1) == content


def test_kafkas_own_wrong_checksum_is_the_one_we_write() -> None:
    from barnabas.records.compression import _xxhash32

    compared = 0
    for segment in golden_segments():
        for position, header in segment.batches():
            if header.magic == MAGIC_V0 and header.compression is CompressionType.LZ4:
                frame = _wrapper_value(segment.data, position, header)
                assert frame[6] == _xxhash32(frame[:6]) >> 8 & 0xFF
                compared += 1
    assert compared > 10


def _wrapper_value(data: bytes, position: int, header: BatchHeader) -> bytes:
    start = position + MESSAGE_HEADER_V0.size
    key_length, value_length = struct.unpack_from(">ii", data, start)
    assert key_length == -1
    return data[start + 8 : start + 8 + value_length]


def test_lz4_frames_with_a_content_size() -> None:
    content = text(500)
    frame = compress(content, CompressionType.LZ4)
    with_size = bytes([*frame[:4], frame[4] | 0x08, frame[5]]) + struct.pack("<Q", len(content))
    # The header's checksum is not looked at before v2, so any byte will do.
    assert decompress(with_size + b"\x00" + frame[7:], CompressionType.LZ4, magic=MAGIC_V1) == content


def test_zstd_frames_after_another_and_without_content_size() -> None:
    compressor = cramjam.zstd.Compressor(3)
    compressor.compress(b"streamed ")
    streamed = bytes(compressor.flush())
    compressor.compress(b"in two")
    streamed += bytes(compressor.finish())
    skippable = struct.pack("<II", 0x184D2A51, 5) + b"12345"
    known = bytes(cramjam.zstd.compress(b" and more"))
    assert decompress(streamed + skippable + known, CompressionType.ZSTD) == b"streamed in two and more"


def test_gzip_is_written_at_zlibs_default_level() -> None:
    content = text(10_000)
    assert compress(content, CompressionType.GZIP) == zlib.compress(content, 6, zlib.MAX_WBITS | 16)
