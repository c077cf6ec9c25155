"""One listener with TLS, SASL or both: the contexts of its connections and who their clients are."""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.authentication.authenticator import AuthenticationSettings, Authenticator
from barnabas.broker.authentication.counts import AuthenticationCounts
from barnabas.broker.authentication.issuer_keys import IssuerKeys
from barnabas.broker.authentication.mechanisms import new_servers
from barnabas.broker.requests.session import ClientSession
from barnabas.clock import Clock
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.listener_settings import ListenerSettings
from barnabas.config.listeners import Endpoint, SecurityProtocol
from barnabas.errors import InvalidConfig, SaslAuthenticationFailed
from barnabas.net.channel import Channel
from barnabas.net.connection import Connection, FrameHandler
from barnabas.security.principal import ANONYMOUS, USER, Principal

if TYPE_CHECKING:
    import ssl

    from barnabas.broker.authentication.renewed_context import RenewedContext
    from barnabas.broker.authentication.slow_server import NewSlowServer
    from barnabas.coordination.metadata.image import MetadataImage
    from barnabas.coordination.writing.delegation_tokens import DelegationTokens
    from barnabas.security.principal_mapping import PrincipalMapping
    from barnabas.security.sasl import NewServer
    from barnabas.security.tls import TlsSettings

log = logging.getLogger(__name__)

WITH_TLS: Final = (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)
WITH_SASL: Final = (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class ListenerParts(NamedTuple):
    """What a listener needs before it is bound, and what was found to be right then."""

    tls: RenewedContext | None
    keys: IssuerKeys


class ListenerSecurity:
    def __init__(
        self,
        config: BrokerConfig,
        endpoint: Endpoint,
        parts: ListenerParts,
        image: Callable[[], MetadataImage],
        clock: Clock,
        loop: AbstractEventLoop,
        handler: FrameHandler,
        tokens: DelegationTokens | None = None,
    ) -> None:
        self._endpoint = endpoint
        self.counts = AuthenticationCounts(endpoint.listener_name)
        self._delegation_tokens = tokens
        self._tls = parts.tls
        self._keys = parts.keys
        self._image = image
        self._clock = clock
        self._loop = loop
        self._handler = handler
        settings = ListenerSettings(config, endpoint.listener_name)
        self._mapping: PrincipalMapping | None = None
        if endpoint.security_protocol is SecurityProtocol.SSL:
            self._mapping = principal_mapping(settings)
        self._sasl: AuthenticationSettings | None = None
        if endpoint.security_protocol in WITH_SASL:
            # Settings made at run time that cannot be used do not keep a broker from starting.
            self._sasl = self._changed_sasl(config) or self._sasl_settings(config.only_static())
        self._change_tls(config)

    def change(self, config: BrokerConfig) -> None:
        """Uses changed settings for the next connections, if they can be used."""
        self._change_tls(config)
        if self._sasl is not None:
            self._sasl = self._changed_sasl(config) or self._sasl

    def _change_tls(self, config: BrokerConfig) -> None:
        if self._tls is not None:
            self._tls.change(listener_tls_settings(config, self._endpoint))

    def _changed_sasl(self, config: BrokerConfig) -> AuthenticationSettings | None:
        try:
            return self._sasl_settings(config)
        except InvalidConfig as error:
            log.error(
                "Listener %s keeps its users and mechanisms; the settings made at run time cannot be used: %s",
                *(self._endpoint.listener_name, error),
            )
            return None

    def tls_context(self) -> ssl.SSLContext | None:
        return None if self._tls is None else self._tls.context()

    def handshake_failed(self) -> None:
        self.counts.fail(is_again=False)

    def begin(self, connection: Connection, channel: Channel) -> None:
        host = connection.peer.rpartition(":")[0].strip("[]")
        try:
            principal = self._principal(channel)
        except SaslAuthenticationFailed:
            self.counts.fail(is_again=False)
            raise
        session = ClientSession(listener=self._endpoint.listener_name, host=host, principal=principal)
        connection.context = session
        if self._sasl is None:
            self.counts.succeed(is_again=False, can_again=False)
        if self._sasl is not None:
            session.authentication = Authenticator(
                connection, session, self._sasl, self._handler, self._clock, self._loop.call_later
            )

    def _principal(self, channel: Channel) -> Principal:
        """From the client's certificate, on a listener without SASL."""
        if self._mapping is None:
            return ANONYMOUS
        from barnabas.net.tls_channel import TlsChannel
        from barnabas.security.distinguished_name import subject_of

        assert isinstance(channel, TlsChannel)
        certificate = channel.peer_certificate()
        if certificate is None:
            return ANONYMOUS
        subject = subject_of(certificate)
        name = self._mapping.name_of(subject)
        if name is None:
            raise SaslAuthenticationFailed(
                f"no rule of ssl.principal.mapping.rules matches the subject {subject}"
            )
        return Principal(USER, name)

    def _sasl_settings(self, config: BrokerConfig) -> AuthenticationSettings:
        settings = ListenerSettings(config, self._endpoint.listener_name)
        servers = new_servers(
            settings, self._image, self._clock.now_ms, self._delegation_tokens, keys=self._keys
        )
        return _authentication_settings(settings, servers, self.counts)


def _authentication_settings(
    settings: ListenerSettings, servers: Mapping[str, NewServer | NewSlowServer], counts: AuthenticationCounts
) -> AuthenticationSettings:
    config = settings.config
    delay_ms = config.values["connection.failed.authentication.delay.ms"]
    assert isinstance(delay_ms, int)
    return AuthenticationSettings(
        servers=servers,
        max_receive_bytes=settings.integer("sasl.server.max.receive.size"),
        max_reauth_ms={
            each: settings.integer_of_mechanism(each, "connections.max.reauth.ms") for each in servers
        },
        failure_delay_s=delay_ms / 1_000,
        max_frame_bytes=config.socket_request_max_bytes,
        counts=counts,
    )


def check_sasl(config: BrokerConfig, endpoint: Endpoint, keys: IssuerKeys) -> None:
    """Raises InvalidConfig that names a setting if clients could not log in to the listener."""

    def no_image() -> MetadataImage:
        raise AssertionError("nobody logs in yet")

    if endpoint.security_protocol in WITH_SASL:
        settings = ListenerSettings(config, endpoint.listener_name)
        servers = new_servers(settings, no_image, lambda: 0, keys=keys)
        _authentication_settings(settings, servers, AuthenticationCounts(endpoint.listener_name))


def prepare_listener(
    config: BrokerConfig, endpoint: Endpoint, monotonic_s: Callable[[], float]
) -> ListenerParts:
    """Reads certificates and keys. Raises InvalidConfig, also if the mechanisms of a listener could not be used."""
    keys = IssuerKeys()
    check_sasl(config, endpoint, keys)
    keys.may_wait = False
    if endpoint.security_protocol not in WITH_TLS:
        return ListenerParts(None, keys)
    if endpoint.security_protocol is SecurityProtocol.SSL:
        principal_mapping(ListenerSettings(config, endpoint.listener_name))
    from barnabas.broker.authentication.renewed_context import RenewedContext

    settings = listener_tls_settings(config, endpoint)
    return ListenerParts(RenewedContext(f"Listener {endpoint.listener_name}", settings, monotonic_s), keys)


def principal_mapping(settings: ListenerSettings) -> PrincipalMapping:
    from barnabas.security.principal_mapping import PrincipalMapping

    return PrincipalMapping(settings.text("ssl.principal.mapping.rules") or "")


def listener_tls_settings(config: BrokerConfig, endpoint: Endpoint) -> TlsSettings:
    from barnabas.security.tls import tls_settings

    settings = ListenerSettings(config, endpoint.listener_name)
    name = "ssl.client.auth"
    client_auth = settings.text(name) or "none"
    if endpoint.security_protocol is SecurityProtocol.SASL_SSL and not settings.has_own(name):
        # As in Kafka: a listener with SASL wants certificates only if its own setting asks for them.
        client_auth = "none"
    return tls_settings(settings.__getitem__, settings.own_prefix("ssl."))._replace(client_auth=client_auth)
