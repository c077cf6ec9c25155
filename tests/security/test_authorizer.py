from __future__ import annotations

import time

import pytest

from barnabas.security import acls
from barnabas.security.acls import AclEntry, AclFilter, ResourcePattern
from barnabas.security.authorizer import DECISIONS_MAX, Authorizer, parse_super_users
from barnabas.security.principal import Principal

ANN = Principal("User", "ann")
HOST = "10.0.0.1"
ORDERS = ResourcePattern(acls.TOPIC, "orders", acls.LITERAL)


def entry(
    operation: int, permission: int = acls.ALLOW, *, principal: str = "User:ann", host: str = "*"
) -> AclEntry:
    return AclEntry(principal, host, operation, permission)


def may(authorizer: Authorizer, operation: int, name: str = "orders", host: str = HOST) -> bool:
    return authorizer.allows(ANN, host, operation, acls.TOPIC, name)


def test_nothing_is_allowed_without_acls_unless_the_setting_says_so() -> None:
    assert not may(Authorizer(), acls.READ)
    is_open = Authorizer(is_open_without_acl=True)
    assert may(is_open, acls.READ)
    is_open.replace(ORDERS, [entry(acls.READ, principal="User:bob")])
    assert not may(is_open, acls.READ)
    assert may(is_open, acls.READ, "invoices")


def test_a_denial_wins_and_implies_nothing() -> None:
    authorizer = Authorizer()
    authorizer.replace(ORDERS, [entry(acls.ALL), entry(acls.READ, acls.DENY)])
    assert not may(authorizer, acls.READ)
    assert may(authorizer, acls.DESCRIBE)
    assert may(authorizer, acls.WRITE)


@pytest.mark.parametrize("operation", [acls.READ, acls.WRITE, acls.DELETE, acls.ALTER])
def test_operations_that_imply_describe(operation: int) -> None:
    authorizer = Authorizer()
    authorizer.replace(ORDERS, [entry(operation)])
    assert may(authorizer, acls.DESCRIBE)
    assert not may(authorizer, acls.DESCRIBE_CONFIGS)


def test_altering_configs_implies_describing_them() -> None:
    authorizer = Authorizer()
    authorizer.replace(ORDERS, [entry(acls.ALTER_CONFIGS)])
    assert may(authorizer, acls.DESCRIBE_CONFIGS)
    assert not may(authorizer, acls.DESCRIBE)


def test_a_decision_is_forgotten_when_acls_change() -> None:
    authorizer = Authorizer()
    assert not may(authorizer, acls.WRITE)
    prefix = ResourcePattern(acls.TOPIC, "ord", acls.PREFIXED)
    assert authorizer.replace(prefix, [entry(acls.WRITE)])
    assert may(authorizer, acls.WRITE)
    assert not authorizer.replace(prefix, [entry(acls.WRITE)])
    assert authorizer.replace(prefix, [])
    assert not may(authorizer, acls.WRITE)
    assert authorizer.acl_count == 0


def test_hosts_and_wildcards() -> None:
    authorizer = Authorizer()
    everything = ResourcePattern(acls.TOPIC, "*", acls.LITERAL)
    authorizer.replace(everything, [entry(acls.READ, principal="User:*", host=HOST)])
    assert may(authorizer, acls.READ)
    assert not may(authorizer, acls.READ, host="10.0.0.2")


def test_super_users_need_no_acl_and_heed_no_denial() -> None:
    authorizer = Authorizer(parse_super_users(" User:ann ; User:bob;"))
    authorizer.replace(ORDERS, [entry(acls.ALL, acls.DENY, principal="User:*")])
    assert may(authorizer, acls.READ)
    assert authorizer.allows_some(ANN, HOST, acls.WRITE, acls.TOPIC)
    with pytest.raises(ValueError, match="principalType:principalName"):
        parse_super_users("ann")


def test_the_rule_behind_a_decision_in_kafkas_words() -> None:
    authorizer = Authorizer({"User:root"})
    authorizer.replace(ORDERS, [entry(acls.READ, acls.DENY)])
    assert authorizer.rule((ANN, HOST, acls.READ, acls.TOPIC, "orders")) == (
        "MatchingAcl(acl=StandardAcl(resourceType=TOPIC, resourceName=orders, patternType=LITERAL,"
        " principal=User:ann, host=*, operation=READ, permissionType=DENY))"
    )
    assert authorizer.rule((ANN, HOST, acls.WRITE, acls.TOPIC, "orders")) == "DefaultDeny"
    assert authorizer.rule((Principal("User", "root"), HOST, acls.READ, acls.TOPIC, "x")) == "SuperUser"


def test_a_match_filter_selects_the_patterns_that_apply_to_a_name() -> None:
    authorizer = Authorizer()
    patterns = [
        ORDERS,
        ResourcePattern(acls.TOPIC, "ord", acls.PREFIXED),
        ResourcePattern(acls.TOPIC, "*", acls.LITERAL),
        ResourcePattern(acls.TOPIC, "orders-eu", acls.PREFIXED),
        ResourcePattern(acls.GROUP, "orders", acls.LITERAL),
    ]
    for pattern in patterns:
        authorizer.replace(pattern, [entry(acls.READ)])
    found = authorizer.matching(AclFilter(acls.TOPIC, "orders", acls.MATCH))
    assert {binding.pattern for binding in found} == set(patterns[:3])


def test_what_is_remembered_has_a_bound() -> None:
    authorizer = Authorizer()
    for number in range(3 * DECISIONS_MAX):
        may(authorizer, acls.READ, f"topic-{number}")
    assert len(authorizer._decisions) + len(authorizer._older_decisions) <= 2 * DECISIONS_MAX


@pytest.mark.slow
def test_a_check_against_ten_thousand_acls_takes_about_a_microsecond() -> None:
    authorizer = Authorizer()
    for number in range(5_000):
        literal = ResourcePattern(acls.TOPIC, f"topic-{number}", acls.LITERAL)
        prefix = ResourcePattern(acls.TOPIC, f"prefix-{number}-", acls.PREFIXED)
        for pattern in (literal, prefix):
            authorizer.replace(pattern, [entry(acls.READ, principal=f"User:user-{number % 50}")])
    assert authorizer.acl_count == 10_000
    names = [f"topic-{number}" for number in range(5_000)]

    def pass_ns() -> float:
        started_ns = time.process_time_ns()
        for name in names:
            authorizer.allows(ANN, HOST, acls.READ, acls.TOPIC, name)
        return (time.process_time_ns() - started_ns) / len(names)

    # The bound is for compiled code on a machine that does other things as well.
    assert min(pass_ns() for _ in range(5)) < 1_000
