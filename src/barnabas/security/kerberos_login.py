"""Who logs in with Kerberos, from the options of Java's Krb5LoginModule in a JAAS entry:

    com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/etc/ann.keytab" principal="ann@REALM";

A keytab or a ticket cache has the keys. Nothing of this asks a KDC or reads a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas.errors import InvalidConfig
from barnabas.security.jaas import GSSAPI as MODULE

SERVICE: Final = "sasl.kerberos.service.name"
# A broker may use all keys of its keytab.
ANY_PRINCIPAL: Final = "*"
_USED: Final = frozenset(
    {"keyTab", "principal", "serviceName", "storeKey", "ticketCache", "useKeyTab", "useTicketCache"}
)
# They tell Java when to ask for a password, what to keep in memory and what to log.
_OF_JAVA: Final = frozenset(
    {
        "clearPass",
        "debug",
        "doNotPrompt",
        "isInitiator",
        "refreshKrb5Config",
        "renewTGT",
        "storePass",
        "tryFirstPass",
        "useFirstPass",
    }
)


class KerberosLogin(NamedTuple):
    """With a keytab, or else with a ticket cache: the one of the environment if it has no name."""

    service: str
    principal: str | None
    keytab: str | None
    cache: str | None = None


def acceptor(options: Mapping[str, str], service: str | None, jaas_name: str) -> KerberosLogin:
    """The login of a broker's listener, which needs the key of its principal. Raises InvalidConfig."""
    login = _login(options, service, jaas_name)
    if login.keytab is None:
        raise InvalidConfig(
            f"{jaas_name}: a broker needs a keytab. Write it as {_example(jaas_name, 'kafka/HOST@REALM')}"
        )
    return login


def initiator(options: Mapping[str, str], service: str | None, jaas_name: str) -> KerberosLogin:
    """The login of a client, or of a broker that is one of another broker. Raises InvalidConfig."""
    login = _login(options, service, jaas_name)
    if login.principal == ANY_PRINCIPAL:
        raise InvalidConfig(
            f'{jaas_name}: principal="*" is for listeners only. Name the principal that logs in'
        )
    return login


def _login(options: Mapping[str, str], service: str | None, jaas_name: str) -> KerberosLogin:
    for name in options:
        if name not in _USED | _OF_JAVA:
            raise InvalidConfig(
                f"{jaas_name}: Krb5LoginModule has no option {name}. It has {', '.join(sorted(_USED))}"
            )
    principal = options.get("principal") or None
    if _is_true(options, "useKeyTab"):
        keytab = options.get("keyTab", "").removeprefix("FILE:")
        if not keytab or principal is None:
            raise InvalidConfig(
                f"{jaas_name}: useKeyTab=true needs keyTab and principal. Write it as"
                f" {_example(jaas_name, 'NAME@REALM')}"
            )
        return KerberosLogin(_service(options, service, jaas_name), principal, keytab)
    if "keyTab" in options:
        raise InvalidConfig(f"{jaas_name}: keyTab has no effect without useKeyTab=true. Add that")
    if not _is_true(options, "useTicketCache"):
        raise InvalidConfig(
            f"{jaas_name} must say where the keys for GSSAPI are: useTicketCache=true, or"
            f" {_example(jaas_name, 'NAME@REALM')}"
        )
    return KerberosLogin(
        _service(options, service, jaas_name), principal, None, options.get("ticketCache") or None
    )


def _service(options: Mapping[str, str], service: str | None, jaas_name: str) -> str:
    named = options.get("serviceName") or None
    if named and service and named != service:
        raise InvalidConfig(
            f"{SERVICE}={service} differs from serviceName={named} in {jaas_name}. Remove one of them"
        )
    found = named or service
    if not found:
        raise InvalidConfig(
            f"{SERVICE} is missing: it is the first part of the brokers' principal. Set it, usually to kafka"
        )
    if any(mark in found for mark in "/@"):
        raise InvalidConfig(
            f"{SERVICE}={found} must be the part of the principal before the /, such as kafka"
        )
    return found


def _is_true(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "").lower() == "true"


def _example(jaas_name: str, principal: str) -> str:
    return (
        f'{jaas_name}={MODULE} required useKeyTab=true storeKey=true keyTab="FILE" principal="{principal}";'
    )
