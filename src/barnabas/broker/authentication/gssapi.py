"""GSSAPI of a listener, by Kafka's settings `sasl.kerberos.…` and its JAAS entry."""

from __future__ import annotations

from functools import partial

from barnabas.broker.authentication.slow_server import NewSlowServer, SaslThreads, SlowServer
from barnabas.config.listener_settings import ListenerSettings
from barnabas.errors import InvalidConfig
from barnabas.security.gssapi import GssapiServer, accepting_credentials, default_realm, need_library
from barnabas.security.jaas import GSSAPI as MODULE
from barnabas.security.jaas import parse_jaas
from barnabas.security.kerberos_login import SERVICE, acceptor
from barnabas.security.kerberos_names import SETTING, KerberosNames
from barnabas.security.sasl import GSSAPI


def new_gssapi(settings: ListenerSettings) -> NewSlowServer:
    """Reads the keytab, so that a missing key shows at the start. Raises InvalidConfig that names the setting."""
    name = settings.jaas_name(GSSAPI)
    jaas = settings.jaas(GSSAPI)
    if jaas is None:
        raise InvalidConfig(
            f"{name} is missing: it names the keytab of GSSAPI, such as {name}={MODULE} required useKeyTab=true"
            ' storeKey=true keyTab="/etc/kafka.keytab" principal="kafka/HOST@REALM"; For users with passwords, set'
            " sasl.enabled.mechanisms to SCRAM-SHA-512: its default is GSSAPI"
        )
    need_library()
    login = acceptor(parse_jaas(name, jaas).options, settings.text(SERVICE), name)
    names = KerberosNames(settings.words(SETTING), default_realm())
    new_server = partial(GssapiServer, accepting_credentials(login, name), names)
    return partial(SlowServer, SaslThreads(), new_server)
