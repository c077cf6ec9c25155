"""Logins: users of the cluster whose ACLs hold, sessions with a bound, and names from a proxy."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from http.cookies import SimpleCookie

import pytest

from barnabas.client.admin.results import Acl, AclOperation, AclResourceType
from barnabas.console.api import access
from barnabas.console.api.access import Failures
from barnabas.console.server import Login
from barnabas.errors import ThrottlingQuotaExceeded
from barnabas.testing import Broker
from tests.console.chromium import change_acls, opened_page, running_chromium
from tests.console.running import CHANGES, Answer, RunningConsole

USERS = {"admin": "admin-secret", "ann": "ann-secret"}


@pytest.fixture(scope="module")
def guarded() -> Iterator[Broker]:
    """A broker on which ann may read one of two topics."""
    with Broker(
        security="sasl_plaintext",
        users=USERS,
        topics={"open": 1, "closed": 1},
        authorizer_class_name="kafka.security.authorizer.AclAuthorizer",
        super_users="User:admin",
    ) as broker:
        with broker.admin() as admin:
            admin.create_acls(
                [
                    Acl("User:ann", operation, AclResourceType.TOPIC, "open")
                    for operation in (AclOperation.READ, AclOperation.DESCRIBE)
                ]
            )
        with broker.producer() as producer:
            for topic in ("open", "closed"):
                producer.send(topic, b"hello")
        yield broker


@pytest.fixture(scope="module")
def console(guarded: Broker) -> Iterator[RunningConsole]:
    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"}
    with RunningConsole(guarded.bootstrap, settings=settings, login=Login(kind="cluster")) as running:
        yield running


def log_in(console: RunningConsole, user: str, password: str, **headers: str) -> Answer:
    body = {"user": user, "password": password}
    return console.ask("POST", "/api/login", body, {**CHANGES, **headers})


def cookie_of(answer: Answer) -> dict[str, str]:
    (morsel,) = SimpleCookie(answer.headers["set-cookie"]).values()
    return {"cookie": f"{morsel.key}={morsel.value}"}


def basic(user: str, password: str) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def test_nothing_without_a_login(console: RunningConsole) -> None:
    assert console.get("/api/session") == {
        "version": console.get("/api/session")["version"],
        "login": "cluster",
        "user": None,
    }
    for method, path in (
        ("GET", "/api/overview"),
        ("GET", "/api/topics/open/search?q=a"),
        ("GET", "/api/topics/open/download"),
        ("POST", "/api/topics"),
    ):
        answer = console.ask(method, path)
        assert answer.status == 401, answer
        assert answer.json()["error"] == "NOT_LOGGED_IN"
    assert (
        console.ask("GET", "/api/overview", headers={"cookie": "barnabas-console-1=invented"}).status == 401
    )


def test_a_user_sees_what_acls_allow(console: RunningConsole) -> None:
    answer = log_in(console, "ann", "ann-secret")
    assert answer.status == 200
    assert answer.json()["user"] == "ann"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "secure" not in cookie
    headers = cookie_of(answer)
    listed = console.ask("GET", "/api/topics", headers=headers).json()
    assert [each["name"] for each in listed["topics"]] == ["open"]
    found = console.ask("GET", "/api/topics/open/search?q=hello", headers=headers)
    assert b"event: hit" in found.body
    for path in ("records", "search?q=hello", "download", "tail"):
        refused = console.ask("GET", f"/api/topics/closed/{path}", headers=headers)
        assert refused.status in (403, 404), (path, refused)
    refused = console.ask("POST", "/api/topics", {"name": "new"}, {**CHANGES, **headers})
    assert refused.status == 403, refused
    # A stolen cookie is of no use without the header that other sites cannot send.
    assert console.ask("POST", "/api/topics", {"name": "new"}, headers).status == 403

    assert console.ask("POST", "/api/logout", headers={**CHANGES, **headers}).status == 200
    assert console.ask("GET", "/api/topics", headers=headers).status == 401


def test_a_wrong_password_and_tls(console: RunningConsole) -> None:
    refused = log_in(console, "ann", "wrong")
    assert refused.status == 401
    assert "set-cookie" not in refused.headers
    assert b"wrong" not in refused.body
    assert log_in(console, "nobody", "ann-secret").status == 401
    behind_tls = log_in(console, "admin", "admin-secret", **{"x-forwarded-proto": "https"})
    assert "secure" in behind_tls.headers["set-cookie"].lower()
    listed = console.ask("GET", "/api/topics", headers=cookie_of(behind_tls)).json()
    assert [each["name"] for each in listed["topics"]] == ["closed", "open"]
    assert "admin-secret" not in json.dumps(listed)


def test_scripts_send_name_and_password(console: RunningConsole) -> None:
    found = console.ask("GET", "/api/topics/open", headers=basic("ann", "ann-secret"))
    assert found.status == 200, found
    assert console.ask("GET", "/api/session", headers=basic("ann", "ann-secret")).json()["user"] == "ann"
    assert console.ask("GET", "/api/topics/open", headers=basic("ann", "no")).status == 401
    assert console.ask("GET", "/api/topics/open", headers={"authorization": "Basic %%%"}).status == 401


def test_sessions_are_few_and_end(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch, guarded: Broker
) -> None:
    monkeypatch.setattr(access, "SESSIONS_MAX", 2)
    cookies = [cookie_of(log_in(console, "ann", "ann-secret")) for _ in range(3)]
    statuses = [console.ask("GET", "/api/topics/open", headers=each).status for each in cookies]
    assert statuses == [401, 200, 200]
    monkeypatch.setattr(access, "SESSION_IDLE_S_MAX", -1.0)
    assert console.ask("GET", "/api/topics/open", headers=cookies[2]).status == 401


def test_a_stream_ends_with_its_session(console: RunningConsole) -> None:
    headers = cookie_of(log_in(console, "ann", "ann-secret"))
    connection = console.connect()
    connection.request("GET", "/api/topics/open/tail", headers=headers)
    answer = connection.getresponse()
    assert answer.readline() == b"event: ready\n"
    assert console.ask("POST", "/api/logout", headers={**CHANGES, **headers}).status == 200
    answer.read()
    connection.close()


def test_wrong_passwords_have_a_limit() -> None:
    now_s = [0.0]
    failures = Failures(lambda: now_s[0])
    for _ in range(access.FAILURES_MAX):
        failures.check("proxy", "ann")
        failures.add("proxy", "ann")
    with pytest.raises(ThrottlingQuotaExceeded):
        failures.check("proxy", "ann")
    # Other users behind the same proxy, and the same user elsewhere, are not affected.
    failures.check("proxy", "bob")
    failures.check("other", "ann")
    now_s[0] = access.FAILURE_WINDOW_S
    failures.check("proxy", "ann")
    for number in range(access.ADDRESS_FAILURES_MAX):
        failures.check("proxy", "bob")
        failures.add("proxy", f"guessed-{number}")
    with pytest.raises(ThrottlingQuotaExceeded):
        failures.check("proxy", "bob")
    for number in range(2 * access.REMEMBERED_MAX):
        failures.add(str(number), "ann")
    assert len(failures._times) == access.REMEMBERED_MAX


def test_a_name_cannot_write_lines_into_the_log(
    console: RunningConsole, caplog: pytest.LogCaptureFixture
) -> None:
    assert log_in(console, "ann\nINFO 'admin' has logged in", "wrong").status == 401
    assert "refused" in caplog.text
    assert all("\n" not in each.getMessage() for each in caplog.records)


def test_a_proxy_names_the_user(broker: Broker) -> None:
    login = Login(kind="proxy", user_header="x-user")
    with RunningConsole(broker.bootstrap, login=login) as console:
        assert console.ask("GET", "/api/session").status == 401
        assert console.ask("GET", "/api/topics").status == 401
        assert console.ask("GET", "/api/topics", headers={"x-user": ""}).status == 401
        assert console.ask("GET", "/api/session", headers={"x-user": "ann"}).json()["user"] == "ann"
        assert console.ask("GET", "/api/topics", headers={"x-user": "ann"}).status == 200
        assert console.ask("POST", "/api/login", {"user": "a", "password": "b"}).status == 400
    login = Login(kind="proxy", user_header="x-user", trusted_proxies=("10.1.2.3",))
    with RunningConsole(broker.bootstrap, login=login) as console:
        refused = console.ask("GET", "/api/topics", headers={"x-user": "ann"})
        assert refused.status == 401
        assert "--trusted-proxy" in refused.json()["message"]


@pytest.mark.slow
def test_the_login_in_chromium(console: RunningConsole) -> None:
    with running_chromium() as browser, opened_page(browser) as (page, faults):
        page.goto(f"{console.address}/#/topics")
        page.get_by_label("User").fill("ann")
        page.get_by_label("Password").fill("wrong")
        page.keyboard.press("Enter")
        page.get_by_text("the cluster refused this name and password").wait_for()
        page.get_by_label("Password").fill("ann-secret")
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("link", name="open", exact=True).wait_for()
        assert page.get_by_role("link", name="closed", exact=True).count() == 0
        # Scripts of a page cannot read the cookie.
        assert page.evaluate("document.cookie") == ""
        page.get_by_role("link", name="Messages of open").click()
        page.get_by_text("1 records.").wait_for()
        page.get_by_role("button", name="Log out").click()
        page.get_by_role("heading", level=1, name="Log in").wait_for()

        page.get_by_label("User").fill("admin")
        page.get_by_label("Password").fill("admin-secret")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Log out").wait_for()
        page.get_by_role("link", name="Access").click()
        change_acls(page)
        assert not faults
