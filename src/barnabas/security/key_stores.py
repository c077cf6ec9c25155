"""Private keys and certificates from the settings `ssl.keystore.…` and `ssl.truststore.…`.

A store is a PEM file, a PKCS12 file, or PEM text in the settings themselves. The content of a file shows its format;
the setting for the type must not contradict it. JKS files cannot be read here. The error has the command that converts
them.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.config.definition import InvalidSetting
from barnabas.errors import InvalidConfig

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

FILE_BYTES_MAX: Final = 4 << 20
_JKS_MAGIC: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_KEY: Final = re.compile(
    r"-----BEGIN ((?:RSA |EC |ENCRYPTED )?PRIVATE KEY)-----.*?-----END \1-----", re.DOTALL
)
_TYPES: Final = ("JKS", "PKCS12", "PEM")


class StoreSettings(NamedTuple):
    """The settings below `ssl.keystore.` or `ssl.truststore.`; `prefix` is their beginning, for error messages."""

    prefix: str
    location: str | None
    type: str
    password: str | None
    # Of the private key alone.
    key_password: str | None = None
    inline_key: str | None = None
    # The chain of a key store, or the certificates of a trust store.
    inline_certificates: str | None = None

    def __repr__(self) -> str:
        return f"StoreSettings({self.prefix}, {self.location}, [hidden])"

    @property
    def is_set(self) -> bool:
        return bool(self.location or self.inline_key or self.inline_certificates)


class KeyMaterial(NamedTuple):
    """A private key and its chain of certificates, as PEM."""

    key: str
    chain: str
    password: str | None

    def __repr__(self) -> str:
        return "KeyMaterial([hidden])"


def load_key_store(settings: StoreSettings) -> KeyMaterial:
    """Raises InvalidConfig that names the setting to change."""
    if settings.inline_key or settings.inline_certificates:
        _check_inline(settings)
        for name, text in (("key", settings.inline_key), ("certificate.chain", settings.inline_certificates)):
            if not text:
                raise InvalidConfig(
                    f"{settings.prefix}{name} is missing: it belongs to the other PEM settings"
                )
        return _pem_key_material(
            settings,
            f"{settings.prefix}key",
            f"{settings.inline_key}\n{settings.inline_certificates}".replace("\\n", "\n"),
        )
    name = f"{settings.prefix}location"
    if not settings.location:
        raise InvalidConfig(f"{name} is missing: a listener with TLS needs a private key and a certificate")
    data = _read(settings)
    if _is_pem(data):
        return _pem_key_material(settings, f"{name}={settings.location}", data.decode(errors="replace"))
    store = _pkcs12(settings, data)
    if store.key is None or store.cert is None:
        raise InvalidConfig(f"{name}={settings.location} has no private key with a certificate")
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    certificates = [store.cert.certificate, *(each.certificate for each in store.additional_certs)]
    key: Any = store.key
    return KeyMaterial(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
        "".join(each.public_bytes(Encoding.PEM).decode() for each in certificates),
        None,
    )


def load_trust_store(settings: StoreSettings) -> str:
    """The trusted certificates as PEM. Raises InvalidConfig that names the setting to change."""
    if settings.inline_certificates:
        _check_inline(settings)
        return _certificates(
            f"{settings.prefix}certificates", settings.inline_certificates.replace("\\n", "\n")
        )
    data = _read(settings)
    name = f"{settings.prefix}location={settings.location}"
    if _is_pem(data):
        return _certificates(name, data.decode(errors="replace"))
    store = _pkcs12(settings, data)
    from cryptography.hazmat.primitives.serialization import Encoding

    found = [each.certificate for each in store.additional_certs]
    if store.cert is not None:
        found.insert(0, store.cert.certificate)
    if not found:
        raise InvalidConfig(f"{name} has no certificates")
    return "".join(each.public_bytes(Encoding.PEM).decode() for each in found)


def _check_inline(settings: StoreSettings) -> None:
    if settings.location:
        raise InvalidConfig(
            f"{settings.prefix}location cannot be together with PEM text in other settings: use one of them"
        )
    if settings.type.upper() != "PEM":
        raise InvalidSetting(f"{settings.prefix}type", settings.type, "PEM for keys or certificates as text")


def _read(settings: StoreSettings) -> bytes:
    location = settings.location
    assert location
    name = f"{settings.prefix}location"
    if settings.type.upper() not in _TYPES:
        raise InvalidSetting(f"{settings.prefix}type", settings.type, "PEM or PKCS12")
    try:
        with open(location, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidConfig(f"{name}={location} cannot be read: {error.strerror or error}") from None
    if not data or len(data) > FILE_BYTES_MAX:
        raise InvalidConfig(f"{name}={location} has {len(data)} bytes, so it is no key store")
    if data[:4] in _JKS_MAGIC:
        base, _ = os.path.splitext(location)
        raise InvalidConfig(
            f"{name}={location} is a JKS file, which cannot be read here. Convert it with `keytool -importkeystore"
            f" -srckeystore {location} -destkeystore {base}.p12 -deststoretype PKCS12`, and set {name}={base}.p12"
        )
    if not _is_pem(data) and data[:1] != b"\x30":
        raise InvalidConfig(f"{name}={location} is neither a PEM nor a PKCS12 file")
    if settings.type.upper() == "PEM" and not _is_pem(data):
        raise InvalidSetting(f"{settings.prefix}type", settings.type, f"PKCS12 for the file {location}")
    return data


def _is_pem(data: bytes) -> bool:
    return b"-----BEGIN " in data


def _certificates(name: str, text: str) -> str:
    found = _CERTIFICATE.findall(text)
    if not found:
        raise InvalidConfig(f"{name} has no certificate in PEM form")
    return "\n".join(found) + "\n"


def _pem_key_material(settings: StoreSettings, name: str, text: str) -> KeyMaterial:
    key = _KEY.search(text)
    if key is None:
        raise InvalidConfig(f"{name} has no private key in PEM form")
    is_encrypted = "ENCRYPTED" in key[0]
    if is_encrypted and not settings.key_password:
        raise InvalidConfig(f"{name} has an encrypted private key: set ssl.key.password")
    return KeyMaterial(
        key[0] + "\n", _certificates(name, text), settings.key_password if is_encrypted else None
    )


def _pkcs12(settings: StoreSettings, data: bytes) -> PKCS12KeyAndCertificates:
    name = f"{settings.prefix}location={settings.location}"
    try:
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise InvalidConfig(
            f"{name} is a PKCS12 file, and the package that reads it is not installed. Install"
            " `barnabas[security]`, or use a PEM file"
        ) from None
    passwords = {settings.password, settings.key_password or settings.password}
    failure: Exception | None = None
    for password in passwords:
        try:
            return load_pkcs12(data, None if password is None else password.encode())
        except ValueError as error:
            failure = error
    raise InvalidConfig(f"{name} cannot be read: {failure}. Check {settings.prefix}password")
