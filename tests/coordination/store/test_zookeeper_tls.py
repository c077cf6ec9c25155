"""TLS to ZooKeeper: whom the client trusts, and how it identifies itself. The server is a socket here."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from barnabas.coordination.store.zookeeper_client import LoopHandler, TlsFiles
from tests.security.test_tls_trust import INTERMEDIATE, LEAF, OTHER_LEAF, ROOT, Issued

WAIT_S = 60.0
OTHER_ROOT = Issued("other root")


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[Callable[[], int]]:
    """A server with the certificate of LEAF, which wants a certificate of ROOT. The call starts one exchange."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(written(tmp_path, "server", LEAF.key_pem + LEAF.pem + INTERMEDIATE.pem))
    context.load_verify_locations(cadata=ROOT.pem)
    context.verify_mode = ssl.CERT_REQUIRED
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        try:
            accepted, _ = listener.accept()
            accepted.settimeout(WAIT_S)
            with context.wrap_socket(accepted, server_side=True) as secured:
                secured.sendall(b"hello")
        except OSError:
            # The client has refused the server, or the test is over.
            return

    thread = threading.Thread(target=serve)

    def start() -> int:
        thread.start()
        return int(listener.getsockname()[1])

    yield start
    # It also ends `accept`.
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(WAIT_S)
    assert not thread.is_alive()


def written(folder: Path, name: str, text: str) -> str:
    path = folder / f"{name}.pem"
    path.write_text(text)
    return str(path)


@contextmanager
def connected(port: int, tls: TlsFiles | None, host: str = "localhost") -> Iterator[socket.socket]:
    loop = asyncio.new_event_loop()
    with closing(loop):
        handler = LoopHandler(loop, tls)
        # As kazoo calls it.
        connection = handler.create_connection(
            address=("127.0.0.1", port),
            hostname=host,
            timeout=WAIT_S,
            use_ssl=tls is not None,
            ca=None,
            verify_certs=True,
            check_hostname=False,
        )
        with connection:
            yield connection


@pytest.mark.parametrize("trusted", [ROOT, INTERMEDIATE, LEAF], ids=["root", "intermediate", "leaf"])
def test_every_certificate_of_the_trust_store_is_an_anchor(
    tmp_path: Path, listening: Callable[[], int], trusted: Issued
) -> None:
    tls = TlsFiles(
        ca=written(tmp_path, "trusted", trusted.pem),
        certificate=written(tmp_path, "own", OTHER_LEAF.key_pem + OTHER_LEAF.pem),
    )
    with connected(listening(), tls) as connection:
        assert connection.recv(5) == b"hello"
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_authorities_of_the_system_are_not_trusted_beside_a_trust_store(
    tmp_path: Path, listening: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", written(tmp_path, "system", ROOT.pem))
    tls = TlsFiles(ca=written(tmp_path, "trusted", OTHER_ROOT.pem))
    with pytest.raises(ssl.SSLCertVerificationError), connected(listening(), tls):
        pass


@pytest.mark.parametrize("checks", [True, False])
def test_the_name_of_the_server_is_checked_if_the_setting_says_so(
    tmp_path: Path, listening: Callable[[], int], checks: bool
) -> None:
    tls = TlsFiles(
        ca=written(tmp_path, "trusted", ROOT.pem),
        certificate=written(tmp_path, "own", OTHER_LEAF.key_pem + OTHER_LEAF.pem),
        check_hostname=checks,
    )
    if checks:
        with pytest.raises(ssl.SSLCertVerificationError), connected(listening(), tls, "elsewhere"):
            pass
    else:
        with connected(listening(), tls, "elsewhere") as connection:
            assert connection.recv(5) == b"hello"


def test_a_file_that_cannot_be_read_is_an_error_of_the_connection(tmp_path: Path) -> None:
    """So that the session tries again: a file may be there later."""
    tls = TlsFiles(ca=str(tmp_path / "none.pem"))
    with (
        pytest.raises(
            OSError, match=r"zookeeper\.ssl\.truststore\.location=.*none\.pem cannot be read"
        ) as raised,
        connected(1, tls),
    ):
        pass
    # kazoo puts it into its line.
    assert "none.pem" in str(raised.value.strerror)
