"""Signed tokens, verified with the public keys of their issuer (a JWKS, RFC 7517). Needs the package joserfc."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from barnabas.errors import InvalidConfig
from barnabas.security.oauthbearer import ClaimRules, InvalidToken, claims_of
from barnabas.security.sasl import Login

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

# Those that Kafka accepts: signatures with public keys only.
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
KEYS_BYTES_MAX: Final = 1 << 20


class TokenKeys:
    """The keys of an issuer. `missing` is called for a key id that is not among them."""

    def __init__(self, missing: Callable[[], None]) -> None:
        try:
            import joserfc  # noqa: F401
        except ImportError:
            raise InvalidConfig(
                "OAUTHBEARER with signed tokens needs the package joserfc: install `barnabas[security]`"
            ) from None
        self._missing = missing
        self._keys: KeySet | None = None
        self._key_ids: frozenset[str] = frozenset()

    def use(self, text: bytes) -> None:
        """Takes a JWKS. Raises InvalidConfig."""
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        try:
            content = json.loads(text[: KEYS_BYTES_MAX + 1])
            keys = KeySet.import_key_set(content)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, JoseError) as error:
            raise InvalidConfig(f"sasl.oauthbearer.jwks.endpoint.url is no JWKS: {error}") from None
        self._key_ids = frozenset(str(each.get("kid")) for each in content["keys"] if each.get("kid"))
        self._keys = keys

    def validate(self, rules: ClaimRules, token: str) -> Login:
        """Raises InvalidToken."""
        from joserfc import jwt

        header, _ = claims_of(token)
        key_id = header.get("kid")
        if key_id is not None and str(key_id) not in self._key_ids:
            self._missing()
            raise InvalidToken("the token is signed with an unknown key")
        if self._keys is None:
            raise InvalidToken("there are no keys yet")
        try:
            claims: dict[str, Any] = jwt.decode(token, self._keys, algorithms=list(ALGORITHMS)).claims
        except Exception as error:
            # Anybody can send a token. The library raises its own errors, and others for headers of unexpected types.
            raise InvalidToken(f"the signature is not valid: {error}") from None
        return rules.login(claims)
