"""The decision whether a principal may do an operation on a resource, as Kafka's StandardAuthorizer makes it.

    super users               may do everything
    a DENY that matches       wins over every ALLOW
    an ALLOW that matches     also allows what its operation implies: READ, WRITE, DELETE and ALTER imply DESCRIBE,
                              and ALTER_CONFIGS implies DESCRIBE_CONFIGS; a DENY implies nothing
    no ACL for the resource   `allow.everyone.if.no.acl.found` decides
    only other ACLs for it    denied

ACLs are indexed by the pattern of the resource and by the principal: a decision looks at the name, the wildcard,
and one prefix of the name for each length that prefixes have. Decisions are remembered until the ACLs change. All
methods run on the event loop.

As in StandardAuthorizer, the wildcard `*` does not match other names that begin with `*`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from barnabas.security.acls import (
    ALL,
    ALLOW,
    ALTER,
    ALTER_CONFIGS,
    ANY,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    EVERYBODY,
    LITERAL,
    PREFIXED,
    READ,
    RESOURCE_TYPES,
    WILDCARD,
    WRITE,
    AclBinding,
    AclEntry,
    AclFilter,
    ResourcePattern,
)
from barnabas.security.principal import Principal, parse_principal

# So many decisions are remembered, twice: clients choose the names that they ask for.
DECISIONS_MAX: Final = 32_768
# Kafka asks for this name to find out whether a principal is a super user.
_ANY_NAME: Final = "hardcode"

_ALLOWED_BY: Final = {
    DESCRIBE: frozenset({ALL, DESCRIBE, READ, WRITE, DELETE, ALTER}),
    DESCRIBE_CONFIGS: frozenset({ALL, DESCRIBE_CONFIGS, ALTER_CONFIGS}),
}

Question = tuple[Principal, str, int, int, str]
_Entries = dict[str, tuple[AclEntry, ...]]
# Of a pattern: a tuple is made in less time than a ResourcePattern, and equals it.
_Key = tuple[int, str, int]
_NO_NAMES: Final[tuple[dict[str, _Entries], dict[str, _Entries]]] = ({}, {})


class Authorizer:
    """`is_open_without_acl` is the setting `allow.everyone.if.no.acl.found`."""

    def __init__(self, super_users: Iterable[str] = (), *, is_open_without_acl: bool = False) -> None:
        self._super_users: Final = frozenset(super_users)
        self._is_open_without_acl: Final = is_open_without_acl
        # The entries of each pattern by principal.
        self._patterns: dict[_Key, _Entries] = {}
        # The same by type, for literal patterns and for prefixes: a name is found in less time than a key.
        self._names: dict[int, tuple[dict[str, _Entries], dict[str, _Entries]]] = {}
        self._patterns_of: dict[tuple[int, str], set[ResourcePattern]] = {}
        # By type of resource: how many patterns have a prefix of a length; and the lengths.
        self._length_counts: dict[int, dict[int, int]] = {}
        self._lengths: dict[int, list[int]] = {}
        self.acl_count = 0
        # Decisions, and those from before the last time that there were too many of them.
        self._decisions: dict[Question, bool] = {}
        self._older_decisions: dict[Question, bool] = {}
        self._decisions_by_type: dict[tuple[Principal, str, int, int], bool] = {}

    def allows(self, principal: Principal, host: str, operation: int, resource_type: int, name: str) -> bool:
        """Whether the principal may do the operation on the resource of that literal name, from that address."""
        question = (principal, host, operation, resource_type, name)
        found = self._decisions.get(question)
        if found is not None:
            return found
        found = self._older_decisions.get(question)
        if found is None:
            found = self.decide(question)
        if len(self._decisions) >= DECISIONS_MAX:
            self._older_decisions = self._decisions
            self._decisions = {}
        self._decisions[question] = found
        return found

    def allows_some(self, principal: Principal, host: str, operation: int, resource_type: int) -> bool:
        """Whether there may be a resource of the type on which the principal may do the operation."""
        question = (principal, host, operation, resource_type)
        found = self._decisions_by_type.get(question)
        if found is None:
            found = self.allows(*question, _ANY_NAME) or self._allows_some(question)
            if len(self._decisions_by_type) >= DECISIONS_MAX:
                self._decisions_by_type.clear()
            self._decisions_by_type[question] = found
        return found

    def rule(self, question: Question) -> str:
        """Why the decision is as it is, in Kafka's words."""
        if str(question[0]) in self._super_users:
            return "SuperUser"
        key, entry, has_acl = self._find(question)
        if entry is not None:
            return f"MatchingAcl(acl={AclBinding(ResourcePattern(*key), entry)})"
        return "DefaultAllow" if self._is_open_without_acl and not has_acl else "DefaultDeny"

    def replace(self, pattern: ResourcePattern, entries: Collection[AclEntry]) -> bool:
        """Gives a pattern these entries in place of those it has. Returns whether anything has changed."""
        new: dict[str, list[AclEntry]] = {}
        for entry in set(entries):
            new.setdefault(entry.principal, []).append(entry)
        by_principal = {principal: tuple(sorted(each)) for principal, each in new.items()}
        before = self._patterns.get(pattern, {})
        if before == by_principal:
            return False
        self._count(pattern, before, -1)
        self._count(pattern, by_principal, 1)
        literals, prefixes = self._names.setdefault(pattern.resource_type, ({}, {}))
        names = prefixes if pattern.pattern_type == PREFIXED else literals
        if by_principal:
            self._patterns[pattern] = names[pattern.name] = by_principal
        else:
            del self._patterns[pattern], names[pattern.name]
        self._decisions = {}
        self._older_decisions = {}
        self._decisions_by_type = {}
        return True

    def patterns(self) -> list[ResourcePattern]:
        return [ResourcePattern(*key) for key in self._patterns]

    def candidates(self, acl_filter: AclFilter) -> list[ResourcePattern]:
        """Patterns among which are all that have ACLs which the filter selects: few, if it has a name or principal."""
        types = RESOURCE_TYPES if acl_filter.resource_type == ANY else (acl_filter.resource_type,)
        if acl_filter.principal is not None:
            by_type = (self._patterns_of.get((each, acl_filter.principal), ()) for each in types)
            return [pattern for patterns in by_type for pattern in patterns]
        name = acl_filter.name
        if name is None:
            return self.patterns()
        keys: list[_Key] = []
        for each in types:
            keys += [key for key, _ in self._matching(each, name)]
            keys += [(each, WILDCARD, LITERAL), (each, name, PREFIXED)]
        return [ResourcePattern(*key) for key in dict.fromkeys(keys) if key in self._patterns]

    def entries(self, pattern: ResourcePattern) -> list[AclEntry]:
        return [entry for entries in self._patterns.get(pattern, {}).values() for entry in entries]

    def matching(self, acl_filter: AclFilter) -> Iterator[AclBinding]:
        for pattern in self.candidates(acl_filter):
            if acl_filter.matches_pattern(pattern):
                for entry in self.entries(pattern):
                    if acl_filter.matches_entry(entry):
                        yield AclBinding(pattern, entry)

    def _count(self, pattern: ResourcePattern, entries: _Entries, sign: int) -> None:
        """Notes that a pattern gets these entries, or loses them."""
        if not entries:
            return
        self.acl_count += sign * sum(map(len, entries.values()))
        for principal in entries:
            patterns = self._patterns_of.setdefault((pattern.resource_type, principal), set())
            if sign > 0:
                patterns.add(pattern)
            else:
                patterns.discard(pattern)
                if not patterns:
                    del self._patterns_of[pattern.resource_type, principal]
        if pattern.pattern_type == PREFIXED:
            counts = self._length_counts.setdefault(pattern.resource_type, {})
            length = len(pattern.name)
            counts[length] = counts.get(length, 0) + sign
            if not counts[length]:
                del counts[length]
            self._lengths[pattern.resource_type] = sorted(counts)

    def decide(self, question: Question) -> bool:
        """The decision itself, without those that are remembered."""
        if self._super_users and str(question[0]) in self._super_users:
            return True
        _, entry, has_acl = self._find(question)
        if entry is not None:
            return entry.permission == ALLOW
        return self._is_open_without_acl and not has_acl

    def _find(self, question: Question) -> tuple[_Key, AclEntry | None, bool]:
        """The ACL that decides, with the key of its pattern, and whether the resource has any ACL."""
        principal, host, operation, resource_type, name = question
        who = f"{principal[0]}:{principal[1]}"
        allowing: AclEntry | None = None
        allowing_key: _Key = (resource_type, name, LITERAL)
        has_acl = False
        allowed_by = _ALLOWED_BY.get(operation)
        for key, by_principal in self._matching(resource_type, name):
            has_acl = True
            for entry in _entries_of(by_principal, who):
                asked = entry.operation
                if entry.host != WILDCARD and entry.host != host:
                    continue
                if entry.permission == DENY:
                    if asked in (ALL, operation):
                        return key, entry, True
                elif allowing is None and (
                    asked in (ALL, operation) or (allowed_by is not None and asked in allowed_by)
                ):
                    allowing, allowing_key = entry, key
        return allowing_key, allowing, has_acl

    def _matching(self, resource_type: int, name: str) -> list[tuple[_Key, _Entries]]:
        """The patterns that match a name, with their entries."""
        literals, prefixes = self._names.get(resource_type, _NO_NAMES)
        matching: list[tuple[_Key, _Entries]] = []
        entries = literals.get(name)
        if entries is not None:
            matching.append(((resource_type, name, LITERAL), entries))
        entries = literals.get(WILDCARD)
        if entries is not None and not name.startswith(WILDCARD):
            matching.append(((resource_type, WILDCARD, LITERAL), entries))
        for length in self._lengths.get(resource_type, ()):
            if length > len(name):
                break
            prefix = name[:length]
            entries = prefixes.get(prefix)
            if entries is not None:
                matching.append(((resource_type, prefix, PREFIXED), entries))
        return matching

    def _allows_some(self, question: tuple[Principal, str, int, int]) -> bool:
        """Whether an ALLOW is left that no DENY covers completely."""
        principal, host, operation, resource_type = question
        allowed: set[ResourcePattern] = set()
        denied: set[ResourcePattern] = set()
        for who in (str(principal), EVERYBODY):
            for pattern in self._patterns_of.get((resource_type, who), ()):
                for entry in self._patterns[pattern][who]:
                    if entry.host in (WILDCARD, host) and entry.operation in (ALL, operation):
                        (allowed if entry.permission == ALLOW else denied).add(pattern)
        everything = ResourcePattern(resource_type, WILDCARD, LITERAL)
        if everything in denied:
            return False
        return everything in allowed or any(
            not (pattern.pattern_type == LITERAL and pattern in denied)
            and not any(
                ResourcePattern(resource_type, pattern.name[:length], PREFIXED) in denied
                for length in range(1, len(pattern.name) + 1)
            )
            for pattern in allowed
        )


def _entries_of(by_principal: _Entries, who: str) -> tuple[AclEntry, ...]:
    own = by_principal.get(who, ())
    return own if who == EVERYBODY else own + by_principal.get(EVERYBODY, ())


def parse_super_users(text: str) -> frozenset[str]:
    """`User:ann;User:bob` of the setting `super.users`. Raises ValueError."""
    names = [each.strip() for each in text.split(";")]
    return frozenset(str(parse_principal(name)) for name in names if name)
