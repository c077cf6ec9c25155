"""Users that a broker creates when it starts: where their passwords come from."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from barnabas.errors import InvalidConfig
from barnabas.security.new_users import NewUser, new_user, new_user_text, new_users

LINES = "# the first users\n\nSCRAM-SHA-256=[name=ann,password=a b,salt=c2FsdA==]\nSCRAM-SHA-512=[name=bob]\n"


def ask(user: str) -> str:
    return f"of {user}"


def names(users: list[NewUser]) -> list[tuple[str, str]]:
    return [(each.name, each.mechanism) for each in users]


def test_passwords_from_a_file_and_a_person(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(LINES)
    ann, bob, eve = new_users([f"@{path}", "SCRAM-SHA-256=[name=eve]"], ask)
    assert ann == new_user("ann", "a b", "SCRAM-SHA-256", salt=b"salt")
    assert bob == new_user("bob", "of bob", "SCRAM-SHA-512", salt=bob.salt)
    assert eve == new_user("eve", "of eve", "SCRAM-SHA-256", salt=eve.salt)
    assert new_users([new_user_text(ann)], ask) == [ann]


def test_passwords_from_the_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(LINES))
    assert names(new_users(["@-"], ask)) == [("ann", "SCRAM-SHA-256"), ("bob", "SCRAM-SHA-512")]


@pytest.mark.parametrize("content", [None, "SCRAM-SHA-256=[name=ann,pasword=hush]", "x" * (1 << 20) + "x"])
def test_what_is_refused_is_told_without_the_password(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "users"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidConfig, match="--add-scram") as caught:
        new_users([f"@{path}"], ask)
    assert "hush" not in str(caught.value)
