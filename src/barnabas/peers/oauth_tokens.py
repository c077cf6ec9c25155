"""Where a client gets its tokens for OAUTHBEARER: a function of the user, an OAuth server, a file, or itself.

Tokens that a client makes itself have no signature; they are for development.

A token is used again until most of its lifetime is over. All of this may wait, so it runs in a thread.
"""

from __future__ import annotations

import base64
import http.client
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, Final

from barnabas.errors import InvalidConfig, NetworkException, SaslAuthenticationFailed
from barnabas.peers.security import LOGIN_HANDLER
from barnabas.security.oauthbearer import InvalidToken, OAuthBearerClient, claims_of, unsecured_token

ANSWER_BYTES_MAX: Final = 1 << 20
TIMEOUT_S: Final = 10.0
# As Kafka's clients: a new token after this share of the lifetime of the last one.
USED_SHARE: Final = 0.8
URL: Final = "sasl.oauthbearer.token.endpoint.url"
# Kafka's own handlers, in 3.9 and 4.x: what they do is built in.
_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
_WITH_URL: Final = (
    f"{_PACKAGE}OAuthBearerLoginCallbackHandler",
    f"{_PACKAGE}secured.OAuthBearerLoginCallbackHandler",
)
_WITHOUT_SIGNATURE: Final = f"{_PACKAGE}internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"
UNSECURED: Final = "unsecuredLogin"
UNSECURED_LIFETIME_S: Final = 3_600
_EXTENSION: Final = "extension_"


class Tokens:
    """Creates the machine of a log-in with the current token. `fetch` returns a token, and may wait."""

    def __init__(self, fetch: Callable[[], str], extensions: Mapping[str, str]) -> None:
        self._fetch = fetch
        self._extensions = extensions
        self._lock = threading.Lock()
        self._token = ""
        self._renewed_s = 0.0

    def new_client(self) -> OAuthBearerClient:
        """Raises KafkaError."""
        with self._lock:
            if time.time() >= self._renewed_s:
                self._token = self._fetch()
                self._renewed_s = _renewal_s(self._token)
            return OAuthBearerClient(self._token, self._extensions)


def new_tokens(get: Callable[[str], Any], options: Mapping[str, str | None], jaas_name: str) -> Tokens:
    """Raises InvalidConfig. `options` are those of the JAAS entry."""
    given = {name: value for name, value in options.items() if value is not None}
    extensions = _without_prefix(_EXTENSION, given)
    callback = get(LOGIN_HANDLER)
    if callable(callback):
        return Tokens(lambda: _checked(callback()), extensions)
    if callback not in (None, *_WITH_URL, _WITHOUT_SIGNATURE):
        raise InvalidConfig(
            f"{LOGIN_HANDLER}={callback} cannot be used. Set it to a function that returns a token, or to one of"
            f" {', '.join((*_WITH_URL, _WITHOUT_SIGNATURE))}"
        )
    url = get(URL)
    if callback in _WITH_URL and not url:
        raise InvalidConfig(f"{LOGIN_HANDLER}={callback} needs {URL}")
    if url and callback == _WITHOUT_SIGNATURE:
        raise InvalidConfig(f"{URL} has no effect with {LOGIN_HANDLER}={callback}: leave one of them out")
    if url:
        if url.startswith("file:"):
            return Tokens(lambda: _from_file(url), extensions)
        if not url.startswith(("https:", "http:")):
            raise InvalidConfig(f"{URL}={url} must begin with https:, http: or file:")
        client_id = get("sasl.oauthbearer.client.credentials.client.id") or options.get("clientId")
        secret = get("sasl.oauthbearer.client.credentials.client.secret") or options.get("clientSecret")
        scope = get("sasl.oauthbearer.scope") or options.get("scope")
        if not client_id or not secret:
            raise InvalidConfig(
                "sasl.oauthbearer.token.endpoint.url needs sasl.oauthbearer.client.credentials.client.id and"
                f" …client.secret (or clientId and clientSecret in {jaas_name})"
            )
        return Tokens(lambda: _client_credentials(url, client_id, secret, scope), extensions)
    claims, lifetime_s = _unsecured_claims(_without_prefix(UNSECURED, given), jaas_name)
    extensions = {**extensions, **_without_prefix(f"{UNSECURED}Extension_", given)}
    return Tokens(lambda: _unsecured(claims, lifetime_s), extensions)


def _without_prefix(prefix: str, options: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)}


def _unsecured_claims(options: Mapping[str, str], jaas_name: str) -> tuple[dict[str, object], int]:
    """The claims and the lifetime of tokens without a signature. Raises InvalidConfig."""
    claims: dict[str, object] = {}
    lifetime_s = UNSECURED_LIFETIME_S
    for option, value in options.items():
        kind, _, claim = option.partition("_")
        try:
            if option == "LifetimeSeconds":
                lifetime_s = int(value)
            elif kind in ("StringClaim", "NumberClaim", "ListClaim") and claim not in ("", "iat", "exp"):
                claims[claim] = _claim(kind, value)
            elif kind != "Extension" and option not in ("PrincipalClaimName", "ScopeClaimName"):
                raise InvalidConfig(f"{jaas_name}: the option {UNSECURED}{option} does not exist")
        except ValueError:
            raise InvalidConfig(f"{jaas_name}: {UNSECURED}{option} must be a number") from None
    subject = options.get("PrincipalClaimName", "").strip() or "sub"
    if not claims.get(subject) or not isinstance(claims[subject], str):
        raise InvalidConfig(
            f"OAUTHBEARER needs a source of tokens: a function as {LOGIN_HANDLER}, or {URL}, or, for development,"
            f' {UNSECURED}StringClaim_{subject}="USER" in {jaas_name}'
        )
    return claims, lifetime_s


def _claim(kind: str, value: str) -> object:
    if kind == "NumberClaim":
        return float(value)
    # The first character of a list separates its elements.
    return (value[1:].split(value[0]) if len(value) > 1 else []) if kind == "ListClaim" else value


def _from_file(url: str) -> str:
    try:
        with urllib.request.urlopen(url) as file:
            token: str = file.read(ANSWER_BYTES_MAX).decode().strip()
    except (OSError, ValueError) as error:
        raise SaslAuthenticationFailed(f"{URL}={url} cannot be read: {error}") from None
    if not token:
        raise SaslAuthenticationFailed(f"{URL}={url} has no token")
    return token


def _checked(token: object) -> str:
    if not isinstance(token, str) or not token:
        raise SaslAuthenticationFailed("the function for tokens must return a token, as text")
    return token


def _unsecured(claims: Mapping[str, object], lifetime_s: int) -> str:
    now_s = time.time()
    return unsecured_token({"iat": now_s, "exp": now_s + lifetime_s, **claims})


def _client_credentials(url: str, client_id: str, secret: str, scope: str | None) -> str:
    """The token of a client itself (RFC 6749, section 4.4)."""
    form = {"grant_type": "client_credentials", **({} if not scope else {"scope": scope})}
    request = urllib.request.Request(url, urllib.parse.urlencode(form).encode(), method="POST")
    request.add_header("Accept", "application/json")
    credentials = base64.b64encode(f"{client_id}:{secret}".encode()).decode()
    request.add_header("Authorization", f"Basic {credentials}")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            content = json.loads(answer.read(ANSWER_BYTES_MAX))
    except urllib.error.HTTPError as error:
        raise SaslAuthenticationFailed(f"{url} gives no token: {error.code} {error.reason}") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise NetworkException(f"{url} gives no token: {str(error).strip()}") from None
    token = content.get("access_token") if isinstance(content, dict) else None
    if not isinstance(token, str):
        raise SaslAuthenticationFailed(f"the answer of {url} has no access_token")
    return token


def _renewal_s(token: str) -> float:
    """When to ask for the next token; at once if the token does not say how long it lasts."""
    try:
        _, claims = claims_of(token)
    except InvalidToken:
        return 0.0
    now_s, ends_s = time.time(), claims.get("exp")
    return now_s + (ends_s - now_s) * USED_SHARE if isinstance(ends_s, int | float) else 0.0
