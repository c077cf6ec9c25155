"""Whether a listener may get the keys and certificates of changed settings, as Kafka decides it.

Clients know a broker by its certificate. So a new key store must have a certificate with the same distinguished name,
and with all alternative names of the old one, unless `ssl.allow.dn.changes` and `ssl.allow.san.changes` of the listener
were set when the broker started. A listener without a trust store gets none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.authentication.listener_security import WITH_TLS, listener_tls_settings
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.listener_settings import ListenerSettings
from barnabas.errors import InvalidConfig

if TYPE_CHECKING:
    from barnabas.security.tls import TlsSettings


def check_certificate_changes(before: BrokerConfig, after: BrokerConfig) -> None:
    """Raises InvalidConfig that says what a client would notice, or why the new settings cannot be used."""
    for endpoint in before.endpoints:
        if endpoint.security_protocol not in WITH_TLS:
            continue
        old, new = listener_tls_settings(before, endpoint), listener_tls_settings(after, endpoint)
        if old == new:
            continue
        from barnabas.security.tls import server_context

        try:
            server_context(new)
            _check(old, new, ListenerSettings(before, endpoint.listener_name))
        except InvalidConfig as error:
            raise InvalidConfig(
                f"Listener {endpoint.listener_name} keeps its certificates: {error}"
            ) from None


def _check(old: TlsSettings, new: TlsSettings, settings: ListenerSettings) -> None:
    from barnabas.security.distinguished_name import alternative_names_of, subject_of

    if new.trust_store.is_set and not old.trust_store.is_set:
        raise InvalidConfig(
            "Cannot add SSL truststore to an existing listener for which no truststore was configured."
        )
    try:
        old_certificate = _certificate(old)
    except InvalidConfig:
        # Its file has gone since the broker started: there is nothing to compare with.
        return
    new_certificate = _certificate(new)
    old_name, new_name = subject_of(old_certificate), subject_of(new_certificate)
    if old_name != new_name and not settings["ssl.allow.dn.changes"]:
        raise InvalidConfig(
            f"Keystore DistinguishedName does not match: existing={old_name}, new={new_name}. It may change if"
            f" {settings.spelled('ssl.allow.dn.changes')}=true when the broker starts"
        )
    old_names, new_names = alternative_names_of(old_certificate), alternative_names_of(new_certificate)
    if not set(old_names) <= set(new_names) and not settings["ssl.allow.san.changes"]:
        raise InvalidConfig(
            f"Keystore SubjectAltNames do not match: existing=[{', '.join(old_names)}],"
            f" new=[{', '.join(new_names)}]. They may change if"
            f" {settings.spelled('ssl.allow.san.changes')}=true when the broker starts"
        )


def _certificate(settings: TlsSettings) -> bytes:
    """The first of the chain (DER)."""
    import ssl

    from barnabas.security.key_stores import load_key_store

    end = "-----END CERTIFICATE-----"
    return ssl.PEM_cert_to_DER_cert(
        load_key_store(settings.key_store).chain.partition(end)[0].strip() + f"\n{end}\n"
    )
