"""Connections to brokers with TLS and SASL, for clients and between brokers.

`ConnectionSecurity` comes from settings with Kafka's names. A session that has an end is renewed before it on the same
connection: other requests wait for that moment.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from barnabas.errors import (
    NONE,
    InvalidConfig,
    KafkaError,
    RequestTimedOut,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
    error_for_code,
)
from barnabas.net.channel import Channel
from barnabas.net.requester import Requester
from barnabas.net.tls_handshakes import secure
from barnabas.peers.handshake import answer_to
from barnabas.primitives.executors import new_threads
from barnabas.protocol.apis import api_for_name
from barnabas.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from barnabas.protocol.messages.sasl_handshake_response import SaslHandshakeResponse
from barnabas.security.jaas import JaasEntry, parse_jaas
from barnabas.security.sasl import (
    GSSAPI,
    OAUTHBEARER,
    PLAIN,
    SCRAM_HASHES,
    SUPPORTED,
    PlainClient,
    SaslClient,
)
from barnabas.security.tls import TlsSettings, client_context, file_versions, tls_settings

if TYPE_CHECKING:
    import ssl

SASL_HANDSHAKE: Final = api_for_name("SaslHandshake")
SASL_AUTHENTICATE: Final = api_for_name("SaslAuthenticate")
# Version 2 differs only in its encoding.
SASL_AUTHENTICATE_VERSION: Final = 1
MESSAGES_MAX: Final = 10
LOGIN_HANDLER: Final = "sasl.login.callback.handler.class"
# A session is renewed at this share of its lifetime, as Kafka's clients do.
RENEWAL_SHARE: Final = (0.85, 0.95)

ResultT = TypeVar("ResultT")


class ConnectionSecurity:
    """Raises InvalidConfig if the settings cannot be used."""

    def __init__(
        self,
        tls: TlsSettings | None,
        mechanism: str,
        new_sasl: Callable[[str], SaslClient] | None,
        *,
        is_slow: bool = False,
    ) -> None:
        """`new_sasl` creates a machine for the broker of a host.

        `is_slow` says whether machines may have to wait, for a token or a ticket: then a thread runs them.
        """
        self._tls = tls
        self._mechanism = mechanism
        self._new_sasl = new_sasl
        # One thread: all of them would wait for the same server.
        self._thread = new_threads(1, "log-in") if is_slow else None
        self._context: ssl.SSLContext | None = None
        self._versions: list[tuple[int, int, int] | None] = []
        self._renewals: set[asyncio.Task[None]] = set()
        if tls is not None:
            self._tls_context(tls)

    async def secure(self, channel: Channel, host: str, *, peer: str, timeout_s: float) -> Channel:
        """The channel with TLS, if there is TLS. Raises NetworkException or TlsRefused."""
        if self._tls is None:
            return channel
        try:
            context = self._tls_context(self._tls)
        except BaseException:
            channel.close()
            raise
        return await secure(channel, context, host, peer=peer, timeout_s=timeout_s)

    async def authenticate(self, requester: Requester, host: str, *, timeout_s: float) -> None:
        """Logs in, if there is SASL. Raises KafkaError, and closes the connection then."""
        if self._new_sasl is None:
            return
        try:
            client = await self._call(timeout_s, self._new_sasl, host)
            lifetime_ms = await self._log_in(requester, client, timeout_s)
        except BaseException as error:
            requester.close(error if isinstance(error, KafkaError) else None)
            raise
        if lifetime_ms > 0:
            loop = asyncio.get_running_loop()
            wait_s = lifetime_ms / 1_000 * random.uniform(*RENEWAL_SHARE)
            loop.call_later(wait_s, self._begin_renewal, requester, host, timeout_s)

    def _begin_renewal(self, requester: Requester, host: str, timeout_s: float) -> None:
        if requester.closed_by is None:
            renewal = asyncio.get_running_loop().create_task(self._renew(requester, host, timeout_s))
            self._renewals.add(renewal)
            renewal.add_done_callback(self._renewals.discard)

    async def _renew(self, requester: Requester, host: str, timeout_s: float) -> None:
        requester.hold()
        try:
            await self.authenticate(requester, host, timeout_s=timeout_s)
        except KafkaError:
            # Requests that wait have got the reason. The next connection shows whether it persists.
            return
        requester.release()

    async def _log_in(self, requester: Requester, client: SaslClient, timeout_s: float) -> int:
        chosen: SaslHandshakeResponse = await answer_to(
            requester,
            SASL_HANDSHAKE,
            1,
            SaslHandshakeRequest(mechanism=self._mechanism),
            timeout_s=timeout_s,
            is_ahead=True,
        )
        if chosen.error_code == UnsupportedSaslMechanism.code:
            raise UnsupportedSaslMechanism(
                f"{requester.peer} does not have the SASL mechanism {self._mechanism}; it has"
                f" {', '.join(chosen.mechanisms[:20])} (sasl.mechanism)"
            )
        if chosen.error_code != NONE:
            raise error_for_code(
                chosen.error_code, f"{requester.peer} has no SASL on this listener (security.protocol)"
            )
        message = await self._call(timeout_s, client.first)
        for _ in range(MESSAGES_MAX):
            answer: SaslAuthenticateResponse = await answer_to(
                requester,
                SASL_AUTHENTICATE,
                SASL_AUTHENTICATE_VERSION,
                SaslAuthenticateRequest(auth_bytes=message),
                timeout_s=timeout_s,
                is_ahead=True,
            )
            if answer.error_code != NONE:
                raise error_for_code(
                    answer.error_code, f"{requester.peer}: {answer.error_message or 'refused'}"
                )
            if not client.is_complete:
                message = await self._call(timeout_s, client.step, bytes(answer.auth_bytes))
            if client.is_complete:
                return answer.session_lifetime_ms
        raise SaslAuthenticationFailed(f"{requester.peer} does not end the authentication")

    async def _call(self, timeout_s: float, work: Callable[..., ResultT], *arguments: object) -> ResultT:
        if self._thread is None:
            return work(*arguments)
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)
        except TimeoutError:
            raise RequestTimedOut(
                f"no ticket or token for {self._mechanism} within {timeout_s:g} s: is its server reachable?"
            ) from None

    def _tls_context(self, settings: TlsSettings) -> ssl.SSLContext:
        """Read again when the files have changed."""
        versions = file_versions(settings)
        if self._context is None or versions != self._versions:
            self._context, self._versions = client_context(settings), versions
        return self._context


def connection_security(
    protocol: str,
    mechanism: str,
    get: Callable[[str], Any],
    jaas: str | None,
    *,
    prefix: str = "",
    jaas_name: str = "sasl.jaas.config",
    user: str | None = None,
    password: str | None = None,
) -> ConnectionSecurity | None:
    """None for PLAINTEXT. `get` returns settings such as ssl.truststore.location; a prefix is for error messages."""
    if protocol == "PLAINTEXT":
        return None
    tls = tls_settings(get, prefix) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL"):
        return ConnectionSecurity(tls, "", None)
    entry = JaasEntry("", {}) if jaas is None else parse_jaas(jaas_name, jaas, mechanism, is_client=True)
    given = {"username": user, "password": password, **entry.options}
    if mechanism == OAUTHBEARER:
        from barnabas.peers.oauth_tokens import new_tokens

        tokens = new_tokens(get, given, jaas_name)
        return ConnectionSecurity(tls, mechanism, lambda host: tokens.new_client(), is_slow=True)
    if get(LOGIN_HANDLER) is not None:
        raise InvalidConfig(f"{LOGIN_HANDLER} has no effect with sasl.mechanism={mechanism}: leave it out")
    if mechanism == GSSAPI:
        new_client = _new_gssapi(get("sasl.kerberos.service.name"), entry, jaas_name, user)
        return ConnectionSecurity(tls, mechanism, new_client, is_slow=True)
    return ConnectionSecurity(tls, mechanism, _new_client(mechanism, given, jaas_name))


def _new_gssapi(
    service: str | None, entry: JaasEntry, jaas_name: str, user: str | None
) -> Callable[[str], SaslClient]:
    if user is not None or not entry.module:
        raise InvalidConfig(
            f"GSSAPI takes {jaas_name} with Krb5LoginModule, and no sasl.username. To log in with a password, set"
            f" sasl.mechanism to one of {', '.join((PLAIN, *SCRAM_HASHES))}"
        )
    from barnabas.security.gssapi import GssapiClient, check_readable, need_library
    from barnabas.security.kerberos_login import initiator

    need_library()
    login = initiator(entry.options, service, jaas_name)
    if login.keytab is not None:
        check_readable(login.keytab)
    return partial(GssapiClient, login)


def _new_client(
    mechanism: str, options: dict[str, str | None], jaas_name: str
) -> Callable[[str], SaslClient]:
    if mechanism not in SUPPORTED:
        raise InvalidConfig(
            f"sasl.mechanism={mechanism} is not supported: set it to one of {', '.join(SUPPORTED)}"
        )
    user, password = options.get("username"), options.get("password")
    if not user or password is None:
        raise InvalidConfig(
            f'{jaas_name} must have username="…" and password="…" for {mechanism} (or set sasl.username and'
            " sasl.password of a client)"
        )
    if mechanism == PLAIN:
        return lambda host: PlainClient(user, password)
    assert mechanism in SCRAM_HASHES
    from barnabas.security.scram import TOKEN_EXTENSION, ScramClient

    is_token = (options.get(TOKEN_EXTENSION) or "").lower() == "true"
    return lambda host: ScramClient(mechanism, user, password, is_token=is_token)
