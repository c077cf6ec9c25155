from __future__ import annotations

from barnabas.primitives.crc32c import crc32c


def test_check_value_of_the_castagnoli_polynomial() -> None:
    assert crc32c(b"123456789") == 0xE3069283


def test_takes_any_buffer_and_continues() -> None:
    assert crc32c(memoryview(bytearray(b"6789")), crc32c(b"12345")) == 0xE3069283
