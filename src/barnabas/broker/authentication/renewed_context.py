"""The TLS of an address. Certificates that change on disk, or by a change of settings, count for the next connection.

If the new ones cannot be used, the old ones stay, and the log says so.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from barnabas.errors import InvalidConfig
from barnabas.security.tls import TlsSettings, file_versions, server_context

if TYPE_CHECKING:
    import ssl

log = logging.getLogger(__name__)

# How often the files of certificates are looked at, at most.
FILE_CHECK_S: Final = 1.0


class RenewedContext:
    """Raises InvalidConfig if the settings cannot be used. The owner is for the log."""

    def __init__(self, owner: str, settings: TlsSettings, monotonic_s: Callable[[], float]) -> None:
        self._owner = owner
        self._monotonic_s = monotonic_s
        self._settings = settings
        self._context = server_context(settings)
        location = settings.key_store.location
        if location is not None and os.stat(location).st_mode & stat.S_IRWXO:
            log.warning(
                "The private key in %s can be read by all users of this machine. Restrict it: chmod o-rwx %s",
                *(location, location),
            )
        self._versions = file_versions(settings)
        self._checked_s = monotonic_s()

    def context(self) -> ssl.SSLContext:
        now_s = self._monotonic_s()
        if now_s - self._checked_s >= FILE_CHECK_S:
            self._checked_s = now_s
            if file_versions(self._settings) != self._versions:
                self._renew("files")
        return self._context

    def change(self, settings: TlsSettings) -> None:
        """Uses changed settings, if they can be used."""
        if settings != self._settings:
            before, self._settings = self._settings, settings
            if not self._renew("settings"):
                self._settings = before

    def _renew(self, changed: str) -> bool:
        versions = file_versions(self._settings)
        try:
            self._context = server_context(self._settings)
        except InvalidConfig as error:
            # The same files are not tried again, only other ones.
            self._versions = versions
            log.error("%s keeps its certificates; the new %s cannot be used: %s", self._owner, changed, error)
            return False
        self._versions = versions
        log.info("%s uses new certificates", self._owner)
        return True
