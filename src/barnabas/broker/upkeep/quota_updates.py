"""Makes quotas follow the metadata."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Mapping

from barnabas.broker.quotas.quotas import DEFAULT, QuotaEntity, Quotas, address_of
from barnabas.broker.waiting.tasks import Tasks
from barnabas.coordination.metadata.cache import MetadataCache, Stage
from barnabas.coordination.metadata.image import MetadataImage

log = logging.getLogger(__name__)

ClientQuotas = Mapping[tuple[str | None, str | None, str | None], Mapping[str, float]]


class QuotaUpdates:
    def __init__(self, cache: MetadataCache, quotas: Quotas, tasks: Tasks) -> None:
        self._cache = cache
        self._quotas = quotas
        self._tasks = tasks

    def begin(self) -> None:
        self._apply_quotas({}, self._cache.image.client_quotas)
        self._cache.subscribe(Stage.QUOTAS, self._on_image)

    def _on_image(self, before: MetadataImage, after: MetadataImage) -> None:
        if before.client_quotas is not after.client_quotas:
            self._apply_quotas(before.client_quotas, after.client_quotas)

    def _apply_quotas(self, before: ClientQuotas, after: ClientQuotas) -> None:
        for key in before:
            if key not in after:
                self._quotas.set_limits(QuotaEntity(*key), {})
        for key, limits in after.items():
            entity = QuotaEntity(*key)
            # An address may be written in several ways, and one of them have gone.
            if before.get(key) is limits and entity.ip is None:
                continue
            self._quotas.set_limits(entity, limits)
            if entity.ip not in (None, DEFAULT) and address_of(entity.ip) is None:
                self._tasks.start(self._resolve(entity.ip))

    async def _resolve(self, name: str) -> None:
        """Finds the addresses of a host that has a quota by its name, as they are now."""
        try:
            found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except OSError as error:
            log.warning("The quota of %s has no effect: the host name cannot be resolved: %s", name, error)
            return
        self._quotas.note_addresses(name, {str(address[0]) for *_, address in found})
