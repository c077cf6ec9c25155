"""How the leader of a classic group divides partitions among its members, as Kafka's assignors of the same names do.

An assignor decides without IO: it gets the members' subscriptions and the partition counts of topics, and gives
each member its partitions. Their wire formats are Kafka's, so members of one group may run clients of any language.
"""

from __future__ import annotations

from typing import Final

from barnabas.client.groups.assignors.base import Assignor
from barnabas.client.groups.assignors.range import RangeAssignor
from barnabas.client.groups.assignors.roundrobin import RoundRobinAssignor
from barnabas.client.groups.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from barnabas.errors import InvalidConfig

_ASSIGNORS: Final[dict[str, type[Assignor]]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
# The names that settings of Java's client have for them.
_JAVA_CLASSES: Final = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}


def make_assignors(names: tuple[str, ...]) -> tuple[Assignor, ...]:
    """The assignors of a consumer, the preferred first."""
    if not names:
        raise InvalidConfig("partition.assignment.strategy is empty: name at least one, such as 'range'")
    assignors: list[Assignor] = []
    for name in names:
        known = _JAVA_CLASSES.get(name.rpartition(".")[2], name)
        if known not in _ASSIGNORS:
            raise InvalidConfig(
                f"partition.assignment.strategy: there is no assignor {name!r}; choose from {', '.join(_ASSIGNORS)}"
            )
        if any(assignor.name == known for assignor in assignors):
            raise InvalidConfig(f"partition.assignment.strategy names {known!r} twice")
        assignors.append(_ASSIGNORS[known]())
    return tuple(assignors)
