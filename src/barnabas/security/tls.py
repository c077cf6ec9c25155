"""TLS contexts from settings with Kafka's names, the same for brokers and clients."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from barnabas.config.definition import InvalidSetting
from barnabas.errors import InvalidConfig
from barnabas.security.key_stores import KeyMaterial, StoreSettings, load_key_store, load_trust_store

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
# OpenSSL enables these by default. Python 3.11 cannot choose among them.
TLS_1_3_SUITES: Final = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)


class TlsSettings(NamedTuple):
    key_store: StoreSettings
    trust_store: StoreSettings
    client_auth: str
    enabled_protocols: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    checks_hostname: bool

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(
            each.location for each in (self.key_store, self.trust_store) if each.location is not None
        )


def tls_settings(get: Callable[[str], Any], prefix: str = "") -> TlsSettings:
    """`get` returns the value of a setting such as ssl.keystore.location. The prefix is for error messages."""
    return TlsSettings(
        key_store=StoreSettings(
            f"{prefix}ssl.keystore.",
            get("ssl.keystore.location"),
            get("ssl.keystore.type"),
            get("ssl.keystore.password"),
            get("ssl.key.password"),
            get("ssl.keystore.key"),
            get("ssl.keystore.certificate.chain"),
        ),
        trust_store=StoreSettings(
            f"{prefix}ssl.truststore.",
            get("ssl.truststore.location"),
            get("ssl.truststore.type"),
            get("ssl.truststore.password"),
            inline_certificates=get("ssl.truststore.certificates"),
        ),
        client_auth="none",
        enabled_protocols=tuple(get("ssl.enabled.protocols") or ()),
        cipher_suites=tuple(get("ssl.cipher.suites") or ()),
        checks_hostname=bool((get("ssl.endpoint.identification.algorithm") or "").strip()),
    )


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """For a listener. Raises InvalidConfig that names the setting to change."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _restrict(context, settings)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_COMPRESSION
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    _load_key(context, settings.key_store, load_key_store(settings.key_store))
    if settings.client_auth != "none":
        _load_trust(context, settings.trust_store, ssl.Purpose.CLIENT_AUTH)
        if not settings.trust_store.is_set:
            raise InvalidConfig(
                f"{settings.trust_store.prefix}location is missing: ssl.client.auth={settings.client_auth} needs the"
                " certificates that clients are trusted by"
            )
    elif settings.trust_store.is_set:
        # A wrong path shows at the start, not with the first connection to another broker.
        load_trust_store(settings.trust_store)
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """For connections to a broker. Raises InvalidConfig that names the setting to change."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _restrict(context, settings)
    context.check_hostname = settings.checks_hostname
    context.verify_mode = ssl.CERT_REQUIRED
    _load_trust(context, settings.trust_store, ssl.Purpose.SERVER_AUTH)
    if settings.key_store.is_set:
        _load_key(context, settings.key_store, load_key_store(settings.key_store))
    return context


def _restrict(context: ssl.SSLContext, settings: TlsSettings) -> None:
    chosen = []
    for name in settings.enabled_protocols:
        if name not in _VERSIONS:
            raise InvalidSetting("ssl.enabled.protocols", name, "TLSv1.2 and TLSv1.3")
        chosen.append(_VERSIONS[name])
    # With no list, both.
    chosen = chosen or list(_VERSIONS.values())
    suites = settings.cipher_suites
    if suites:
        newest = TLS_1_3_SUITES.intersection(suites)
        if newest and newest != TLS_1_3_SUITES:
            missing = ", ".join(sorted(TLS_1_3_SUITES - newest))
            raise InvalidSetting(
                "ssl.cipher.suites",
                ",".join(suites),
                f"all cipher suites of TLS 1.3 or none of them; also name {missing}",
            )
        older = [_openssl_name(each) for each in suites if each not in TLS_1_3_SUITES]
        if not newest:
            chosen = [each for each in chosen if each is not ssl.TLSVersion.TLSv1_3]
        if not older:
            chosen = [each for each in chosen if each is not ssl.TLSVersion.TLSv1_2]
        if not chosen:
            raise InvalidSetting(
                "ssl.cipher.suites", ",".join(suites), "cipher suites of a protocol in ssl.enabled.protocols"
            )
        if older:
            try:
                context.set_ciphers(":".join(older))
            except ssl.SSLError:
                raise InvalidSetting(
                    "ssl.cipher.suites", ",".join(suites), "cipher suites that OpenSSL on this machine has"
                ) from None
    context.minimum_version = min(chosen)
    context.maximum_version = max(chosen)


def _openssl_name(suite: str) -> str:
    """TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 is ECDHE-RSA-AES256-GCM-SHA384 in OpenSSL. Names of OpenSSL stay."""
    if not suite.startswith("TLS_"):
        return suite
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    if not cipher:
        raise InvalidSetting("ssl.cipher.suites", suite, "names of cipher suites")
    exchange = "" if exchange == "RSA" else exchange.replace("_", "-") + "-"
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("CBC_", "")
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    return exchange + cipher.replace("_", "-")


def _load_key(context: ssl.SSLContext, settings: StoreSettings, material: KeyMaterial) -> None:
    with _as_file(material.key + material.chain) as path:
        try:
            context.load_cert_chain(path, password=material.password or "")
        except (ssl.SSLError, OSError) as error:
            reason = getattr(error, "reason", None) or str(error)
            where = (
                f"{settings.prefix}location={settings.location}"
                if settings.location
                else f"{settings.prefix}key"
            )
            if material.password is not None and reason != "KEY_VALUES_MISMATCH":
                raise InvalidConfig(f"{where}: ssl.key.password does not decrypt the private key") from None
            if reason == "KEY_VALUES_MISMATCH":
                raise InvalidConfig(
                    f"{where}: the private key does not belong to the first certificate of the chain"
                ) from None
            raise InvalidConfig(
                f"{where}: the private key or certificate cannot be used ({reason})"
            ) from None


def _load_trust(context: ssl.SSLContext, settings: StoreSettings, purpose: ssl.Purpose) -> None:
    if not settings.is_set:
        context.load_default_certs(purpose)
        return
    certificates = load_trust_store(settings)
    # As in Java, every trusted certificate is an anchor, also one of an intermediate authority or of a peer itself.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=certificates)
    except (ssl.SSLError, TypeError) as error:
        # The second is for bytes that are no ASCII.
        reason = getattr(error, "reason", error)
        raise InvalidConfig(f"{settings.prefix}location: a certificate cannot be used ({reason})") from None


@contextlib.contextmanager
def _as_file(text: str) -> Iterator[str]:
    """OpenSSL reads keys from files: this one is in memory, and no other process sees it."""
    descriptor = os.memfd_create("key")
    try:
        os.write(descriptor, text.encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def file_versions(settings: TlsSettings) -> list[tuple[int, int, int] | None]:
    """They change when the files of the settings do."""
    return [_version_of(path) for path in settings.files]


def _version_of(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
