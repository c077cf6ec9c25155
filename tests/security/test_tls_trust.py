"""Which certificates of a trust store are trusted: all of them, as in Java."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from barnabas.security.key_stores import StoreSettings
from barnabas.security.tls import TlsSettings, client_context, server_context

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)


class Issued:
    def __init__(self, name: str, issuer: Issued | None = None, *, is_authority: bool = True) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject if issuer is None else issuer.certificate.subject)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - DAY)
            .not_valid_after(NOW + DAY)
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        )
        signing: Any = self.key if issuer is None else issuer.key
        self.certificate: x509.Certificate = builder.sign(signing, hashes.SHA256())

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def key_pem(self) -> str:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


ROOT = Issued("root")
INTERMEDIATE = Issued("intermediate", ROOT)
LEAF = Issued("leaf", INTERMEDIATE, is_authority=False)
OTHER_LEAF = Issued("other", ROOT, is_authority=False)


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    """Raises SSLError if one of them does not trust the other."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    while ends:
        for end in list(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            ends.remove(end)


def shake_hands_with_trust_in(folder: Path, trusted: Issued) -> None:
    """Both ends have the certificate of the leaf, and the one that issued it only if a root is trusted."""
    chain = LEAF.pem + (INTERMEDIATE.pem if trusted is ROOT else "")
    (folder / "key.pem").write_text(LEAF.key_pem + chain)
    (folder / "trust.pem").write_text(trusted.pem)
    settings = TlsSettings(
        key_store=StoreSettings("ssl.keystore.", str(folder / "key.pem"), "PEM", None),
        trust_store=StoreSettings("ssl.truststore.", str(folder / "trust.pem"), "PEM", None),
        client_auth="required",
        enabled_protocols=(),
        cipher_suites=(),
        checks_hostname=True,
    )
    shake_hands(client_context(settings), server_context(settings))


@pytest.mark.parametrize("trusted", [ROOT, INTERMEDIATE, LEAF], ids=["root", "intermediate", "leaf"])
def test_every_certificate_of_a_trust_store_is_an_anchor(tmp_path: Path, trusted: Issued) -> None:
    shake_hands_with_trust_in(tmp_path, trusted)


def test_nothing_else_is(tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands_with_trust_in(tmp_path, OTHER_LEAF)
