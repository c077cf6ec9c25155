"""The versions in which brokers speak to each other, by `inter.broker.protocol.version`.

Channels of the controller, replica fetchers, controlled shutdown and markers ask nobody which versions they know: all
brokers of a cluster have the same protocol level, and it settles the version of each request. A broker that does not
know the version ends the connection. The facts are those of Kafka 3.9.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from barnabas.errors import InvalidConfig

# The last interim version of each release: "2.4" stands for "2.4-IV1".
_LAST_INTERIM: Final = {
    (2, 2): 1,
    (2, 3): 1,
    (2, 4): 1,
    (2, 5): 0,
    (2, 6): 0,
    (2, 7): 2,
    (2, 8): 1,
    (3, 0): 1,
    (3, 1): 0,
    (3, 2): 0,
    (3, 3): 3,
    (3, 4): 0,
    (3, 5): 2,
    (3, 6): 2,
    (3, 7): 4,
    (3, 8): 0,
    (3, 9): 0,
}
_LEVEL: Final = re.compile(r"(\d+)\.(\d+)(?:\.\d+)*(?:-IV(\d+))?")


class ProtocolLevel(NamedTuple):
    """A value of `inter.broker.protocol.version`. Levels compare in the order of their releases."""

    major: int
    minor: int
    interim: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}-IV{self.interim}"

    @classmethod
    def parse(cls, text: str) -> ProtocolLevel:
        """Takes "3.9", "3.9.1" and "3.9-IV0". Raises InvalidConfig."""
        found = _LEVEL.fullmatch(text)
        release = (int(found[1]), int(found[2])) if found else (0, 0)
        last = _LAST_INTERIM.get(release)
        interim = last if found is None or found[3] is None else int(found[3])
        if last is None or interim is None or interim > last:
            raise InvalidConfig(
                f"Invalid value {text} for configuration inter.broker.protocol.version: brokers speak levels"
                f" {OLDEST} to {NEWEST}"
            )
        return cls(*release, interim)

    def version_of(self, api: str) -> int:
        """The version of a request between brokers. The API must be one of those that the level settles."""
        for since, version in VERSIONS[api]:
            if self >= since:
                return version
        raise AssertionError(f"{api} has no version at {self}")

    def max_version_of(self, api: str) -> int | None:
        """The last version of a request that the level allows; None if it allows all that both brokers know."""
        # Later versions have topic ids in place of names.
        return 1 if api == "AlterPartition" and self < TOPIC_IDS else None


NEWEST: Final = ProtocolLevel(3, 9, 0)
OLDEST: Final = ProtocolLevel(2, 2, 0)

# From this level on, partitions have topic ids.
TOPIC_IDS: Final = ProtocolLevel(2, 8, 0)
# From this level on, leaders change the ISR by AlterPartition; before it, by writing the state node.
ALTER_PARTITION: Final = ProtocolLevel(2, 7, 2)
# From this level on, brokers get producer ids from the controller; before it, from the store.
ALLOCATE_PRODUCER_IDS: Final = ProtocolLevel(3, 0, 0)
# From this level on, the controller keeps finalized features; from the second on, without a lower level of each.
FEATURES: Final = ProtocolLevel(2, 7, 0)
FEATURES_WITHOUT_MIN: Final = ProtocolLevel(3, 3, 0)
# From this level on, a leader that was elected unclean has to recover (KIP-704).
LEADER_RECOVERY: Final = ProtocolLevel(3, 2, 0)
# From this level on, followers learn from Fetch where their log diverges; before it, from OffsetForLeaderEpoch.
TRUNCATION_ON_FETCH: Final = ProtocolLevel(2, 7, 1)

# By API: since which level which version, newest first.
VERSIONS: Final[dict[str, tuple[tuple[ProtocolLevel, int], ...]]] = {
    "LeaderAndIsr": (
        (ProtocolLevel(3, 4, 0), 7),
        (LEADER_RECOVERY, 6),
        (ProtocolLevel(2, 8, 1), 5),
        (ProtocolLevel(2, 4, 1), 4),
        (ProtocolLevel(2, 4, 0), 3),
        (OLDEST, 2),
    ),
    "UpdateMetadata": (
        (ProtocolLevel(3, 4, 0), 8),
        (ProtocolLevel(2, 8, 1), 7),
        (ProtocolLevel(2, 4, 1), 6),
        (OLDEST, 5),
    ),
    "StopReplica": (
        (ProtocolLevel(3, 4, 0), 4),
        (ProtocolLevel(2, 6, 0), 3),
        (ProtocolLevel(2, 4, 1), 2),
        (OLDEST, 1),
    ),
    "Fetch": (
        (ProtocolLevel(3, 9, 0), 17),
        (ProtocolLevel(3, 7, 4), 16),
        (ProtocolLevel(3, 5, 1), 15),
        (ProtocolLevel(3, 5, 0), 14),
        (ProtocolLevel(3, 1, 0), 13),
        (TRUNCATION_ON_FETCH, 12),
        (ProtocolLevel(2, 3, 1), 11),
        (OLDEST, 10),
    ),
    "OffsetForLeaderEpoch": ((ProtocolLevel(2, 8, 0), 4), (ProtocolLevel(2, 3, 1), 3), (OLDEST, 2)),
    "ListOffsets": (
        (ProtocolLevel(3, 9, 0), 9),
        (ProtocolLevel(3, 5, 0), 8),
        (ProtocolLevel(3, 0, 1), 7),
        (ProtocolLevel(2, 8, 0), 6),
        (ProtocolLevel(2, 2, 1), 5),
        (OLDEST, 4),
    ),
    "WriteTxnMarkers": ((ProtocolLevel(2, 8, 0), 1), (OLDEST, 0)),
    "ControlledShutdown": ((ProtocolLevel(2, 4, 1), 3), (OLDEST, 2)),
}
