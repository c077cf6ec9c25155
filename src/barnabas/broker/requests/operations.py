"""The operations that a client may do on a resource, as the bit sets of Metadata and the Describe APIs.

Without an authorizer every client may do every operation that Kafka 4.3 has for a type of resource. Kafka 3.9 has the
same operations, except for the settings of groups.
"""

from __future__ import annotations

from typing import Final

from barnabas.security.acls import SUPPORTED_OPERATIONS

NOT_ASKED: Final = -(2**31)

# By type of resource.
EVERY_OPERATION: Final = {
    resource_type: sum(1 << operation for operation in operations)
    for resource_type, operations in SUPPORTED_OPERATIONS.items()
}
