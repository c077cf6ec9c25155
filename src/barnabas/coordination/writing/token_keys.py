"""The SCRAM keys of delegation tokens.

Each takes milliseconds to make, so threads make them as soon as a token is known, as Kafka does when it caches a token.
A log-in then takes the same time whether or not there is such a token. The salt depends on the id and a secret of the
cluster alone, so that it is the same on each broker, after each restart, and for an id that does not exist.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
from collections.abc import Iterable, Sequence
from typing import Final

from barnabas.security.sasl import SCRAM_HASHES
from barnabas.security.scram import ITERATIONS_MIN, Decoy, ScramKeys, keys_of

# A thread makes this many before it gives others a turn.
_AT_ONCE: Final = 50


class TokenKeys:
    def __init__(self, secret_key: bytes, mechanisms: Sequence[str]) -> None:
        """The mechanisms are those of the listeners; other keys are not made."""
        self._secret_key = secret_key
        self._mechanisms = mechanisms
        self._keys: dict[tuple[str, str], ScramKeys] = {}
        # For tokens that do not exist.
        self.decoy = Decoy(hmac.digest(secret_key, b"salts of tokens", "sha512"))

    def secret_of(self, token_id: str) -> bytes:
        return hmac.digest(self._secret_key, token_id.encode(), "sha512")

    def of(self, token_id: str, mechanism: str) -> ScramKeys:
        keys = self._keys.get((token_id, mechanism))
        if keys is None:
            # A token that another broker has created a moment ago.
            keys = self._keys[token_id, mechanism] = self._new(token_id, mechanism)
        return keys

    def forget(self, token_id: str) -> None:
        for mechanism in SCRAM_HASHES:
            self._keys.pop((token_id, mechanism), None)

    async def prepare(self, token_ids: Iterable[str]) -> None:
        missing = [
            (token_id, mechanism)
            for token_id in token_ids
            for mechanism in self._mechanisms
            if (token_id, mechanism) not in self._keys
        ]
        for start in range(0, len(missing), _AT_ONCE):
            self._keys.update(await asyncio.to_thread(self._new_ones, missing[start : start + _AT_ONCE]))

    def _new_ones(self, wanted: list[tuple[str, str]]) -> dict[tuple[str, str], ScramKeys]:
        return {each: self._new(*each) for each in wanted}

    def _new(self, token_id: str, mechanism: str) -> ScramKeys:
        password = base64.b64encode(self.secret_of(token_id)).decode()
        salt = self.decoy.keys_for(token_id, SCRAM_HASHES[mechanism]).salt
        return keys_of(mechanism, password, salt, ITERATIONS_MIN)
