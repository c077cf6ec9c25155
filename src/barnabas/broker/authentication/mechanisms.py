"""The SASL mechanisms of a listener, from its settings and the credentials in the metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas.config.listener_settings import ListenerSettings
from barnabas.errors import InvalidConfig
from barnabas.security.jaas import PLAIN as PLAIN_MODULE
from barnabas.security.jaas import parse_jaas
from barnabas.security.sasl import GSSAPI, OAUTHBEARER, PLAIN, SCRAM_HASHES, SUPPORTED, NewServer, PlainServer

if TYPE_CHECKING:
    from barnabas.broker.authentication.issuer_keys import IssuerKeys
    from barnabas.broker.authentication.slow_server import NewSlowServer
    from barnabas.coordination.metadata.image import MetadataImage
    from barnabas.coordination.writing.delegation_tokens import DelegationTokens

_ENABLED: Final = "sasl.enabled.mechanisms"


def enabled_mechanisms(settings: ListenerSettings) -> tuple[str, ...]:
    """Raises InvalidConfig if one of them cannot be used."""
    enabled = settings.words(_ENABLED)
    name = settings.spelled(_ENABLED)
    known = ", ".join(SUPPORTED)
    for mechanism in enabled:
        if mechanism not in SUPPORTED:
            raise InvalidConfig(
                f"{name}={','.join(enabled)}: the mechanism {mechanism} is not supported for listener"
                f" {settings.listener}. Set {name} to some of {known}"
            )
    if not enabled:
        raise InvalidConfig(f"{name} is empty: listener {settings.listener} needs some of {known}")
    return enabled


def new_servers(
    settings: ListenerSettings,
    image: Callable[[], MetadataImage],
    now_ms: Callable[[], int],
    tokens: DelegationTokens | None = None,
    *,
    keys: IssuerKeys,
) -> dict[str, NewServer | NewSlowServer]:
    """By mechanism. The keys of an issuer that are known already are used again.

    Raises InvalidConfig that names the setting to change.
    """
    servers: dict[str, NewServer | NewSlowServer] = {}
    for mechanism in enabled_mechanisms(settings):
        if mechanism == PLAIN:
            servers[mechanism] = partial(PlainServer, plain_passwords(settings))
        elif mechanism == OAUTHBEARER:
            from barnabas.broker.authentication.oauthbearer import new_oauthbearer

            servers[mechanism] = new_oauthbearer(settings, now_ms, keys)
        elif mechanism == GSSAPI:
            from barnabas.broker.authentication.gssapi import new_gssapi

            servers[mechanism] = new_gssapi(settings)
        else:
            assert mechanism in SCRAM_HASHES
            jaas = settings.jaas(mechanism)
            if jaas is not None:
                parse_jaas(settings.jaas_name(mechanism), jaas, mechanism)
            from barnabas.broker.authentication.scram_accounts import ScramAccounts

            servers[mechanism] = ScramAccounts(mechanism, image, tokens).new_server
    return servers


def plain_passwords(settings: ListenerSettings) -> Mapping[str, str]:
    """The users of PLAIN are in the settings of the listener, as in Kafka."""
    name = settings.jaas_name(PLAIN)
    jaas = settings.jaas(PLAIN)
    example = f'{name}={PLAIN_MODULE} required user_ann="PASSWORD";'
    if jaas is None:
        raise InvalidConfig(f"{name} is missing: it has the users of PLAIN, such as {example}")
    users = parse_jaas(name, jaas, PLAIN).users()
    if not users:
        raise InvalidConfig(f"{name} names no user, so nobody could log in; write it as {example}")
    return users
