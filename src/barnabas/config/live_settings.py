"""The broker's settings as they are now."""

from __future__ import annotations

from barnabas.config.broker_config import BrokerConfig


class LiveSettings:
    """`current` is the configuration including the changes at run time.

    Only the owner replaces it: the server while it starts, then the follower of settings (`ConfigUpdates`). All other
    code reads it again for each use, because settings change while the broker runs.
    """

    __slots__ = ("current",)

    def __init__(self, config: BrokerConfig) -> None:
        self.current = config
