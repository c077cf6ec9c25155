"""Encrypted passwords of settings, also compared with the class of Apache Kafka 3.9.1."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest

from barnabas.errors import InvalidConfig
from barnabas.security.password_encoder import CIPHERS, CannotDecode, PasswordEncoder, is_encoded
from tests.peers.kafka_peer import V3, PeerUnavailable, jars

ORACLE = Path(__file__).parent / "PasswordOracle.java"
TIMEOUT_S = 240
FACTORIES = (None, "PBKDF2WithHmacSHA1", "PBKDF2WithHmacSHA256")
SECRET = "the secret of brokers: ü"
TEXTS = ("", "x", "sixteen letters.", "a,b:c=d", "ü€😀", "x" * 1000)


def encoder(
    secret: str = SECRET,
    key_factory: str | None = None,
    cipher: str = CIPHERS[0],
    key_bits: int = 128,
    iterations: int = 4096,
) -> PasswordEncoder:
    return PasswordEncoder(
        secret, key_factory=key_factory, cipher=cipher, key_bits=key_bits, iterations=iterations
    )


@pytest.mark.parametrize("cipher", CIPHERS)
@pytest.mark.parametrize("key_bits", [128, 256])
def test_there_and_back(cipher: str, key_bits: int) -> None:
    given = {str(number): text for number, text in enumerate(TEXTS)}
    encoded = encoder(cipher=cipher, key_bits=key_bits).encode_all(given)
    assert all(map(is_encoded, encoded.values()))
    # The parameters are those of the text.
    other = encoder(key_factory="PBKDF2WithHmacSHA1", iterations=1024)
    assert {name: other.decode(text) for name, text in encoded.items()} == given
    with pytest.raises(CannotDecode, match="is not the one"):
        encoder("another").decode(encoded["5"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("iterations:4096", "iterations:1000001"),
        ("iterations:4096", "iterations:x"),
        ("keyLength:128", "keyLength:64"),
        ("PBKDF2WithHmacSHA512", "PBKDF2WithHmacMD5"),
        ("AES/CBC/PKCS5Padding", "DES/CBC/PKCS5Padding"),
        ("AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"),
        ("salt:", "salt:*"),
        ("passwordLength:6", "passwordLength:7"),
        ("encryptedPassword:", "encryptedPasswor:"),
        ("initializationVector:", "initializationVector:AAAA"),
    ],
)
def test_texts_that_are_refused(old: str, new: str) -> None:
    text = encoder().encode_all({"a": "secret"})["a"]
    assert old in text
    with pytest.raises(CannotDecode):
        encoder().decode(text.replace(old, new))


@pytest.mark.parametrize("text", ["", "secret", "a:b,c:d", "x" * (2 << 20)])
def test_what_is_no_encrypted_password(text: str) -> None:
    assert not is_encoded(text)
    with pytest.raises(CannotDecode):
        encoder().decode(text)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"cipher": "AES/ECB/PKCS5Padding"}, "password.encoder.cipher.algorithm=AES/ECB"),
        ({"key_factory": "PBEWithMD5AndDES"}, "key factory"),
        ({"key_bits": 100}, "key length"),
    ],
)
def test_settings_that_cannot_be_used(given: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidConfig, match=says):
        encoder(**given)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.peer
def test_kafka_reads_ours_and_we_read_kafkas() -> None:
    """With all ciphers, and texts of all kinds."""
    kinds = [
        (factory, cipher, bits)
        for factory, bits in zip(FACTORIES, (128, 192, 256), strict=True)
        for cipher in CIPHERS
    ]
    questions, ours = [], []
    for factory, cipher, bits in kinds:
        own = encoder(SECRET, factory, cipher, bits, 1024)
        for text in TEXTS:
            parameters = f"{_base64(SECRET)} {factory or '-'} {cipher} {bits} 1024"
            # Java's scanner drops an empty word at the end.
            questions.append(f"encode {parameters} {_base64(text or ' ')}")
            questions.append(f"decode {parameters} {_base64(own.encode_all({'': text})[''])}")
            ours.append((own, text))
    answers = _ask(questions)
    for (own, text), theirs, read in zip(ours, answers[::2], answers[1::2], strict=True):
        assert read == text
        assert is_encoded(theirs)
        assert own.decode(theirs) == (text or " ")


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _ask(lines: list[str]) -> list[str]:
    try:
        libraries = jars(V3)
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    done = subprocess.run(
        ["java", "-Xmx256M", "-XX:TieredStopAtLevel=1", "-cp", f"{libraries}/*", str(ORACLE)],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    return [base64.b64decode(line).decode() for line in done.stdout.splitlines()]
