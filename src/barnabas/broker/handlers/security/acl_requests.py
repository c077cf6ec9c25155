"""What requests about ACLs have in common: the codes that a client may send."""

from __future__ import annotations

from barnabas.errors import InvalidRequest, UnsupportedVersion
from barnabas.security.acls import ANY, LITERAL, UNKNOWN, AclFilter


def checked_filter(version: int, acl_filter: AclFilter) -> AclFilter:
    """The filter as this version means it. Raises an error that ends the connection, as in Kafka."""
    pattern_type = acl_filter.pattern_type
    if version == 0:
        # Clients of this version know no patterns: all that they can see is literal.
        if pattern_type == ANY:
            acl_filter = acl_filter._replace(pattern_type=LITERAL)
        elif pattern_type != LITERAL:
            raise UnsupportedVersion("Version 0 only supports literal resource pattern types")
    check_codes(
        acl_filter.resource_type, acl_filter.pattern_type, acl_filter.operation, acl_filter.permission
    )
    return acl_filter


def check_codes(*codes: int) -> None:
    if UNKNOWN in codes:
        raise InvalidRequest("a code of 0 means nothing in a request about ACLs")
