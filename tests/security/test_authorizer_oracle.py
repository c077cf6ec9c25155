"""Random ACLs and random questions, decided by us and by Kafka's StandardAuthorizer from its jar.

Names, hosts and principals come from few choices, so that patterns often match, and often nearly match.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from barnabas.security import acls
from barnabas.security.acls import AclEntry, AclFilter, ResourcePattern
from barnabas.security.authorizer import Authorizer, parse_super_users
from barnabas.security.principal import Principal
from tests.peers.kafka_peer import V4, PeerUnavailable, run_tool

ORACLE: Final = Path(__file__).parents[1] / "peers" / "AuthorizerOracle.java"
IS_SOAK: Final = os.environ.get("BARNABAS_SOAK") == "1"
WORLDS: Final = 2_000 if IS_SOAK else 40
QUESTIONS: Final = 500

CLIENTS: Final = [("User", "ann"), ("User", "bob"), ("User", "an"), ("Group", "ann"), ("User", "a:b")]
# A client with the name `*` makes the oracle fail.
PRINCIPALS: Final = [*CLIENTS, ("User", "*")]
HOSTS: Final = ["10.0.0.1", "10.0.0.2", "127.0.0.1"]
TYPES: Final = list(acls.RESOURCE_TYPES)
OPERATIONS: Final = list(acls.OPERATIONS)


class World:
    """One set of ACLs, with the lines for the oracle and our answers to the same questions."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.lines: list[str] = []
        self.answers: list[str] = []
        self._is_open = rng.random() < 0.4
        self._super_users = rng.choice(["", "User:bob", " User:a:b ;User:zoe"])
        self._types = rng.sample(TYPES, k=2)
        self._bindings = self._make_bindings()

    def play(self) -> None:
        authorizer = Authorizer(parse_super_users(self._super_users), is_open_without_acl=self._is_open)
        for pattern, entries in self._bindings.items():
            authorizer.replace(pattern, entries)
        self._line("new", self._super_users, str(self._is_open).lower())
        for pattern, entries in self._bindings.items():
            for entry in entries:
                self._line("acl", *pattern, *entry)
        for _ in range(QUESTIONS):
            self._ask(authorizer)

    def _line(self, *parts: object) -> None:
        self.lines.append("\t".join(map(str, parts)))

    def _make_bindings(self) -> dict[ResourcePattern, set[AclEntry]]:
        rng = self._rng
        bindings: dict[ResourcePattern, set[AclEntry]] = {}
        for _ in range(rng.choice([0, 1, 3, 10, 40, 120])):
            name = "*" if rng.random() < 0.2 else self._name(least=1)
            pattern_type = rng.choice([acls.LITERAL, acls.PREFIXED])
            entry = AclEntry(
                ":".join(rng.choice(PRINCIPALS)),
                rng.choice([*HOSTS, "*", "*", "*"]),
                rng.choice(OPERATIONS),
                rng.choice([acls.ALLOW, acls.ALLOW, acls.DENY]),
            )
            pattern = ResourcePattern(rng.choice(self._types), name, pattern_type)
            bindings.setdefault(pattern, set()).add(entry)
        return bindings

    def _name(self, least: int = 0) -> str:
        # `!` is before `*`, and `é` behind everything: the oracle walks names in their order. It may fail for a name
        # that begins with a character before `*`.
        count = self._rng.randint(least, 4)
        return (
            "".join(self._rng.choices("ab*!é", weights=[5, 5, 1, 1, 1], k=count)).lstrip("!") or "a" * least
        )

    def _ask(self, authorizer: Authorizer) -> None:
        rng = self._rng
        principal = Principal(*rng.choice(CLIENTS))
        host, resource_type = rng.choice(HOSTS), rng.choice(self._types)
        operation = rng.choice(OPERATIONS[1:])
        kind = rng.random()
        if kind < 0.8:
            name = rng.choice([self._name(), "*"])
            self._line("ask", principal.type, principal.name, host, operation, resource_type, name)
            allowed = authorizer.allows(principal, host, operation, resource_type, name)
            self.answers.append("1" if allowed else "0")
        elif kind < 0.9:
            self._line("some", principal.type, principal.name, host, operation, resource_type)
            allowed = authorizer.allows_some(principal, host, operation, resource_type)
            self.answers.append("1" if allowed else "0")
        else:
            acl_filter = AclFilter(
                rng.choice([acls.ANY, *self._types]),
                rng.choice([None, "*", self._name()]),
                rng.choice([acls.ANY, acls.MATCH, acls.LITERAL, acls.PREFIXED]),
                rng.choice([None, None, ":".join(rng.choice(PRINCIPALS))]),
                rng.choice([None, None, "*", *HOSTS]),
                rng.choice([acls.ANY, acls.ANY, acls.READ, acls.ALL]),
                rng.choice([acls.ANY, acls.ALLOW, acls.DENY]),
            )
            self._line("filter", *("~" if each is None else each for each in acl_filter))
            self.answers.append(str(len(list(authorizer.matching(acl_filter)))))


def worlds(seed: int) -> Iterator[World]:
    rng = random.Random(seed)
    for _ in range(WORLDS):
        world = World(rng)
        world.play()
        yield world


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("java") is None, reason="needs Java 17")
def test_decisions_are_those_of_kafka() -> None:
    played = list(worlds(seed=18))
    lines = [line for world in played for line in world.lines]
    ours = [answer for world in played for answer in world.answers]
    try:
        said = run_tool(V4, str(ORACLE), stdin="\n".join(lines) + "\n").split()
    except PeerUnavailable as why:
        pytest.skip(str(why))

    assert len(said) == len(ours)
    asked = [line for line in lines if not line.startswith(("new", "acl"))]
    differing = [
        (question, our, theirs)
        for question, our, theirs in zip(asked, ours, said, strict=True)
        if our != theirs
    ]
    assert not differing, f"{len(differing)} of {len(ours)}: {differing[:5]}"
    # Neither answer is the usual one.
    assert 0.2 < ours.count("1") / len(ours) < 0.8
