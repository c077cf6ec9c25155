"""The keys that a listener has for OAUTHBEARER. All changes of its settings share them, so that none reads them again.

This is apart from `oauthbearer`, which listeners with other mechanisms do not load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.broker.authentication.oauthbearer import FetchedKeys


class IssuerKeys:
    def __init__(self) -> None:
        # Once the broker serves clients, it waits for no keys.
        self.may_wait = True
        # Nothing is fetched for a change that is only checked.
        self.may_fetch = True
        self._source: tuple[str, float] | None = None
        self._keys: FetchedKeys | None = None

    def known(self, url: str, refresh_s: float) -> FetchedKeys | None:
        return self._keys if self._source == (url, refresh_s) else None

    def use(self, url: str, refresh_s: float, keys: FetchedKeys) -> None:
        self._source, self._keys = (url, refresh_s), keys
