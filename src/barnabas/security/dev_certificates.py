"""Certificates for a laptop: a certificate authority, and certificates that it signs. Needs the package cryptography.

They are for development. The authority's key is thrown away when its certificates are signed, so it can sign no more.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from barnabas.errors import InvalidConfig

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate

LIFETIME_DAYS: Final = 365
# Clocks of a laptop and its containers differ.
_BACKDATED: Final = datetime.timedelta(hours=1)

CA: Final = "ca"
SERVER: Final = "server"


def dev_certificates(
    hosts: Iterable[str], users: Iterable[str], now: datetime.datetime, *, days: int = LIFETIME_DAYS
) -> Mapping[str, str]:
    """PEM texts by name: `ca`, `server`, and one per user. All but the first have a private key and certificates."""
    try:
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise InvalidConfig(
            "development certificates need the package cryptography: install `barnabas[security]`"
        ) from None
    lifetime = (now - _BACKDATED, now + datetime.timedelta(days=days))
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca = _sign("Barnabas development CA", ca_key, None, ca_key, lifetime, [], is_ca=True)
    texts = {CA: _pem(ca)}
    for name, subject, alternatives in (
        (SERVER, next(iter(hosts), "localhost"), list(hosts)),
        *((user, user, []) for user in users),
    ):
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _sign(subject, key, ca, ca_key, lifetime, alternatives, is_ca=False)
        texts[name] = _key_pem(key) + _pem(certificate) + _pem(ca)
    return texts


def _sign(
    subject: str,
    key: EllipticCurvePrivateKey,
    issuer: Certificate | None,
    issuer_key: EllipticCurvePrivateKey,
    lifetime: tuple[datetime.datetime, datetime.datetime],
    hosts: list[str],
    *,
    is_ca: bool,
) -> Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(lifetime[0])
        .not_valid_after(lifetime[1])
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=0 if is_ca else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
        )
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=is_ca,
                crl_sign=is_ca,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
    )
    if not is_ca:
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    if hosts:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False
        )
    return builder.sign(issuer_key, hashes.SHA256())


def _general_name(host: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode()


def _key_pem(key: EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
