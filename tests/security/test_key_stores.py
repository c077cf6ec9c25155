"""Keys and certificates in all the forms that a setting may name."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509 import load_pem_x509_certificate

from barnabas.errors import InvalidConfig
from barnabas.security.tls import TlsSettings, _openssl_name, client_context, server_context, tls_settings
from tests.security.certificates import certificates, other_certificates


def settings_of(**given: object) -> TlsSettings:
    values: dict[str, object] = {
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        "ssl.enabled.protocols": ("TLSv1.2", "TLSv1.3"),
        "ssl.endpoint.identification.algorithm": "https",
        **{name.replace("_", "."): value for name, value in given.items()},
    }
    return tls_settings(values.get)


def test_pem_files_and_texts(tmp_path: Path) -> None:
    store = tmp_path / "server.pem"
    store.write_text(certificates()["server"])
    server_context(settings_of(ssl_keystore_location=str(store)))
    key, _, chain = certificates()["server"].partition("-----END PRIVATE KEY-----\n")
    key += "-----END PRIVATE KEY-----\n"
    # A properties file may have it on one line.
    for text in (chain, chain.replace("\n", "\\n")):
        server_context(settings_of(ssl_keystore_key=key, ssl_keystore_certificate_chain=text))
    context = client_context(settings_of(ssl_truststore_certificates=certificates()["ca"]))
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_encrypted_key(tmp_path: Path) -> None:
    key = load_pem_private_key(certificates()["server"].encode(), None)
    encrypted = key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"hush")
    ).decode()
    chain = certificates()["server"].partition("-----END PRIVATE KEY-----\n")[2]
    store = tmp_path / "server.pem"
    store.write_text(encrypted + chain)
    server_context(settings_of(ssl_keystore_location=str(store), ssl_key_password="hush"))
    with pytest.raises(InvalidConfig, match="does not decrypt"):
        server_context(settings_of(ssl_keystore_location=str(store), ssl_key_password="wrong"))
    with pytest.raises(InvalidConfig, match=r"set ssl\.key\.password"):
        server_context(settings_of(ssl_keystore_location=str(store)))


@pytest.mark.parametrize("store_type", ["PKCS12", "JKS"])
def test_pkcs12(tmp_path: Path, store_type: str) -> None:
    """Java takes PKCS12 files under its default type, JKS, too."""
    pem = certificates()["ann"].encode()
    key = load_pem_private_key(pem, None)
    data = serialize_key_and_certificates(
        b"ann",
        key,  # type: ignore[arg-type]
        load_pem_x509_certificate(pem),
        [load_pem_x509_certificate(certificates()["ca"].encode())],
        BestAvailableEncryption(b"changeit"),
    )
    store = tmp_path / "ann.p12"
    store.write_bytes(data)
    given = {"ssl_keystore_type": store_type, "ssl_keystore_location": str(store)}
    server_context(settings_of(**given, ssl_keystore_password="changeit"))
    with pytest.raises(InvalidConfig, match=r"Check ssl\.keystore\.password"):
        server_context(settings_of(**given, ssl_keystore_password="wrong"))
    with pytest.raises(InvalidConfig, match=r"ssl\.keystore\.type"):
        server_context(settings_of(ssl_keystore_location=str(store), ssl_keystore_password="changeit"))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("keytool") is None, reason="needs keytool, of a JDK")
def test_stores_of_keytool(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(certificates()["ca"])

    def keytool(name: str, store_type: str) -> Path:
        store = tmp_path / name
        command = ["keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", str(tmp_path / "ca.pem")]
        subprocess.run(
            [*command, "-keystore", str(store), "-storetype", store_type, "-storepass", "changeit"],
            check=True,
            capture_output=True,
        )
        return store

    trusted = keytool("ca.p12", "PKCS12")
    context = client_context(
        settings_of(
            ssl_truststore_type="PKCS12",
            ssl_truststore_location=str(trusted),
            ssl_truststore_password="changeit",
        )
    )
    assert len(context.get_ca_certs()) == 1
    old = keytool("ca.jks", "JKS")
    with pytest.raises(InvalidConfig, match=r"keytool -importkeystore .*ca\.p12"):
        client_context(settings_of(ssl_truststore_type="JKS", ssl_truststore_location=str(old)))


def test_faults_name_the_setting(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_text(certificates()["ca"])
    mixed = tmp_path / "mixed.pem"
    key = certificates()["server"].partition("-----BEGIN CERTIFICATE")[0]
    mixed.write_text(key + other_certificates()["server"].partition("-----END PRIVATE KEY-----\n")[2])
    missing = str(tmp_path / "missing.pem")
    for given, says in (
        ({}, r"ssl\.keystore\.location is missing"),
        ({"ssl_keystore_location": missing}, "missing.pem cannot be read: No such file"),
        ({"ssl_keystore_location": str(ca)}, "has no private key"),
        ({"ssl_keystore_location": str(mixed)}, "does not belong to the first certificate"),
        ({"ssl_keystore_location": str(mixed), "ssl_keystore_key": "x"}, "use one of them"),
        ({"ssl_keystore_key": key}, r"ssl\.keystore\.certificate\.chain is missing"),
        ({"ssl_keystore_location": str(ca), "ssl_keystore_type": "BKS"}, "PEM or PKCS12"),
    ):
        with pytest.raises(InvalidConfig, match=says):
            server_context(settings_of(**given))
    with pytest.raises(InvalidConfig, match=r"ssl\.truststore\.location=.* cannot be read"):
        client_context(settings_of(ssl_truststore_location=missing))


def test_protocols_and_cipher_suites(tmp_path: Path) -> None:
    store = tmp_path / "server.pem"
    store.write_text(certificates()["server"])

    def context(**given: object) -> ssl.SSLContext:
        return server_context(settings_of(ssl_keystore_location=str(store), **given))

    plain = context()
    assert (plain.minimum_version, plain.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    assert context(ssl_enabled_protocols=("TLSv1.3",)).minimum_version is ssl.TLSVersion.TLSv1_3
    older = context(ssl_cipher_suites=("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",))
    assert older.maximum_version is ssl.TLSVersion.TLSv1_2
    with pytest.raises(InvalidConfig, match=r"ssl\.enabled\.protocols"):
        context(ssl_enabled_protocols=("SSLv3",))
    with pytest.raises(InvalidConfig, match="also name TLS_AES_128"):
        context(ssl_cipher_suites=("TLS_AES_256_GCM_SHA384",))
    with pytest.raises(InvalidConfig, match=r"ssl\.cipher\.suites"):
        context(ssl_cipher_suites=("TLS_ECDHE_RSA_WITH_NOTHING_SHA",))


@pytest.mark.parametrize(
    ("suite", "name"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "ECDHE-ECDSA-AES128-SHA256"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_256_CBC_SHA", "DHE-RSA-AES256-SHA"),
    ],
)
def test_names_of_cipher_suites(suite: str, name: str) -> None:
    assert _openssl_name(suite) == name
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(name + ":@SECLEVEL=0")
