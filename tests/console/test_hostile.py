"""Other web sites, other hosts, hostile contents and slow readers: nothing runs, nothing leaks, nothing grows."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from barnabas.console.api import streams
from barnabas.console.api.call import BODY_BYTES_MAX
from barnabas.console.api.guard import SECURITY_HEADERS
from barnabas.testing import Broker
from tests.console.running import CHANGES, RunningConsole
from tests.waiting import wait_until

ASSETS = Path(streams.__file__).parents[1] / "pages" / "assets"
SCRIPT = "<script>window.hacked=1</script>"


def test_every_answer_has_the_headers_that_protect_pages(console: RunningConsole) -> None:
    for path in ("/", "/assets/main.js", "/api/session", "/api/none", "/none", "/api/topics/none"):
        answer = console.ask("GET", path)
        assert {name: answer.headers.get(name) for name in SECURITY_HEADERS} == SECURITY_HEADERS
    assert "unsafe" not in SECURITY_HEADERS["content-security-policy"]


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"host": "evil.example"},
        {"host": "127.0.0.1.evil.example"},
        {"host": "[::1"},
        {"host": ""},
    ],
)
def test_other_sites_and_hosts_are_refused(console: RunningConsole, headers: dict[str, str]) -> None:
    for method, path in (
        ("GET", "/api/overview"),
        ("GET", "/api/topics/x/search?q=a"),
        ("POST", "/api/topics"),
    ):
        answer = console.ask(
            method, path, {"name": "evil"} if method == "POST" else None, {**CHANGES, **headers}
        )
        assert answer.status in (400, 403), answer
    assert console.get("/api/topics?search=evil")["total"] == 0


def test_a_change_needs_the_header(console: RunningConsole) -> None:
    """A form of another site can send a body, but not this header."""
    for method in ("POST", "DELETE", "PATCH", "PUT", "OPTIONS"):
        answer = console.ask(method, "/api/topics", {"name": "evil"}, {"content-type": "text/plain"})
        assert answer.status in (403, 405), answer
        assert "access-control-allow-origin" not in answer.headers
    assert console.get("/api/topics?search=evil")["total"] == 0


def test_a_read_only_console_changes_nothing(broker: Broker) -> None:
    with RunningConsole(broker.bootstrap, is_read_only=True) as console:
        assert console.get("/api/session")["read_only"]
        for method, path in (
            ("POST", "/api/topics"),
            ("DELETE", "/api/topics/x"),
            ("POST", "/api/topics/x/records"),
            ("PATCH", "/api/configs/topic/x"),
            ("POST", "/api/groups/x/reset"),
        ):
            answer = console.ask(method, path, {"name": "evil", "confirm": "x"})
            assert answer.status == 403
            assert "read-only" in answer.json()["message"]


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../server.py",
        "/assets/..%2fserver.py",
        "/assets/%2e%2e/server.py",
        "/assets/....//server.py",
        "/assets//etc/passwd",
        "/assets/%00",
        "/assets/..\\server.py",
        "/../../../etc/passwd",
        "/api/topics/..%2f..%2fetc%2fpasswd",
        "/api/topics/..%2f..%2fetc%2fpasswd/records",
        "/api/topics/%2fetc%2fpasswd/search?q=root",
        "/api/configs/topic/../../x",
    ],
)
def test_paths_lead_nowhere_else(console: RunningConsole, path: str) -> None:
    answer = console.ask("GET", path)
    assert answer.status in (400, 404), answer
    assert b"root:" not in answer.body
    assert b"import" not in answer.body


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"null", b"{", b"\xff", b"[" * 100_000, b'{"name": 7}', b'{"name": "a", "partitions": 1e3}'],
)
def test_bodies_that_are_no_request(console: RunningConsole, body: bytes) -> None:
    connection = console.connect()
    connection.request("POST", "/api/topics", body, CHANGES)
    answer = connection.getresponse()
    assert answer.status == 400
    assert set(json.loads(answer.read())) == {"error", "message"}
    connection.close()


def test_a_body_has_a_limit(console: RunningConsole) -> None:
    connection = console.connect()

    def pieces() -> Iterator[bytes]:
        for _ in range(2 * BODY_BYTES_MAX // 65_536):
            yield b" " * 65_536

    try:
        connection.request("POST", "/api/topics", pieces(), CHANGES, encode_chunked=True)
        answer = connection.getresponse()
        assert answer.status == 400
    except (ConnectionError, http.client.HTTPException):
        # The console may close the connection while the rest is still being sent.
        pass
    finally:
        connection.close()
    assert console.get("/api/session")


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=1e9", "limit=99999999", "partition=a", "partition=-1", "q=" + "a" * 3000, "cursor={"],
)
def test_parameters_have_bounds(console: RunningConsole, new_topic: Callable[..., str], query: str) -> None:
    assert console.ask("GET", f"/api/topics/{new_topic()}/records?{query}").status == 400


def test_contents_come_as_json_and_long_ones_are_cut(
    console: RunningConsole, broker: Broker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=1)
    with broker.producer(max_request_size=3 << 20) as producer:
        producer.send(topic, SCRIPT.encode(), key=SCRIPT.encode(), headers={SCRIPT: SCRIPT.encode()})
        producer.send(
            topic, b"x" * 900_000, key=b"long", headers=[(f"h{number}", b"v" * 5_000) for number in range(9)]
        )
    answer = console.ask("GET", f"/api/topics/{topic}/records?order=oldest")
    assert answer.headers["content-type"] == "application/json"
    first, second = answer.json()["records"]
    assert first["value"]["text"] == first["key"]["text"] == first["headers"][0]["name"] == SCRIPT
    assert second["value"]["size"] == 900_000
    assert second["value"]["truncated"]
    assert len(second["value"]["text"]) == 16 << 10
    assert second["headers"][0]["value"]["truncated"]
    whole = console.get(f"/api/topics/{topic}/records/0/1")
    assert len(whole["value"]["text"]) == 900_000
    events = list(console.events(f"/api/topics/{topic}/search?q=key%3Dlong"))
    assert [data["value"]["size"] for name, data in events if name == "hit"] == [900_000]


def test_searches_have_a_limit_and_end_with_their_reader(
    broker: Broker, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers that open streams and read nothing: the console keeps few of them, and forgets each that goes."""
    monkeypatch.setattr(streams, "STREAMS_MAX", 2)
    topic = new_topic()
    with RunningConsole(broker.bootstrap) as console:
        readers = [socket.create_connection(("127.0.0.1", console.port)) for _ in range(2)]
        request = f"GET /api/topics/{topic}/tail HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
        for reader in readers:
            reader.sendall(request)
            assert reader.recv(15) == b"HTTP/1.1 200 OK"
        refused = console.ask("GET", f"/api/topics/{topic}/tail")
        assert refused.status == 429
        for reader in readers:
            reader.close()
        wait_until(lambda: _opens(console, f"/api/topics/{topic}/tail"), "the streams are closed")


def test_the_limit_holds_for_requests_at_the_same_time(
    broker: Broker, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream counts from its request on, not from its first event on."""
    monkeypatch.setattr(streams, "STREAMS_MAX", 2)
    topic = new_topic()
    with RunningConsole(broker.bootstrap) as console:
        readers = [socket.create_connection(("127.0.0.1", console.port)) for _ in range(8)]
        request = f"GET /api/topics/{topic}/tail HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
        for reader in readers:
            reader.sendall(request)
        statuses = sorted(reader.recv(12)[-3:] for reader in readers)
        assert statuses == [b"200"] * 2 + [b"429"] * 6
        for reader in readers:
            reader.close()
        wait_until(lambda: _opens(console, f"/api/topics/{topic}/tail"), "the streams are closed")
        # A stream that fails before it begins does not count.
        for _ in range(3):
            assert console.ask("GET", "/api/topics/no-such-topic/tail").status == 404


def _opens(console: RunningConsole, path: str) -> bool:
    connection = console.connect()
    connection.request("GET", path)
    status = connection.getresponse().status
    connection.close()
    return status == 200


@pytest.mark.slow
def test_a_reader_that_takes_nothing_is_disconnected(
    broker: Broker, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search waits for its reader, and ends after a while; its events do not pile up."""
    monkeypatch.setattr(streams, "SEND_S_MAX", 0.5)
    monkeypatch.setattr(streams, "SEARCHES_MAX", 1)
    topic = new_topic(partitions=1)
    with broker.producer() as producer:
        producer.send_many(topic, [b"x" * 10_000] * 2_000).result(60)
    with RunningConsole(broker.bootstrap) as console:
        path = f"/api/topics/{topic}/search?q=x&limit=10000"
        with socket.socket() as reader:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.connect(("127.0.0.1", console.port))
            reader.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            assert reader.recv(15) == b"HTTP/1.1 200 OK"
            wait_until(lambda: _opens(console, path), "the search of the slow reader has ended")


def test_the_pages_contain_nothing_that_could_run_contents() -> None:
    """Texts become text nodes; there are no inline scripts, styles or foreign addresses."""
    for path in (*ASSETS.glob("*.js"), ASSETS.parent / "index.html"):
        text = path.read_text(encoding="utf-8")
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
        ):
            assert word not in text, path
        for word in (" style=", 'onclick="', "javascript:", "//cdn", "https://"):
            assert word not in text, path


def test_a_group_may_have_any_name(
    console: RunningConsole, broker: Broker, new_topic: Callable[..., str]
) -> None:
    group = f"../{SCRIPT}?#/{new_topic()}"
    with broker.admin() as admin:
        admin.alter_group_offsets(group, {(new_topic(), 0): 0})  # type: ignore[dict-item]
    found = console.get(f"/api/groups/{quote(group, safe='')}")
    assert found["group_id"] == group
