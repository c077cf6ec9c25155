"""Passwords of settings that change at run time, encrypted as Apache Kafka 3.9 keeps them in ZooKeeper.

The text has its parameters, in any order, and binary values in base 64:

    keyFactoryAlgorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/CBC/PKCS5Padding,keyLength:128,salt:…,
    iterations:4096,initializationVector:…,encryptedPassword:…,passwordLength:6

The key comes from a secret of the brokers (`password.encoder.secret`). Needs the package cryptography.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas.errors import InvalidConfig

DEFAULT_KEY_FACTORY: Final = "PBKDF2WithHmacSHA512"
_KEY_FACTORY: Final = "PBKDF2WithHmac"
_HASHES: Final = ("SHA1", "SHA224", "SHA256", "SHA384", "SHA512")
_GCM: Final = "AES/GCM/NoPadding"
CIPHERS: Final = ("AES/CBC/PKCS5Padding", _GCM)
KEY_BITS: Final = (128, 192, 256)
# Another writer could keep a broker busy.
ITERATIONS_MAX: Final = 1_000_000
TEXT_CHARACTERS_MAX: Final = 1 << 20
_SALT_BYTES: Final = 256
_BLOCK_BYTES: Final = 16
_GCM_VECTOR_BYTES: Final = 12
_GCM_TAG_BITS: Final = 128
_KEYS_MAX: Final = 100
_FIELDS: Final = ("salt", "initializationVector", "encryptedPassword")


class CannotDecode(Exception):
    """The reason has no part of a secret."""


class _KeyParameters(NamedTuple):
    key_factory: str
    key_bits: int
    iterations: int
    salt: bytes


class PasswordEncoder:
    """The parameters are for encoding: an encoded text has its own. Raises InvalidConfig."""

    def __init__(
        self, secret: str, *, key_factory: str | None, cipher: str, key_bits: int, iterations: int
    ) -> None:
        try:
            import cryptography  # noqa: F401
        except ImportError:
            raise InvalidConfig(
                "password.encoder.secret needs the package cryptography: install `barnabas[security]`"
            ) from None
        self._secret = secret.encode()
        self._cipher = cipher
        self._parameters = _KeyParameters(key_factory or DEFAULT_KEY_FACTORY, key_bits, iterations, b"")
        # A key takes milliseconds, and a broker decodes the same passwords again and again.
        self._keys: dict[_KeyParameters, bytes] = {}
        if cipher not in CIPHERS:
            raise InvalidConfig(
                f"password.encoder.cipher.algorithm={cipher}: set it to one of {', '.join(CIPHERS)}"
            )
        try:
            _check(self._parameters)
        except CannotDecode as error:
            raise InvalidConfig(f"password.encoder: {error}") from None

    def encode_all(self, texts: Mapping[str, str]) -> dict[str, str]:
        """By name. They share a salt, so that there is one key to make."""
        if not texts:
            return {}
        parameters = self._parameters._replace(salt=secrets.token_bytes(_SALT_BYTES))
        return {name: self._encode(parameters, text) for name, text in texts.items()}

    def _encode(self, parameters: _KeyParameters, text: str) -> str:
        is_gcm = self._cipher == _GCM
        vector = secrets.token_bytes(_GCM_VECTOR_BYTES if is_gcm else _BLOCK_BYTES)
        encrypt = _encrypt_gcm if is_gcm else _encrypt_cbc
        encrypted = encrypt(self._key(parameters), vector, text.encode())
        fields = {
            "keyFactoryAlgorithm": parameters.key_factory,
            "cipherAlgorithm": self._cipher,
            "keyLength": parameters.key_bits,
            "salt": _encoded(parameters.salt),
            "iterations": parameters.iterations,
            "encryptedPassword": _encoded(encrypted),
            "passwordLength": _java_length(text),
            "initializationVector": _encoded(vector),
            **({"authenticationTagLength": _GCM_TAG_BITS} if is_gcm else {}),
        }
        return ",".join(f"{name}:{value}" for name, value in fields.items())

    def decode(self, text: str) -> str:
        """Raises CannotDecode."""
        from cryptography.exceptions import InvalidTag

        if len(text) > TEXT_CHARACTERS_MAX:
            raise CannotDecode("the encrypted password is too long")
        fields = dict(field.partition(":")[::2] for field in text.split(","))
        try:
            salt, vector, encrypted = (base64.b64decode(fields[name], validate=True) for name in _FIELDS)
            parameters = _KeyParameters(
                fields["keyFactoryAlgorithm"], int(fields["keyLength"]), int(fields["iterations"]), salt
            )
            length = int(fields["passwordLength"])
            tag_bits = int(fields.get("authenticationTagLength", _GCM_TAG_BITS))
            cipher = fields["cipherAlgorithm"]
        except (KeyError, ValueError):
            raise CannotDecode("the encrypted password is not complete") from None
        if cipher not in CIPHERS or tag_bits != _GCM_TAG_BITS:
            raise CannotDecode(f"the cipher {cipher[:100]} is not supported")
        _check(parameters)
        decrypt = _decrypt_gcm if cipher == _GCM else _decrypt_cbc
        try:
            password = decrypt(self._key(parameters), vector, encrypted).decode()
        except (ValueError, InvalidTag):
            raise CannotDecode("password.encoder.secret is not the one that it was encrypted with") from None
        if _java_length(password) != length:
            raise CannotDecode("password.encoder.secret is not the one that it was encrypted with")
        return password

    def _key(self, parameters: _KeyParameters) -> bytes:
        key = self._keys.get(parameters)
        if key is None:
            hash_name = parameters.key_factory.removeprefix(_KEY_FACTORY).lower()
            size = parameters.key_bits // 8
            key = hashlib.pbkdf2_hmac(hash_name, self._secret, parameters.salt, parameters.iterations, size)
            if len(self._keys) >= _KEYS_MAX:
                self._keys.clear()
            self._keys[parameters] = key
        return key


def is_encoded(text: str) -> bool:
    return all(f"{name}:" in text for name in ("keyFactoryAlgorithm", *_FIELDS))


def _check(parameters: _KeyParameters) -> None:
    prefix, hash_name = (
        parameters.key_factory[: len(_KEY_FACTORY)],
        parameters.key_factory[len(_KEY_FACTORY) :],
    )
    if prefix != _KEY_FACTORY or hash_name not in _HASHES:
        raise CannotDecode(f"the key factory {parameters.key_factory[:100]} is not supported")
    if parameters.key_bits not in KEY_BITS:
        raise CannotDecode(f"the key length must be one of {', '.join(map(str, KEY_BITS))}")
    if not 1 <= parameters.iterations <= ITERATIONS_MAX:
        raise CannotDecode(f"the iterations must be 1 to {ITERATIONS_MAX}")


def _encrypt_gcm(key: bytes, vector: bytes, clear: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key).encrypt(vector, clear, None)


def _decrypt_gcm(key: bytes, vector: bytes, encrypted: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key).decrypt(vector, encrypted, None)


def _encrypt_cbc(key: bytes, vector: bytes, clear: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    size = _BLOCK_BYTES - len(clear) % _BLOCK_BYTES
    encryptor = Cipher(algorithms.AES(key), modes.CBC(vector)).encryptor()
    return encryptor.update(clear + bytes([size]) * size) + encryptor.finalize()


def _decrypt_cbc(key: bytes, vector: bytes, encrypted: bytes) -> bytes:
    """Raises ValueError if the padding is wrong."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    decryptor = Cipher(algorithms.AES(key), modes.CBC(vector)).decryptor()
    clear = decryptor.update(encrypted) + decryptor.finalize()
    size = clear[-1] if clear else 0
    if not 1 <= size <= _BLOCK_BYTES or clear[-size:] != bytes([size]) * size:
        raise ValueError("wrong padding")
    return clear[:-size]


def _java_length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()
