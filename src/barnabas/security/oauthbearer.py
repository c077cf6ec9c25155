"""OAUTHBEARER (RFC 7628): the client sends a token, and the server says whether it is valid.

    n,,^Aauth=Bearer TOKEN^A^A          ^A is the byte 1; extensions stand before the last ^A
    {"status":"invalid_token"}          the server's answer to a token that is not valid
    ^A                                  the client's answer to that, after which the exchange fails

A token is a JWT (RFC 7519): three parts in base 64, of which the last is the signature. `tokens` verifies signatures.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from barnabas.security.principal import USER, Principal
from barnabas.security.sasl import Login, SaslFailed

TOKEN_CHARACTERS_MAX: Final = 64 * 1024
_FIRST: Final = re.compile(
    r"n,(?:a=(?P<authzid>[^,]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7E \t\r\n]+\x01)+)\x01", re.DOTALL
)
_BEARER: Final = re.compile(r"(?i:bearer) +([-_~+/.A-Za-z0-9]+=*)")
_INVALID: Final = '{"status":"invalid_token"}'
_GOODBYE: Final = b"\x01"
# A name is written to logs and to the store: a line break would forge lines, and half a character has no UTF-8.
_NOT_IN_NAMES: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class InvalidToken(Exception):
    """The reason is for the log of the broker; the client gets the answer only."""

    def __init__(self, reason: str, answer: str = _INVALID) -> None:
        super().__init__(reason)
        self.answer = answer


# The login of a token. Raises InvalidToken.
Validate = Callable[[str], Login]


class OAuthBearerServer:
    def __init__(self, validate: Validate) -> None:
        self._validate = validate
        self._refused: InvalidToken | None = None
        self.login: Login | None = None

    def step(self, message: bytes) -> bytes:
        if self._refused is not None:
            raise SaslFailed(self._refused.answer)
        text = message.decode("utf-8", "replace")
        found = _FIRST.fullmatch(text)
        if found is None or self.login is not None:
            raise SaslFailed("Authentication failed: Invalid OAUTHBEARER client first message")
        pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01") if pair)
        bearer = _BEARER.fullmatch(pairs.get("auth", "").strip())
        if bearer is None or len(bearer[1]) > TOKEN_CHARACTERS_MAX:
            raise SaslFailed(
                "Authentication failed: Invalid OAUTHBEARER client first message: no Bearer token"
            )
        try:
            login = self._validate(bearer[1])
        except InvalidToken as error:
            self._refused = error
            return error.answer.encode()
        authorization_id = found["authzid"]
        if authorization_id and authorization_id != login.principal.name:
            raise SaslFailed(
                "Authentication failed: Client requested an authorization id that is different from the token's"
                " principal name"
            )
        self.login = login
        return b""


class OAuthBearerClient:
    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        self._token = token
        self._extensions = dict(extensions or {})
        self._has_sent = False
        self.is_complete = False

    def first(self) -> bytes:
        pairs = "".join(f"{name}={value}\x01" for name, value in self._extensions.items())
        return f"n,,\x01auth=Bearer {self._token}\x01{pairs}\x01".encode()

    def step(self, message: bytes) -> bytes:
        if message:
            if self._has_sent:
                raise SaslFailed("the broker has refused the token")
            self._has_sent = True
            return _GOODBYE
        self.is_complete = True
        return b""


def claims_of(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and claims, without any check of the signature. Raises InvalidToken."""
    parts = token.split(".")
    if len(parts) != 3:
        raise InvalidToken("a token has three parts")
    try:
        header, claims = (json.loads(_decoded(part)) for part in parts[:2])
    except (ValueError, RecursionError):
        raise InvalidToken("the token is no JSON in base 64") from None
    if not isinstance(header, dict) or not isinstance(claims, dict):
        raise InvalidToken("the token has no claims")
    return header, claims


def unsecured_token(claims: Mapping[str, object]) -> str:
    """A token without a signature, for development."""
    parts = (json.dumps(each, separators=(",", ":")).encode() for each in ({"alg": "none"}, claims))
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts) + "."


class ClaimRules:
    """What the claims of a token must be, by Kafka's settings."""

    def __init__(
        self,
        *,
        now_ms: Callable[[], int],
        subject_claim: str = "sub",
        issuer: str | None = None,
        audiences: tuple[str, ...] = (),
        skew_ms: int = 30_000,
        scope_claim: str = "scope",
        required_scope: tuple[str, ...] = (),
        is_signed: bool = False,
    ) -> None:
        """Kafka has stricter rules for signed tokens."""
        self._now_ms = now_ms
        self._subject_claim = subject_claim
        self._issuer = issuer
        self._audiences = frozenset(audiences)
        self._skew_ms = skew_ms
        self._scope_claim = scope_claim
        self._required_scope = required_scope
        self._is_signed = is_signed

    def login(self, claims: Mapping[str, Any]) -> Login:
        """Raises InvalidToken."""
        expires_ms = self._check_times(claims)
        if self._issuer is not None and claims.get("iss") != self._issuer:
            raise InvalidToken("the claim iss is not sasl.oauthbearer.expected.issuer")
        given = claims.get("aud")
        if self._audiences or (self._is_signed and given is not None):
            named = given if isinstance(given, list) else [given]
            if not any(isinstance(each, str) and each in self._audiences for each in named):
                raise InvalidToken("the claim aud has none of sasl.oauthbearer.expected.audience")
        self._check_scope(claims.get(self._scope_claim))
        subject = claims.get(self._subject_claim)
        if not isinstance(subject, str) or not subject.strip():
            raise InvalidToken(f"the claim {self._subject_claim} names nobody")
        if _NOT_IN_NAMES.search(subject):
            raise InvalidToken(f"the claim {self._subject_claim} has characters that no name has")
        return Login(Principal(USER, subject), expires_ms)

    def _check_times(self, claims: Mapping[str, Any]) -> int:
        """The end, in milliseconds."""
        now_ms = self._now_ms()
        expires_ms = _time_ms(claims, "exp")
        if expires_ms is None:
            raise InvalidToken("the token has no claim exp")
        if expires_ms + self._skew_ms <= now_ms:
            raise InvalidToken("the token has expired")
        for name in ("nbf", "iat"):
            time_ms = _time_ms(claims, name)
            if time_ms is None:
                if name == "iat" and self._is_signed:
                    raise InvalidToken("the token has no claim iat")
            elif time_ms - self._skew_ms > now_ms:
                raise InvalidToken(f"the claim {name} is in the future")
            elif time_ms > expires_ms:
                raise InvalidToken(f"the claim {name} is after the end of the token")
        return expires_ms

    def _check_scope(self, given: object) -> None:
        scopes = given if isinstance(given, list) else [given] if isinstance(given, str) else []
        texts = [each.strip() for each in scopes if isinstance(each, str)]
        if self._is_signed and not len(set(filter(None, texts))) == len(texts) == len(scopes):
            raise InvalidToken(f"the claim {self._scope_claim} has an empty value, or one value twice")
        if not set(texts).issuperset(self._required_scope):
            required = f"[{', '.join(self._required_scope)}]"
            raise InvalidToken(
                f"the claim {self._scope_claim} does not have all of {required}",
                f'{{"status":"insufficient_scope", "scope":"{required}"}}',
            )


def validate_unsecured(rules: ClaimRules, token: str) -> Login:
    """For development only: anybody can make such a token."""
    header, claims = claims_of(token)
    if header.get("alg") != "none" or not token.endswith("."):
        raise InvalidToken("the token has a signature, and this listener takes tokens without one")
    return rules.login(claims)


def _time_ms(claims: Mapping[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise InvalidToken(f"the claim {name} is no time")
    return int(value * 1000)


def _decoded(part: str) -> bytes:
    return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
