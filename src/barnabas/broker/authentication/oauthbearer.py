"""OAUTHBEARER of a listener, by Kafka's settings `sasl.oauthbearer.…`.

The keys of the issuer come from a file or a URL (`sasl.oauthbearer.jwks.endpoint.url`). They are read when the broker
starts, before it serves anybody; and again after `sasl.oauthbearer.jwks.endpoint.refresh.ms`, or when a token names
another key, then in a thread. Until new keys are there, the old ones count. A change of other settings reads nothing.
"""

from __future__ import annotations

import http.client
import logging
import threading
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from typing import Final

from barnabas.broker.authentication.issuer_keys import IssuerKeys
from barnabas.config.listener_settings import ListenerSettings
from barnabas.errors import InvalidConfig
from barnabas.security.jaas import parse_jaas
from barnabas.security.oauthbearer import ClaimRules, OAuthBearerServer, validate_unsecured
from barnabas.security.sasl import OAUTHBEARER, NewServer
from barnabas.security.signed_tokens import KEYS_BYTES_MAX, TokenKeys

log = logging.getLogger(__name__)

URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
HANDLER: Final = "sasl.server.callback.handler.class"
# The names of Kafka's handler that accepts tokens without signatures.
UNSECURED: Final = "OAuthBearerUnsecuredValidatorCallbackHandler"
# What a JAAS entry may have for that handler.
_OPTION: Final = "unsecuredValidator"
_OPTIONS: Final = ("PrincipalClaimName", "ScopeClaimName", "RequiredScope", "AllowableClockSkewMs")
FETCH_TIMEOUT_S: Final = 10.0
# A token with an unknown key has the keys read again, but not more often than this.
REFETCH_S_MIN: Final = 10.0


def new_oauthbearer(settings: ListenerSettings, now_ms: Callable[[], int], keys: IssuerKeys) -> NewServer:
    """Raises InvalidConfig that names the setting to change."""
    handler = settings.of_mechanism(OAUTHBEARER, HANDLER) or ""
    is_signed = not handler.endswith(UNSECURED)
    options = _jaas_options(settings, is_signed)
    skew_ms = settings.integer("sasl.oauthbearer.clock.skew.seconds") * 1_000
    rules = ClaimRules(
        now_ms=now_ms,
        subject_claim=options[0] or settings.text("sasl.oauthbearer.sub.claim.name") or "sub",
        issuer=settings.text("sasl.oauthbearer.expected.issuer") or None,
        audiences=settings.words("sasl.oauthbearer.expected.audience"),
        skew_ms=int(options[3]) if options[3] else skew_ms,
        scope_claim=options[1] or settings.text("sasl.oauthbearer.scope.claim.name") or "scope",
        required_scope=tuple(options[2].split()),
        is_signed=is_signed,
    )
    if not is_signed:
        log.warning(
            "Listener %s accepts tokens without signatures, which anybody can make. This is for development only",
            settings.listener,
        )
        return partial(OAuthBearerServer, partial(validate_unsecured, rules))
    url = settings.text(URL)
    if not url:
        raise InvalidConfig(
            f"{URL} is missing: it names the keys that verify tokens for listener {settings.listener}, a file"
            f" (file:///…) or a URL. For development without signatures, set {settings.prefix}{OAUTHBEARER.lower()}."
            f"{HANDLER}=org.apache.kafka.common.security.oauthbearer.internals.unsecured.{UNSECURED}"
        )
    refresh_s = settings.integer("sasl.oauthbearer.jwks.endpoint.refresh.ms") / 1_000
    fetched = keys.known(url, refresh_s)
    if fetched is None:
        fetched = FetchedKeys(url, refresh_s, keys)
        keys.use(url, refresh_s, fetched)
    return partial(fetched.new_server, rules)


def _jaas_options(settings: ListenerSettings, is_signed: bool) -> list[str]:
    """The values of _OPTIONS, empty if not set. Raises InvalidConfig."""
    name, jaas = settings.jaas_name(OAUTHBEARER), settings.jaas(OAUTHBEARER)
    options = {} if jaas is None else parse_jaas(name, jaas, OAUTHBEARER).options
    for option in options:
        if not option.startswith(_OPTION):
            continue
        if is_signed:
            raise InvalidConfig(
                f"{name}: {option} has no effect, because this listener asks for signed tokens. Remove it"
            )
        if option.removeprefix(_OPTION) not in _OPTIONS:
            known = ", ".join(_OPTION + each for each in _OPTIONS)
            raise InvalidConfig(f"{name}: there is no option {option}. Those that exist are {known}")
    values = [options.get(_OPTION + each, "").strip() for each in _OPTIONS]
    if values[3] and not (values[3].isascii() and values[3].isdigit() and len(values[3]) < 10):
        raise InvalidConfig(f"{name}: {_OPTION}{_OPTIONS[3]} must be a number of milliseconds")
    return values


class FetchedKeys:
    """Keys from a URL. The first ones of a broker are waited for, so that a wrong URL shows at the start."""

    def __init__(self, url: str, refresh_s: float, keys: IssuerKeys) -> None:
        if not url.startswith(("file:", "https:", "http:")):
            raise InvalidConfig(f"{URL}={url} must begin with file:, https: or http:")
        self._url = url
        self._refresh_s = refresh_s
        self._fetching = threading.Lock()
        self._keys = TokenKeys(self._on_unknown_key)
        self._fetched_s = time.monotonic()
        if not keys.may_fetch:
            return
        if keys.may_wait:
            self._keys.use(self._fetch())
        else:
            self._refetch()

    def new_server(self, rules: ClaimRules) -> OAuthBearerServer:
        if time.monotonic() - self._fetched_s > self._refresh_s:
            self._refetch()
        return OAuthBearerServer(partial(self._keys.validate, rules))

    def _on_unknown_key(self) -> None:
        if time.monotonic() - self._fetched_s > REFETCH_S_MIN:
            self._refetch()

    def _refetch(self) -> None:
        if self._fetching.acquire(blocking=False):
            self._fetched_s = time.monotonic()
            threading.Thread(target=self._refetch_now, name="jwks", daemon=True).start()

    def _refetch_now(self) -> None:
        try:
            self._keys.use(self._fetch())
        except InvalidConfig as error:
            log.error("The keys of OAUTHBEARER stay as they are: %s", error)
        finally:
            self._fetching.release()

    def _fetch(self) -> bytes:
        try:
            with urllib.request.urlopen(self._url, timeout=FETCH_TIMEOUT_S) as answer:
                data: bytes = answer.read(KEYS_BYTES_MAX + 1)
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise InvalidConfig(f"{URL}={self._url} cannot be read: {str(error).strip()}") from None
        return data
