"""The client of the schema registry: calls, log-in, TLS, failures."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from barnabas.client.schemas.failures import SchemaNotFound, SchemaRegistryError, SchemaRegistryUnavailable
from barnabas.client.schemas.registry import JSON, Schema, SchemaRegistry
from barnabas.errors import InvalidConfig
from barnabas.testing import free_port
from tests.client.schemas.registry_server import RegistryServer
from tests.security.certificates import certificates

TEXT = Schema('{"type":"string"}')
NUMBER = Schema('{"type":"int"}')


def test_subjects_and_versions() -> None:
    with RegistryServer() as server:
        registry = SchemaRegistry(server.url)
        assert registry.register("a/b c", TEXT) == 1
        assert registry.register("a/b c", NUMBER) == 2
        assert registry.register("other", TEXT) == 1
        assert registry.subjects() == ["a/b c", "other"]
        assert registry.versions("a/b c") == [1, 2]
        assert registry.version("a/b c").schema == NUMBER
        assert registry.version("a/b c", 1).schema_id == 1
        assert registry.lookup("a/b c", NUMBER).version == 2
        assert registry.schema(2) == NUMBER
        assert registry.delete_version("a/b c", 1) == 1
        assert registry.delete_subject("other") == [1]
        with pytest.raises(SchemaNotFound) as caught:
            registry.version("a/b c", 1)
        assert (caught.value.status, caught.value.error_code) == (404, 40402)


def test_compatibility() -> None:
    with RegistryServer() as server:
        registry = SchemaRegistry(server.url)
        registry.register("s", Schema('{"type": "string"}', JSON))
        assert registry.compatibility("s") == registry.compatibility() == "BACKWARD"
        registry.set_compatibility("FULL", "s")
        assert (registry.compatibility("s"), registry.compatibility()) == ("FULL", "BACKWARD")
        assert registry.is_compatible("s", NUMBER)
        server.incompatible.add("s")
        assert not registry.is_compatible("s", NUMBER)
        with pytest.raises(SchemaRegistryError, match="HTTP 409: Schema being registered is incompatible"):
            registry.register("s", NUMBER)


@pytest.mark.parametrize("in_address", [False, True])
def test_log_in(in_address: bool) -> None:
    with RegistryServer(user="ann", password="p@ss") as server:
        with pytest.raises(SchemaRegistryError, match=r"HTTP 401.*check user and password"):
            SchemaRegistry(server.url).subjects()
        if in_address:
            registry = SchemaRegistry(server.url.replace("://", "://ann:p%40ss@"))
        else:
            registry = SchemaRegistry(server.url, user="ann", password="p@ss")
        assert registry.subjects() == []
        assert "p@ss" not in repr(registry)
        assert "p%40ss" not in repr(registry)


def test_tls(tmp_path: Path) -> None:
    for name, text in certificates().items():
        (tmp_path / f"{name}.pem").write_text(text)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    with RegistryServer(tls=context) as server:
        assert SchemaRegistry(server.url, ca_file=str(tmp_path / "ca.pem")).subjects() == []
        with pytest.raises(SchemaRegistryUnavailable, match="certificate verify failed"):
            SchemaRegistry(server.url, timeout_ms=300).subjects()


def test_a_failing_server_is_asked_again() -> None:
    with RegistryServer() as server:
        server.failures = 2
        assert SchemaRegistry(server.url).register("s", TEXT) == 1
        assert len(server.requests) == 3
        server.failures = 1_000_000
        with pytest.raises(SchemaRegistryUnavailable, match="HTTP 503: Leader not known") as caught:
            SchemaRegistry(server.url, timeout_ms=150).subjects()
        assert caught.value.retriable


def test_the_next_address_is_asked() -> None:
    with RegistryServer() as server:
        nobody = f"http://127.0.0.1:{free_port()}"
        assert SchemaRegistry(f"{nobody}, {server.url}").subjects() == []
        with pytest.raises(SchemaRegistryUnavailable, match=f"{nobody} cannot be reached"):
            SchemaRegistry(nobody, timeout_ms=150).subjects()


@pytest.mark.parametrize(
    ("url", "keywords", "words"),
    [
        ("localhost:8081", {}, "such as http://localhost:8081"),
        ("", {}, "has an address"),
        ("http://r", {"ca_file": "ca.pem"}, "need an https address"),
        ("https://r", {"ca_file": "missing.pem"}, r"cannot be read \(missing.pem\)"),
        ("http://r", {"user": "a", "token": "t"}, "not both"),
    ],
)
def test_wrong_settings_are_named(url: str, keywords: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        SchemaRegistry(url, **keywords)  # type: ignore[arg-type]
