"""The users that can log in with SCRAM, from the metadata."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from barnabas.coordination.metadata.image import MetadataImage
from barnabas.coordination.metadata.scram_credentials import ScramCredential
from barnabas.security.principal import USER, Principal
from barnabas.security.scram import ITERATIONS_MIN, Decoy, ScramAccount, ScramKeys, ScramServer

if TYPE_CHECKING:
    from barnabas.coordination.writing.delegation_tokens import DelegationTokens


class ScramAccounts:
    """The users of one mechanism.

    A user that does not exist gets a salt too. It must be the same on each broker and after each restart, as that of
    a real user, and nobody must be able to compute it: it comes from the key of the first user.
    """

    def __init__(
        self, mechanism: str, image: Callable[[], MetadataImage], tokens: DelegationTokens | None
    ) -> None:
        self._mechanism = mechanism
        self._image = image
        self._tokens = tokens
        self._users: Mapping[str, Mapping[str, ScramCredential]] | None = None
        self._decoy = Decoy(b"")

    def new_server(self) -> ScramServer:
        image = self._image()
        if image.scram_credentials is not self._users:
            self._users = image.scram_credentials
            self._decoy = self._new_decoy(image)
        token_decoy = None if self._tokens is None else self._tokens.keys.decoy
        return ScramServer(self._mechanism, self._find, self._decoy, token_decoy)

    def _new_decoy(self, image: MetadataImage) -> Decoy:
        first = min(self._usable(image.scram_credentials), default=None)
        like = None if first is None else _keys(image.scram_credentials[first][self._mechanism])
        secret = b"" if like is None else like.server_key
        return Decoy(hashlib.sha512(image.cluster_id.encode() + secret).digest(), like)

    def _usable(self, users: Mapping[str, Mapping[str, ScramCredential]]) -> Iterator[str]:
        """The users that can log in: one who cannot looks like one that does not exist."""
        for user, each in users.items():
            credential = each.get(self._mechanism)
            if credential is not None and credential.iterations >= ITERATIONS_MIN:
                yield user

    def _find(self, name: str, is_token: bool) -> ScramAccount | None:
        if is_token:
            return self._find_token(name)
        credential = self._image().scram_credentials.get(name, {}).get(self._mechanism)
        return None if credential is None else ScramAccount(Principal(USER, name), _keys(credential))

    def _find_token(self, token_id: str) -> ScramAccount | None:
        token = None if self._tokens is None else self._tokens.find(token_id)
        if token is None or self._tokens is None:
            return None
        keys = self._tokens.keys.of(token_id, self._mechanism)
        return ScramAccount(token.owner._replace(has_token=True), keys, token.expiry_ms)


def _keys(credential: ScramCredential) -> ScramKeys:
    return ScramKeys(credential.salt, credential.stored_key, credential.server_key, credential.iterations)
