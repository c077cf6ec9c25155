"""Bytes that are not what they claim: one exception of ours each, that names what and where, and nothing else."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable

import pytest

from barnabas.errors import CorruptMessage, InvalidRecord, KafkaError, UnsupportedCompressionType
from barnabas.model import LeaderEpoch, Offset, TimestampMs
from barnabas.primitives.crc32c import crc32c
from barnabas.records.builder import BatchBuilder, encode_message
from barnabas.records.convert import down_convert
from barnabas.records.header import CorruptRecord, entry_size, iterate_headers, parse_header, verify_crc
from barnabas.records.layout import CompressionType
from barnabas.records.policy import AppendPolicy
from barnabas.records.reader import decode_batch, iterate_batches
from barnabas.records.record import MalformedRecord
from barnabas.records.validate import validate_records
from tests.records.columns import decode_columns
from tests.records.golden import golden_segments
from tests.sampling import cases

MUTATIONS = cases(10_000, fast=2_000)


def batch(*payloads: bytes, count: int | None = None) -> bytes:
    """A batch of v2 with these bytes for records, and a CRC that fits them."""
    builder = BatchBuilder()
    builder.append(TimestampMs(1), None, b"")
    head = bytearray(builder.build()[:61])
    body = b"".join(payloads)
    struct.pack_into(">i", head, 8, 49 + len(body))
    struct.pack_into(">i", head, 57, len(payloads) if count is None else count)
    struct.pack_into(">i", head, 23, (len(payloads) if count is None else count) - 1)
    return with_crc(bytes(head) + body)


def with_crc(data: bytes) -> bytes:
    """The entry with the checksum that its bytes ask for."""
    patched = bytearray(data)
    if len(data) > 21 and data[16] == 2:
        struct.pack_into(">I", patched, 17, crc32c(data[21:]))
    elif len(data) > 17 and data[16] < 2:
        struct.pack_into(">I", patched, 12, zlib.crc32(data[16:]))
    return bytes(patched)


def record(body: bytes) -> bytes:
    assert len(body) < 64
    return bytes([2 * len(body)]) + body


GOOD = record(b"\x00\x00\x00\x02k\x04va\x00")


def test_the_good_record_is_good() -> None:
    (decoded,) = decode_batch(batch(GOOD))
    assert (decoded.offset, decoded.timestamp, decoded.key, decoded.value) == (0, 1, b"k", b"va")


@pytest.mark.parametrize(
    ("payload", "what"),
    [
        (b"", "end within record 0 of 1"),
        (b"\x01", "length -1"),
        (b"\x14" + GOOD[1:], "length 10"),
        (b"\x10" + GOOD[1:], "length"),
        (record(b"\x00\x00\x00\x40k\x04va\x00"), "key length 32"),
        (record(b"\x00\x00\x00\x02k\x08va\x00"), "value length 4"),
        (record(b"\x00\x00\x00\x02k\x06va\x00"), "end within record 0 of 1"),
        (record(b"\x00\x00\x00\x02k\x04va\x01"), "-1 headers"),
        (record(b"\x00\x00\x00\x02k\x04va\x40"), "32 headers in 0 bytes"),
        (record(b"\x00\x00\x00\x02k\x04va\x02\x01\x00"), "name of -1 bytes"),
        (record(b"\x00\x00\x00\x02k\x04va\x02\x10h\x00"), "name of 8 bytes"),
        (record(b"\x00\x00\x00\x02k\x04va\x02\x02h\x10v"), "value of header 'h', 8 bytes"),
        (record(b"\x00\x00\x00\x02k\x04va\x00!"), "length 1"),
        (record(b"\x00\x00\x80\x80\x80\x80\x80\x01\x02k\x04va\x00"), "more than 5 bytes"),
        (record(b"\x00" + b"\x80" * 10 + b"\x01\x00\x02k\x04va\x00"), "more than 10 bytes"),
        (b"\x80\x80\x80\x80\x80\x01", "more than 5 bytes"),
        (GOOD + b"\x00", "1 bytes follow"),
    ],
)
def test_malformed_records(payload: bytes, what: str) -> None:
    data = batch(payload)
    verify_crc(data, 0, parse_header(data))
    with pytest.raises(MalformedRecord, match=what):
        decode_batch(data)
    with pytest.raises(InvalidRecord):
        decode_columns(data)
    with pytest.raises(InvalidRecord):
        _validate(AppendPolicy(validate_fully=True))(data)


def test_a_batch_with_fewer_or_more_records_than_it_says() -> None:
    with pytest.raises(MalformedRecord, match="end within record 2 of 3"):
        decode_batch(batch(GOOD, GOOD, count=3))
    with pytest.raises(MalformedRecord, match=f"{len(GOOD)} bytes follow the 1 records"):
        decode_batch(batch(GOOD, GOOD, count=1))
    with pytest.raises(MalformedRecord, match="-1 records"):
        decode_batch(batch(GOOD, count=-1))


def test_a_count_of_records_allocates_nothing() -> None:
    with pytest.raises(MalformedRecord):
        decode_batch(batch(GOOD, count=2**31 - 1))
    with pytest.raises(MalformedRecord):
        decode_columns(batch(GOOD, count=2**31 - 1))
    with pytest.raises(MalformedRecord):
        _validate(AppendPolicy(validate_fully=True))(batch(GOOD, count=2**31 - 1))


@pytest.mark.parametrize("offset", [-1, -(2**63), 2**63 - 1])
def test_a_base_offset_out_of_range(offset: int) -> None:
    data = struct.pack(">q", offset) + batch(GOOD)[8:]
    with pytest.raises(MalformedRecord, match=str(offset)):
        decode_batch(data)
    with pytest.raises(MalformedRecord, match=str(offset)):
        decode_columns(data)


def test_headers_that_are_cut_off_or_wrong() -> None:
    v2, v1, v0 = batch(GOOD), encode_message(1, Offset(0), TimestampMs(5), b"k", b"v"), _v0()
    for data, header_bytes in ((v2, 61), (v1, 26), (v0, 18)):
        for size in range(header_bytes):
            with pytest.raises(CorruptRecord, match="position 3"):
                parse_header(b"..." + data[:size], 3)
        assert parse_header(data[:header_bytes]).size_bytes == len(data)
    for data, smallest in ((v2, 49), (v1, 22), (v0, 14)):
        for length in (-(2**31), -1, 0, 13, smallest - 1):
            with pytest.raises(CorruptRecord, match=f"{length}|{length + 12}"):
                parse_header(data[:8] + struct.pack(">i", length) + data[12:])
    for magic in (3, 127, 128, 255):
        with pytest.raises(CorruptRecord, match=f"magic {magic}"):
            parse_header(v2[:16] + bytes([magic]) + v2[17:])
        with pytest.raises(CorruptRecord, match=f"magic {magic}"):
            iterate_headers(v2[:16] + bytes([magic]) + v2[17:40])
    with pytest.raises(CorruptRecord, match="length 13"):
        entry_size(v2[:8] + struct.pack(">i", 13))
    with pytest.raises(CorruptRecord):
        entry_size(v2[:11])


def _v0() -> bytes:
    return encode_message(0, Offset(0), TimestampMs(-1), b"k", b"v")


@pytest.mark.parametrize(
    "data", [batch(GOOD), encode_message(1, Offset(7), TimestampMs(5), b"k", b"v"), _v0()]
)
def test_every_flipped_bit_fails_the_crc(data: bytes) -> None:
    covered = 17 if data[16] == 2 else 12
    for position in range(covered, len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            with pytest.raises(CorruptMessage):
                verify_crc(flipped, 0, parse_header(flipped))
    verify_crc(data, 0, parse_header(data))
    with pytest.raises(CorruptRecord, match="are there"):
        verify_crc(data[:-1], 0, parse_header(data))


def test_the_leader_epoch_is_outside_the_crc() -> None:
    data = bytearray(batch(GOOD))
    struct.pack_into(">qii", data, 0, 12345, len(data) - 12, 77)
    header = parse_header(data)
    verify_crc(data, 0, header)
    assert (header.base_offset, header.partition_leader_epoch) == (12345, 77)


@pytest.mark.parametrize("number", [5, 6, 7])
def test_an_unknown_compression(number: int) -> None:
    data = bytearray(batch(GOOD))
    data[22] |= number
    unknown = with_crc(bytes(data))
    with pytest.raises(UnsupportedCompressionType, match=str(number)):
        decode_batch(unknown)
    with pytest.raises(UnsupportedCompressionType):
        decode_columns(unknown)
    with pytest.raises(UnsupportedCompressionType):
        validate_records(
            unknown, base_offset=Offset(0), now_ms=0, leader_epoch=LeaderEpoch(0), policy=AppendPolicy()
        )


def test_lengths_in_messages() -> None:
    good = encode_message(1, Offset(3), TimestampMs(5), b"key", b"value")
    assert decode_batch(good)[0].value == b"value"
    for position, length in ((26, 100), (26, 2**31 - 1), (33, 6), (33, 2**31 - 1)):
        broken = bytearray(good)
        struct.pack_into(">i", broken, position, length)
        with pytest.raises(CorruptRecord, match=f"{length} in the message at offset 3"):
            decode_batch(bytes(broken))
    broken = bytearray(good)
    struct.pack_into(">i", broken, 26, 10)
    with pytest.raises(CorruptRecord, match="ends within a length"):
        decode_batch(bytes(broken))


@pytest.mark.parametrize("magic", [0, 1])
def test_wrappers_that_are_not_what_they_claim(magic: int) -> None:
    gzip = int(CompressionType.GZIP)
    timestamp = TimestampMs(1)

    def wrapper(value: bytes | None, offset: int = 0, compression: int = gzip) -> bytes:
        return encode_message(magic, Offset(offset), timestamp, None, value, attributes=compression)

    def zipped(data: bytes) -> bytes:
        return zlib.compress(data, wbits=31)

    inner = encode_message(magic, Offset(0), timestamp, None, b"v")
    assert decode_batch(wrapper(zipped(inner)))[0].value == b"v"
    for broken, what in (
        (wrapper(None), "no value"),
        (wrapper(zipped(b"")), "no messages"),
        (wrapper(zipped(inner[:-1])), "no messages"),
        (wrapper(b"no gzip"), "gzip"),
        (wrapper(zipped(wrapper(zipped(inner)))), "magic"),
        (wrapper(zipped(batch(GOOD))), "magic 2"),
        (wrapper(inner, compression=int(CompressionType.ZSTD)), "zstd"),
        (wrapper(inner, compression=6), "6"),
    ):
        with pytest.raises(KafkaError, match=what):
            decode_batch(broken)
    with pytest.raises(CorruptRecord):
        decode_batch(wrapper(zipped(inner[:8] + bytes(4) + inner[12:])))
    if magic == 1:
        late = encode_message(1, Offset(9), timestamp, None, b"v")
        with pytest.raises(InvalidRecord, match="relative offset 9"):
            decode_batch(wrapper(zipped(late), offset=8))
        far = encode_message(1, Offset(2**63 - 1), timestamp, None, b"v")
        near = encode_message(1, Offset(0), timestamp, None, b"v")
        with pytest.raises(InvalidRecord, match=str(2**63 + 7)):
            decode_batch(wrapper(zipped(far + near), offset=8))


def _validate(policy: AppendPolicy) -> Callable[[bytes], object]:
    def validate(data: bytes) -> object:
        return validate_records(
            data, base_offset=Offset(9), now_ms=10**12, leader_epoch=LeaderEpoch(1), policy=policy
        )

    return validate


READERS: list[Callable[[bytes], object]] = [
    lambda data: list(iterate_batches(data, max_decompressed_bytes=1 << 20)),
    lambda data: decode_columns(data, max_decompressed_bytes=1 << 20),
    lambda data: down_convert(data, to_magic=1, first_offset=Offset(0), max_decompressed_bytes=1 << 20),
    _validate(AppendPolicy(validate_fully=True)),
    _validate(AppendPolicy(compression=CompressionType.LZ4)),
    _validate(AppendPolicy(magic=1, compression=CompressionType.NONE)),
]


def test_mutated_golden_batches_raise_nothing_but_our_errors() -> None:
    rng = random.Random(20_260)
    entries = [
        segment.data[position : position + header.size_bytes]
        for segment in golden_segments()
        for position, header in segment.batches()
        if header.size_bytes < 2_000
    ]
    failed = 0
    for _ in range(MUTATIONS):
        data = bytearray(rng.choice(entries))
        # A client's batch begins at offset 0; otherwise validation would look no further.
        if data[16] == 2:
            data[:8] = bytes(8)
        for _ in range(rng.randint(0, 3)):
            reach = rng.choice([26, 80, len(data)])
            data[rng.randrange(min(reach, len(data)))] = rng.choice(
                [0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)]
            )
        if rng.random() < 0.1:
            del data[rng.randrange(len(data)) :]
        mutated = with_crc(bytes(data)) if rng.random() < 0.9 else bytes(data)
        for read in READERS:
            try:
                read(mutated)
            except KafkaError:
                failed += 1
    assert MUTATIONS < failed < 5 * MUTATIONS, "most mutations must be noticed by some reader, and not by all"
