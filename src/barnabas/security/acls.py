"""ACLs as Kafka has them: bindings of a permission to a resource pattern, and filters that select bindings.

A binding says that a principal may, or may not, do an operation on the resources that its pattern matches, if the
client's address is its host. The codes are those of the protocol. ZooKeeper has names instead: `TransactionalId`,
`IdempotentWrite`, `Allow`; Kafka's tools and messages have `TRANSACTIONAL_ID`, `IDEMPOTENT_WRITE`, `ALLOW`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

UNKNOWN: Final = 0
# In filters only.
ANY: Final = 1

TOPIC: Final = 2
GROUP: Final = 3
CLUSTER: Final = 4
TRANSACTIONAL_ID: Final = 5
DELEGATION_TOKEN: Final = 6
USER: Final = 7

# In filters only: all patterns that match a name.
MATCH: Final = 2
LITERAL: Final = 3
PREFIXED: Final = 4

ALL: Final = 2
READ: Final = 3
WRITE: Final = 4
CREATE: Final = 5
DELETE: Final = 6
ALTER: Final = 7
DESCRIBE: Final = 8
CLUSTER_ACTION: Final = 9
DESCRIBE_CONFIGS: Final = 10
ALTER_CONFIGS: Final = 11
IDEMPOTENT_WRITE: Final = 12
CREATE_TOKENS: Final = 13
DESCRIBE_TOKENS: Final = 14
TWO_PHASE_COMMIT: Final = 15

DENY: Final = 2
ALLOW: Final = 3

WILDCARD: Final = "*"
EVERYBODY: Final = "User:*"
# The only resource of type CLUSTER.
CLUSTER_NAME: Final = "kafka-cluster"

RESOURCE_TYPES: Final = {
    TOPIC: "TOPIC",
    GROUP: "GROUP",
    CLUSTER: "CLUSTER",
    TRANSACTIONAL_ID: "TRANSACTIONAL_ID",
    DELEGATION_TOKEN: "DELEGATION_TOKEN",
    USER: "USER",
}
PATTERN_TYPES: Final = {LITERAL: "LITERAL", PREFIXED: "PREFIXED"}
OPERATIONS: Final = {
    ALL: "ALL",
    READ: "READ",
    WRITE: "WRITE",
    CREATE: "CREATE",
    DELETE: "DELETE",
    ALTER: "ALTER",
    DESCRIBE: "DESCRIBE",
    CLUSTER_ACTION: "CLUSTER_ACTION",
    DESCRIBE_CONFIGS: "DESCRIBE_CONFIGS",
    ALTER_CONFIGS: "ALTER_CONFIGS",
    IDEMPOTENT_WRITE: "IDEMPOTENT_WRITE",
    CREATE_TOKENS: "CREATE_TOKENS",
    DESCRIBE_TOKENS: "DESCRIBE_TOKENS",
    TWO_PHASE_COMMIT: "TWO_PHASE_COMMIT",
}
PERMISSIONS: Final = {DENY: "DENY", ALLOW: "ALLOW"}

# The operations that Kafka 4.3 knows for each type of resource, ALL aside. Other ACLs can be made, and have no effect.
SUPPORTED_OPERATIONS: Final = {
    TOPIC: (READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    GROUP: (READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    CLUSTER: (
        CREATE,
        ALTER,
        DESCRIBE,
        CLUSTER_ACTION,
        DESCRIBE_CONFIGS,
        ALTER_CONFIGS,
        IDEMPOTENT_WRITE,
    ),
    TRANSACTIONAL_ID: (WRITE, DESCRIBE, TWO_PHASE_COMMIT),
    DELEGATION_TOKEN: (DESCRIBE,),
    USER: (CREATE_TOKENS, DESCRIBE_TOKENS),
}


class ResourcePattern(NamedTuple):
    resource_type: int
    name: str
    pattern_type: int

    def __str__(self) -> str:
        kind = pascal_case(RESOURCE_TYPES[self.resource_type])
        return f"{kind}:{PATTERN_TYPES[self.pattern_type]}:{self.name}"


class AclEntry(NamedTuple):
    """What a principal may do, or not, and from which host."""

    principal: str
    host: str
    operation: int
    permission: int


class AclBinding(NamedTuple):
    pattern: ResourcePattern
    entry: AclEntry

    def __str__(self) -> str:
        """As Kafka's authorizer logs it."""
        pattern, entry = self
        return (
            f"StandardAcl(resourceType={RESOURCE_TYPES[pattern.resource_type]}, resourceName={pattern.name},"
            f" patternType={PATTERN_TYPES[pattern.pattern_type]}, principal={entry.principal}, host={entry.host},"
            f" operation={OPERATIONS[entry.operation]}, permissionType={PERMISSIONS[entry.permission]})"
        )


class AclFilter(NamedTuple):
    """None and ANY match everything. MATCH selects the patterns that apply to the resource of that name."""

    resource_type: int = ANY
    name: str | None = None
    pattern_type: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        if self.resource_type not in (ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (ANY, MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type != MATCH:
            return self.name == pattern.name
        if pattern.pattern_type == PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name in (self.name, WILDCARD)

    def matches_entry(self, entry: AclEntry) -> bool:
        return (
            (self.principal is None or self.principal == entry.principal)
            and (self.host is None or self.host == entry.host)
            and self.operation in (ANY, entry.operation)
            and self.permission in (ANY, entry.permission)
        )


def pascal_case(name: str) -> str:
    """`IDEMPOTENT_WRITE` as `IdempotentWrite`."""
    return "".join(word.capitalize() for word in name.split("_"))
