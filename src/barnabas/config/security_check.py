"""Refuses configurations that ask for security and would not get it.

A broker that ignores a security setting is open by mistake. So a security setting without effect is an error that names
the line to change: a setting that Barnabas does not support, one of TLS without a listener that has TLS, one of a
listener or a mechanism that does not exist, one for ZooKeeper or metrics without them, and a mistyped name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.config.broker_config import ALLOW_WITHOUT_ACL, LISTENER_PREFIX, SUPER_USERS, BrokerConfig
from barnabas.config.broker_settings import broker_settings, nearest_name
from barnabas.config.listener_settings import ListenerSettings
from barnabas.config.listeners import SecurityProtocol
from barnabas.errors import InvalidConfig

_PREFIXES: Final = (
    "ssl.",
    "sasl.",
    "security.",
    "authorizer.",
    "principal.",
    "delegation.token.",
    "password.encoder.",
    "zookeeper.ssl.",
)
_OF_METRICS: Final = ("barnabas.metrics.credentials", "barnabas.metrics.keystore.location")
_OF_ZOOKEEPER: Final = ("barnabas.zookeeper.digest", "zookeeper.set.acl")
_NAMES: Final = frozenset(
    {
        ALLOW_WITHOUT_ACL,
        "connection.failed.authentication.delay.ms",
        "connections.max.reauth.ms",
        "early.start.listeners",
        SUPER_USERS,
        *_OF_METRICS,
        *_OF_ZOOKEEPER,
    }
)
TLS_SETTINGS: Final = frozenset(
    {
        "ssl.cipher.suites",
        "ssl.client.auth",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
        "ssl.allow.dn.changes",
        "ssl.allow.san.changes",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.principal.mapping.rules",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
SASL_SETTINGS: Final = frozenset(
    {
        "connection.failed.authentication.delay.ms",
        "connections.max.reauth.ms",
        "sasl.enabled.mechanisms",
        "sasl.kerberos.principal.to.local.rules",
        "sasl.kerberos.service.name",
        "sasl.mechanism.inter.broker.protocol",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
        "sasl.server.max.receive.size",
    }
)
# Settings of a file for the controller of KRaft, of which there is none here.
_TOKEN_SETTINGS: Final = frozenset(
    {
        "delegation.token.expiry.check.interval.ms",
        "delegation.token.expiry.time.ms",
        "delegation.token.master.key",
        "delegation.token.max.lifetime.ms",
        "delegation.token.secret.key",
    }
)
_OF_CONTROLLERS: Final = frozenset({"sasl.mechanism.controller.protocol"})
# These choose among implementations in Java; OpenSSL does the same work.
_IMPLEMENTATIONS: Final = frozenset(
    {
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "zookeeper.ssl.protocol",
    }
)
# With zookeeper.ssl.client.enable, these have an effect.
_ZOOKEEPER_TLS: Final = frozenset(
    {
        "zookeeper.ssl.endpoint.identification.algorithm",
        *(
            f"zookeeper.ssl.{store}.{what}"
            for store in ("keystore", "truststore")
            for what in ("location", "password", "type")
        ),
    }
)
_ZOOKEEPER_ENABLE: Final = "zookeeper.ssl.client.enable"
_OF_GSSAPI: Final = frozenset({"sasl.kerberos.principal.to.local.rules", "sasl.kerberos.service.name"})
# How Java renews tickets: the Kerberos library has a new ticket whenever one is needed.
_RENEWALS: Final = frozenset(
    {
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
    }
)
# `BrokerConfig` checks these: they have an effect with an authorizer, and are refused without one.
_OF_AUTHORIZERS: Final = frozenset({"authorizer.class.name", SUPER_USERS, ALLOW_WITHOUT_ACL})
_JAAS: Final = "sasl.jaas.config"
_HANDLER: Final = "sasl.server.callback.handler.class"
# What a listener may have for one mechanism.
_OF_MECHANISMS: Final = (_JAAS, _HANDLER, "connections.max.reauth.ms")
_MECHANISMS: Final = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"})
# How like a name of ours must an unknown one be, so that it counts as mistyped.
_LIKENESS: Final = 0.85
# Kafka's own handlers of tokens: what they do is built in.
_HANDLERS: Final = ("OAuthBearerUnsecuredValidatorCallbackHandler", "OAuthBearerValidatorCallbackHandler")
# How passwords are stored that change at run time.
_ENCODER: Final = "password.encoder.secret"
_ALWAYS_USED: Final = ("security.inter.broker.protocol", _ZOOKEEPER_ENABLE)
_WITH_TLS: Final = (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)
_WITH_SASL: Final = (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


def check_security(config: BrokerConfig) -> None:
    """Raises InvalidConfig for the first security setting of the file that would have no effect."""
    for name, text in config.static.items():
        reason = _why_idle(config, name, text)
        if reason is not None:
            raise InvalidConfig(f"{name}: {reason}")


def is_security_setting(name: str) -> bool:
    return name.startswith(_PREFIXES) or name in _NAMES


def is_unsupported(name: str) -> bool:
    """Whether a security setting of Kafka stops the start with any value but its default."""
    return is_security_setting(name) and not (
        name.startswith("password.encoder.")
        or name
        in _OF_CONTROLLERS
        | _IMPLEMENTATIONS
        | _RENEWALS
        | _OF_AUTHORIZERS
        | TLS_SETTINGS
        | SASL_SETTINGS
        | _TOKEN_SETTINGS
        | _ZOOKEEPER_TLS
        or name in (*_ALWAYS_USED, *_OF_METRICS, *_OF_ZOOKEEPER, _JAAS, _HANDLER)
    )


def _why_idle(config: BrokerConfig, name: str, text: str) -> str | None:
    """Why a setting would have no effect; None if it has one, or asks for nothing."""
    protocols = {each.listener_name: each.security_protocol for each in config.endpoints}
    base = name
    if name.startswith(LISTENER_PREFIX):
        listener, _, base = name[len(LISTENER_PREFIX) :].partition(".")
        if listener.upper() in {each.upper() for each in config.controller_listener_names or ()}:
            return None
        own = protocols.get(listener.upper())
        mechanism = ""
        if base not in broker_settings():
            mechanism, base = _of_mechanism(base)
        if not mechanism and not is_security_setting(base):
            return _why_mistyped(base)
        if own is None:
            known = ", ".join(each.lower() for each in protocols)
            return f"there is no listener {listener}. Remove the line, or use one of the listeners {known}"
        if listener != listener.lower():
            return f"write the listener in lower case: {LISTENER_PREFIX}{listener.lower()}.…"
        if mechanism:
            reason = _why_mechanism_idle(config, listener.upper(), own, mechanism, base)
            if reason is not None:
                return reason
        protocols = {listener.upper(): own}
    elif base == _JAAS or base.endswith("." + _JAAS):
        listener = next(iter(protocols)).lower()
        return (
            "a broker uses this setting only for one listener and mechanism. Name it"
            f" {LISTENER_PREFIX}{listener}.MECHANISM.{_JAAS}, with the mechanism in lower case"
        )
    if not is_security_setting(base):
        return None if base in broker_settings() else _why_mistyped(base)
    if base.startswith("password.encoder.") and base in broker_settings():
        return None if base == _ENCODER or _ENCODER in config.static else _without(_ENCODER)
    if base.startswith("zookeeper.") or base in _OF_ZOOKEEPER or base in _OF_METRICS:
        reason = _why_without(config, base, text)
        if reason is not None or base in _ZOOKEEPER_TLS or not base.startswith("zookeeper.ssl."):
            return reason
    reason = _why_unused(base, text, name, protocols)
    if reason is None and base in _OF_GSSAPI and not _has_gssapi(config, protocols):
        row = broker_settings()[base]
        if row.parse(text) != row.setting.default:
            return "no listener has GSSAPI. Add it to sasl.enabled.mechanisms, or remove the line"
    return reason


def _has_gssapi(config: BrokerConfig, protocols: Mapping[str, SecurityProtocol]) -> bool:
    return any(
        "GSSAPI" in ListenerSettings(config, listener).words("sasl.enabled.mechanisms")
        for listener, protocol in protocols.items()
        if protocol in _WITH_SASL
    )


def _of_mechanism(base: str) -> tuple[str, str]:
    """The mechanism and the setting of `plain.sasl.jaas.config`; no mechanism if it is not of this form."""
    mechanism, _, setting = base.partition(".")
    is_setting = setting in _OF_MECHANISMS or is_security_setting(setting)
    return (mechanism, setting) if mechanism.upper() in _MECHANISMS or is_setting else ("", base)


def _why_mechanism_idle(
    config: BrokerConfig, listener: str, protocol: SecurityProtocol, mechanism: str, setting: str
) -> str | None:
    if setting not in _OF_MECHANISMS:
        known = ", ".join(_OF_MECHANISMS)
        return f"a mechanism has no setting {setting}. Correct the line to one of {known}, or remove it"
    if mechanism != mechanism.lower():
        return f"write the mechanism in lower case: {mechanism.lower()}.{setting}"
    if protocol not in _WITH_SASL:
        return None
    own = f"{LISTENER_PREFIX}{listener.lower()}.sasl.enabled.mechanisms"
    row = broker_settings()["sasl.enabled.mechanisms"]
    enabled = row.parse(config.static[own]) if own in config.static else config.values[row.name]
    used = {*enabled} if isinstance(enabled, tuple) else set()
    if mechanism.upper() in used:
        return None
    return (
        f"the mechanism {mechanism.upper()} is not enabled on listener {listener}. Add it to {row.name}"
        f" ({', '.join(sorted(used))}), or remove the line"
    )


def _why_without(config: BrokerConfig, base: str, text: str) -> str | None:
    """For settings of ZooKeeper and of the endpoint for metrics."""
    row = broker_settings().get(base)
    if row is not None and row.parse(text) == row.setting.default:
        return None
    if base in _OF_METRICS:
        return None if config.barnabas_metrics_port >= 0 else _without("barnabas.metrics.port")
    if config.zookeeper_connect is None:
        return _without("zookeeper.connect")
    needs_tls = base.startswith("zookeeper.ssl.") and base != _ZOOKEEPER_ENABLE
    return (
        _without(f"{_ZOOKEEPER_ENABLE}=true")
        if needs_tls and not config.zookeeper_ssl_client_enable
        else None
    )


def _without(needed: str) -> str:
    return f"this has no effect without {needed}. Set that, or remove the line"


def _why_mistyped(name: str) -> str | None:
    """For a name that is no setting: whether it looks like one of security, which the broker would go without."""
    from difflib import get_close_matches

    known = {each for each in broker_settings() if is_security_setting(each)} | _NAMES
    nearest = get_close_matches(name, known, n=1, cutoff=_LIKENESS)
    return f"there is no such setting; did you mean {nearest[0]}? Correct the line" if nearest else None


def _why_unused(base: str, text: str, name: str, protocols: Mapping[str, SecurityProtocol]) -> str | None:
    row = broker_settings().get(base)
    if base in _OF_CONTROLLERS | _IMPLEMENTATIONS | _RENEWALS | _OF_AUTHORIZERS or base in _ALWAYS_USED:
        return None
    is_default = row is not None and row.parse(text) == row.setting.default
    if base in TLS_SETTINGS:
        used_by = [each for each, protocol in protocols.items() if protocol in _WITH_TLS]
        if base == "ssl.client.auth" and name == base:
            # As in Kafka, this one is for listeners without SASL only.
            used_by = [each for each, protocol in protocols.items() if protocol is SecurityProtocol.SSL]
        if used_by or is_default:
            return None
        if base == "ssl.client.auth" and SecurityProtocol.SASL_SSL in protocols.values():
            listener = next(
                each for each, protocol in protocols.items() if protocol is SecurityProtocol.SASL_SSL
            )
            return f"this has no effect on listeners with SASL. Name it {LISTENER_PREFIX}{listener.lower()}.{base}"
        return _no_listener("TLS", "SSL or SASL_SSL", protocols)
    is_own_handler = base == _HANDLER and text.startswith("org.apache.kafka.") and text.endswith(_HANDLERS)
    if base in SASL_SETTINGS or base in _TOKEN_SETTINGS or base == _JAAS or is_own_handler:
        if is_default or any(protocol in _WITH_SASL for protocol in protocols.values()):
            return None
        return _no_listener("SASL", "SASL_SSL or SASL_PLAINTEXT", protocols)
    if is_default:
        return None
    if row is None and base not in _NAMES:
        nearest = nearest_name(base)
        hint = f"; did you mean {nearest}?" if nearest is not None else ""
        return f"there is no such setting{hint}. Correct the line, or remove it"
    return (
        "this security setting is not supported, and the broker does not start without what it asks for. Remove the"
        " line if you do not need it"
    )


def _no_listener(what: str, names: str, protocols: Mapping[str, SecurityProtocol]) -> str:
    shown = ", ".join(f"{listener} ({protocol})" for listener, protocol in protocols.items())
    return (
        f"the setting is for {what}, but no such listener has it: {shown}. Change listeners or"
        f" listener.security.protocol.map to {names}, or remove the line"
    )
