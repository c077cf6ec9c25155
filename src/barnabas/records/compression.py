"""The four compressions of records, with a bound on the decompressed size.

The framing of a stream gives an upper bound of its decompressed size before anything is allocated. The output buffer is
never larger than that or than the caller's limit, and a larger stream fails. Only gzip gives no bound in advance; zlib,
which stops at a bound, reads it as fast as any other library. Snappy and lz4 have Kafka's own framings:

- snappy as the xerial library writes it: 8 bytes of magic, two int32 versions, then blocks of int32 length and raw
  snappy. Some writers write the versions little-endian, some write raw snappy without any framing; the decoder reads
  all of these.
- lz4 frames with independent blocks. In v0 the checksum of the frame's header is computed from the wrong byte on. The
  encoder writes it this way for v0, and the decoder does not check it in v0 and v1.

The library is large. A program loads it with the first batch that needs it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

from barnabas.errors import InvalidRecord
from barnabas.records.layout import INT32, MAGIC_V0, MAGIC_V2, CompressionType

MAX_DECOMPRESSED_BYTES: Final = 128 * 1024 * 1024

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES: Final = 32 * 1024

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_CONTENT_SIZE_BIT: Final = 0x08
_LZ4_BLOCK_CHECKSUM_BIT: Final = 0x10
_LZ4_DICTIONARY_BIT: Final = 0x01

_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE_MAGIC: Final = 0x184D2A50
_ZSTD_BLOCK_BYTES_MAX: Final = 128 * 1024

_GZIP_WBITS: Final = zlib.MAX_WBITS | 16
_GZIP_LEVEL: Final = 6
_ZSTD_LEVEL: Final = 3
# Kafka's default level of lz4, which selects its fast compressor; any other level selects the high compressor.
_LZ4_FAST_LEVEL: Final = 9


class CorruptCompression(InvalidRecord):
    """Compressed bytes that do not decompress."""


class ExpandsTooFar(CorruptCompression):
    """Compressed bytes that expand to more than is allowed."""


def compress(
    data: bytes | bytearray | memoryview,
    compression: CompressionType,
    *,
    magic: int = MAGIC_V2,
    level: int | None = None,
) -> bytes:
    """The bytes as a batch of that magic carries them; a level of None is Kafka's default."""
    if compression is CompressionType.NONE:
        return bytes(data)
    if compression is CompressionType.GZIP:
        return zlib.compress(data, _GZIP_LEVEL if level is None else level, _GZIP_WBITS)
    if compression is CompressionType.SNAPPY:
        return _compress_xerial(data)
    if compression is CompressionType.LZ4:
        return _compress_lz4(data, magic, level)
    assert magic >= MAGIC_V2, "zstd is younger than the formats before v2"
    import cramjam

    return bytes(cramjam.zstd.compress(data, _ZSTD_LEVEL if level is None else level))


def decompress(
    data: bytes,
    compression: CompressionType,
    *,
    magic: int = MAGIC_V2,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> bytes:
    """The bytes that were compressed. Raises CorruptCompression if they are not that, or ExpandsTooFar."""
    if compression is CompressionType.NONE:
        return data
    if compression is CompressionType.GZIP:
        return _decompress_gzip(data, max_decompressed_bytes)
    if compression is CompressionType.SNAPPY:
        return _decompress_snappy(data, max_decompressed_bytes)
    import cramjam

    if compression is CompressionType.LZ4:
        if magic < MAGIC_V2:
            data = _with_lz4_header_checksum(data)
        return _decompress_into(
            "lz4", cramjam.lz4.decompress_into, data, _lz4_bound_bytes(data), max_decompressed_bytes
        )
    return _decompress_into(
        "zstd", cramjam.zstd.decompress_into, data, _zstd_bound_bytes(data), max_decompressed_bytes
    )


def _decompress_into(
    name: str, function: Callable[..., int], data: bytes, bound_bytes: int, max_decompressed_bytes: int
) -> bytes:
    import cramjam

    # The memory of a large bytearray is claimed as it is written to, so a generous bound costs nothing.
    output = bytearray(min(bound_bytes, max_decompressed_bytes))
    try:
        written = function(data, output)
    except cramjam.DecompressionError as error:
        if bound_bytes > max_decompressed_bytes:
            raise ExpandsTooFar(
                f"{len(data)} bytes of {name} may expand to {bound_bytes}, and do not within the"
                f" {max_decompressed_bytes} that are allowed: {error}"
            ) from None
        raise CorruptCompression(f"{len(data)} bytes of {name} do not decompress: {error}") from None
    with memoryview(output) as view:
        return bytes(view[:written])


def _decompress_gzip(data: bytes, max_decompressed_bytes: int) -> bytes:
    members: list[bytes] = []
    left_bytes = max_decompressed_bytes
    while True:
        member = zlib.decompressobj(_GZIP_WBITS)
        try:
            part = member.decompress(data, left_bytes + 1)
        except zlib.error as error:
            raise CorruptCompression(f"{len(data)} bytes of gzip do not decompress: {error}") from None
        if len(part) > left_bytes:
            raise ExpandsTooFar(
                f"{len(data)} bytes of gzip expand to more than the {max_decompressed_bytes} that are allowed"
            )
        if not member.eof:
            raise CorruptCompression(f"{len(data)} bytes of gzip end within the stream")
        members.append(part)
        left_bytes -= len(part)
        data = member.unused_data
        if not data.startswith(b"\x1f\x8b"):
            return members[0] if len(members) == 1 else b"".join(members)


def _compress_xerial(data: bytes | bytearray | memoryview) -> bytes:
    import cramjam

    parts: list[bytes] = [_XERIAL_HEADER]
    with memoryview(data) as view:
        for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
            block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
            parts.append(INT32.pack(len(block)))
            parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: bytes, max_decompressed_bytes: int) -> bytes:
    import cramjam

    if not data.startswith(_XERIAL_MAGIC):
        return _decompress_into(
            "snappy",
            cramjam.snappy.decompress_raw_into,
            data,
            _snappy_size_bytes(data, 0),
            max_decompressed_bytes,
        )
    blocks: list[tuple[int, int]] = []
    total_bytes = 0
    position = 0
    end = len(data)
    while position < end:
        if data.startswith(_XERIAL_MAGIC, position):
            # Streams may follow one another. A writer's version is only compared with the smallest that we read, as
            # xerial does, so both byte orders pass.
            if end - position < len(_XERIAL_HEADER) or INT32.unpack_from(data, position + 12)[0] < 1:
                raise CorruptCompression(
                    f"the xerial header at position {position} is cut off or of another version"
                )
            position += len(_XERIAL_HEADER)
            continue
        if end - position < INT32.size:
            raise CorruptCompression(f"the xerial block at position {position} ends within its length")
        (length,) = INT32.unpack_from(data, position)
        position += INT32.size
        if length < 0 or length > end - position:
            raise CorruptCompression(
                f"a xerial block of {length} bytes at position {position} does not fit in {end}"
            )
        blocks.append((position, position + length))
        total_bytes += _snappy_size_bytes(data, position)
        position += length
    if total_bytes > max_decompressed_bytes:
        raise ExpandsTooFar(
            f"{len(data)} bytes of snappy expand to {total_bytes}, more than the {max_decompressed_bytes} allowed"
        )
    return b"".join(
        [
            _decompress_into(
                "snappy",
                cramjam.snappy.decompress_raw_into,
                data[start:stop],
                _snappy_size_bytes(data, start),
                max_decompressed_bytes,
            )
            for start, stop in blocks
        ]
    )


def _snappy_size_bytes(data: bytes, position: int) -> int:
    """The varint at the start of raw snappy: the decompressed size."""
    size_bytes = 0
    for index, byte in enumerate(data[position : position + 5]):
        size_bytes |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return size_bytes
    raise CorruptCompression(f"the snappy block at position {position} does not begin with its size")


def _compress_lz4(data: bytes | bytearray | memoryview, magic: int, level: int | None) -> bytes:
    import cramjam

    fast = level is None or level == _LZ4_FAST_LEVEL
    compressor = cramjam.lz4.Compressor(
        level=1 if fast else level, content_checksum=False, block_linked=False
    )
    compressor.compress(data)
    frame = bytes(compressor.finish())
    if magic > MAGIC_V0:
        return frame
    end = _lz4_descriptor_end(frame)
    return frame[:end] + bytes([_xxhash32(frame[:end]) >> 8 & 0xFF]) + frame[end + 1 :]


def _with_lz4_header_checksum(data: bytes) -> bytes:
    end = _lz4_descriptor_end(data)
    return data[:end] + bytes([_xxhash32(data[4:end]) >> 8 & 0xFF]) + data[end + 1 :]


def _lz4_descriptor_end(data: bytes) -> int:
    """Where the frame descriptor ends, which is where the byte of its checksum stands."""
    if len(data) < 7 or not data.startswith(_LZ4_MAGIC):
        raise CorruptCompression(f"{len(data)} bytes of lz4 do not begin with a frame header")
    flags = data[4]
    end = 6
    if flags & _LZ4_CONTENT_SIZE_BIT:
        end += 8
    if flags & _LZ4_DICTIONARY_BIT:
        raise CorruptCompression("an lz4 frame asks for a dictionary")
    if end >= len(data):
        raise CorruptCompression(f"{len(data)} bytes of lz4 end within the frame header")
    return end


def _lz4_bound_bytes(data: bytes) -> int:
    position = _lz4_descriptor_end(data) + 1
    end = len(data)
    checksum_bytes = 4 if data[4] & _LZ4_BLOCK_CHECKSUM_BIT else 0
    block_bytes_max = 1 << (8 + 2 * (data[5] >> 4 & 7))
    bound_bytes = 0
    while position + 4 <= end:
        length = int.from_bytes(data[position : position + 4], "little")
        if length == 0:
            break
        stored = length & 0x7FFF_FFFF
        # Lz4 compresses to no less than 1/255 of the size.
        bound_bytes += stored if length != stored else min(block_bytes_max, 255 * stored)
        position += 4 + stored + checksum_bytes
    return bound_bytes


def _xxhash32(data: bytes) -> int:
    """xxHash of fewer than 16 bytes with seed 0, which is all that a frame descriptor needs."""
    assert len(data) < 16
    mask = 0xFFFF_FFFF
    value = (0x165667B1 + len(data)) & mask
    whole = len(data) // 4 * 4
    for position in range(0, whole, 4):
        value = (value + int.from_bytes(data[position : position + 4], "little") * 0xC2B2AE3D) & mask
        value = ((value << 17 | value >> 15) & mask) * 0x27D4EB2F & mask
    for byte in data[whole:]:
        value = (value + byte * 0x165667B1) & mask
        value = ((value << 11 | value >> 21) & mask) * 0x9E3779B1 & mask
    value = (value ^ value >> 15) * 0x85EBCA77 & mask
    value = (value ^ value >> 13) * 0xC2B2AE3D & mask
    return value ^ value >> 16


def _zstd_bound_bytes(data: bytes) -> int:
    """The sum of the sizes of the blocks of all frames. The decoder reports anything that is not a frame."""
    bound_bytes = 0
    position = 0
    end = len(data)
    while position + 5 <= end:
        magic = int.from_bytes(data[position : position + 4], "little")
        if magic & ~0xF == _ZSTD_SKIPPABLE_MAGIC:
            position += 8 + int.from_bytes(data[position + 4 : position + 8], "little")
            continue
        if magic != _ZSTD_MAGIC:
            break
        descriptor = data[position + 4]
        single_segment = descriptor >> 5 & 1
        content_size_flag = descriptor >> 6
        position += 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]
        position += (single_segment, 2, 4, 8)[content_size_flag]
        last = 0
        while not last and position + 3 <= end:
            block = int.from_bytes(data[position : position + 3], "little")
            last = block & 1
            kind = block >> 1 & 3
            size = block >> 3
            bound_bytes += size if kind < 2 else _ZSTD_BLOCK_BYTES_MAX
            position += 3 + (1 if kind == 1 else size)
        if descriptor & 4:
            position += 4
    return bound_bytes
