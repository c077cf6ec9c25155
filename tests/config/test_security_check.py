"""A configuration that asks for security and would not get it is refused, with the line to change."""

from __future__ import annotations

import pytest

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.security_check import check_security
from barnabas.errors import InvalidConfig

PLAINTEXT = {"listeners": "PLAINTEXT://localhost:9092"}
SSL = {"listeners": "SSL://localhost:9093,PLAINTEXT://localhost:9092"}
SASL = {"listeners": "SASL_PLAINTEXT://localhost:9094", "security.inter.broker.protocol": "SASL_PLAINTEXT"}
PLAIN = {**SASL, "sasl.enabled.mechanisms": "PLAIN"}
ZOOKEEPER = {**PLAINTEXT, "zookeeper.connect": "localhost:2181", "broker.id": "1"}
ZOOKEEPER_TLS = {**ZOOKEEPER, "zookeeper.ssl.client.enable": "true"}
SASL_SSL = {"listeners": "SASL_SSL://localhost:9094", "security.inter.broker.protocol": "SASL_SSL"}


@pytest.mark.parametrize(
    ("listeners", "name", "text", "says"),
    [
        (PLAINTEXT, "ssl.keystore.location", "k.pem", "no such listener has it: PLAINTEXT"),
        (PLAINTEXT, "ssl.client.auth", "required", "Change listeners"),
        (PLAINTEXT, "sasl.enabled.mechanisms", "PLAIN", "SASL_SSL or SASL_PLAINTEXT"),
        (SSL, "sasl.enabled.mechanisms", "SCRAM-SHA-512", "SASL_SSL or SASL_PLAINTEXT"),
        (SSL, "connections.max.reauth.ms", "1000", "SASL"),
        (SASL, "ssl.keystore.location", "k.pem", "SSL or SASL_SSL"),
        (SASL_SSL, "ssl.client.auth", "required", "Name it listener.name.sasl_ssl.ssl.client.auth"),
        (SASL, "sasl.jaas.config", "x", "Name it listener.name.sasl_plaintext.MECHANISM.sasl.jaas.config"),
        (SSL, "listener.name.ssl.sasl.enabled.mechanisms", "PLAIN", "no such listener has it: SSL"),
        (SSL, "listener.name.plaintext.ssl.keystore.location", "k.pem", "no such listener"),
        (SSL, "listener.name.other.ssl.keystore.location", "k.pem", "there is no listener other"),
        (SASL, "listener.name.sasl_ssl.plain.sasl.jaas.config", "x", "there is no listener sasl_ssl"),
        (SSL, "ssl.keystore.locaton", "k.pem", "did you mean ssl.keystore.location"),
        (SSL, "ssl.engine.factory.class", "com.example.Factory", "not supported"),
        (SSL, "principal.builder.class", "com.example.Builder", "not supported"),
        (PLAIN, "sasl.kerberos.principal.to.local.rules", "RULE:[1:$1]", "no listener has GSSAPI"),
        (PLAIN, "sasl.kerberos.service.name", "kafka", "no listener has GSSAPI"),
        (SSL, "sasl.kerberos.service.name", "kafka", "SASL_SSL or SASL_PLAINTEXT"),
        (SASL, "sasl.server.callback.handler.class", "com.example.Handler", "not supported"),
        (SASL, "security.providers", "com.example.Provider", "not supported"),
        (
            PLAIN,
            "listener.name.sasl_plaintext.plain.sasl.jaas.conifg",
            "x",
            "has no setting sasl.jaas.conifg",
        ),
        (PLAIN, "listener.name.sasl_plaintext.plian.sasl.jaas.config", "x", "PLIAN is not enabled"),
        (
            PLAIN,
            "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config",
            "x",
            "OAUTHBEARER is not enabled",
        ),
        (PLAIN, "listener.name.sasl_plaintext.scram-sha-256.connections.max.reauth.ms", "9", "not enabled"),
        (PLAIN, "listener.name.sasl_plaintext.PLAIN.sasl.jaas.config", "x", "lower case: plain.sasl"),
        (PLAIN, "listener.name.SASL_PLAINTEXT.plain.sasl.jaas.config", "x", "lower case: listener.name.sasl"),
        (
            PLAIN,
            "listener.name.sasl_plaintext.plain.sasl.login.callback.handler.class",
            "x",
            "has no setting sasl.login",
        ),
        (SSL, "listener.name.ssl.sl.keystore.location", "k.pem", "did you mean ssl.keystore.location"),
        (PLAINTEXT, "super.user", "User:ann", "did you mean super.users"),
        (PLAINTEXT, "allow.everyone.if.no.acl.foud", "true", "did you mean allow.everyone.if.no.acl.found"),
        (PLAINTEXT, "connection.max.reauth.ms", "1000", "did you mean connections.max.reauth.ms"),
        (PLAINTEXT, "zookeeper.ssl.client.enable", "true", "without zookeeper.connect"),
        (PLAINTEXT, "zookeeper.set.acl", "true", "without zookeeper.connect"),
        (PLAINTEXT, "barnabas.zookeeper.digest", "a:b", "without zookeeper.connect"),
        (ZOOKEEPER, "zookeeper.ssl.keystore.location", "k.pem", "without zookeeper.ssl.client.enable=true"),
        (ZOOKEEPER, "zookeeper.ssl.truststore.location", "k.pem", "without zookeeper.ssl.client.enable=true"),
        (ZOOKEEPER_TLS, "zookeeper.ssl.cipher.suites", "TLS_AES_128_GCM_SHA256", "not supported"),
        (ZOOKEEPER_TLS, "zookeeper.ssl.enabled.protocols", "TLSv1.3", "not supported"),
        (ZOOKEEPER_TLS, "zookeeper.ssl.crl.enable", "true", "not supported"),
        (ZOOKEEPER_TLS, "zookeeper.ssl.ocsp.enable", "true", "not supported"),
        (ZOOKEEPER_TLS, "zookeeper.ssl.truststore.locaton", "k.pem", "did you mean"),
        (PLAINTEXT, "password.encoder.iterations", "5000", "without password.encoder.secret"),
        (PLAINTEXT, "password.encoder.secrets", "x", "did you mean password.encoder.secret"),
        (PLAINTEXT, "barnabas.metrics.credentials", "a:b", "without barnabas.metrics.port"),
        (PLAINTEXT, "barnabas.metrics.keystore.location", "k.pem", "without barnabas.metrics.port"),
    ],
)
def test_refused(listeners: dict[str, str], name: str, text: str, says: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        check_security(BrokerConfig({**listeners, name: text}))
    assert str(caught.value).startswith(f"{name}: ")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("listeners", "name", "text"),
    [
        (PLAINTEXT, "ssl.client.auth", "none"),
        (PLAINTEXT, "sasl.enabled.mechanisms", "GSSAPI"),
        (PLAINTEXT, "security.inter.broker.protocol", "PLAINTEXT"),
        (PLAINTEXT, "authorizer.class.name", ""),
        (PLAINTEXT, "num.partitions", "3"),
        (PLAINTEXT, "some.plugin.setting", "x"),
        (SSL, "ssl.keystore.location", "k.pem"),
        (SSL, "listener.name.ssl.ssl.client.auth", "required"),
        (SSL, "ssl.protocol", "TLSv1.2"),
        (PLAIN, "listener.name.sasl_plaintext.plain.sasl.jaas.config", "x"),
        (PLAIN, "listener.name.sasl_plaintext.plain.connections.max.reauth.ms", "1000"),
        (PLAIN, "listener.name.sasl_plaintext.some.plugin.setting", "x"),
        (PLAIN, "listener.name.sasl_plaintext.max.connections", "10"),
        (ZOOKEEPER, "zookeeper.ssl.crl.enable", "false"),
        (ZOOKEEPER, "password.encoder.secret", "x"),
        (ZOOKEEPER, "barnabas.zookeeper.digest", "a:b"),
        (ZOOKEEPER_TLS, "zookeeper.ssl.truststore.location", "k.pem"),
        (ZOOKEEPER_TLS, "zookeeper.ssl.endpoint.identification.algorithm", ""),
        (ZOOKEEPER_TLS, "zookeeper.ssl.protocol", "TLSv1.2"),
        ({**PLAINTEXT, "barnabas.metrics.port": "0"}, "barnabas.metrics.credentials", "a:b"),
        (SASL, "sasl.kerberos.service.name", "kafka"),
        (PLAIN, "sasl.kerberos.principal.to.local.rules", "DEFAULT"),
        (SASL, "sasl.kerberos.ticket.renew.jitter", "0.1"),
        (SASL, "sasl.mechanism.inter.broker.protocol", "PLAIN"),
        (SASL_SSL, "ssl.keystore.location", "k.pem"),
        (SASL_SSL, "listener.name.sasl_ssl.ssl.client.auth", "required"),
        (SASL_SSL, "connections.max.reauth.ms", "3600000"),
    ],
)
def test_accepted(listeners: dict[str, str], name: str, text: str) -> None:
    check_security(BrokerConfig({**listeners, name: text}))


def test_settings_of_a_controller_are_not_for_this_broker() -> None:
    check_security(
        BrokerConfig(
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "listeners": "SASL_SSL://localhost:9094,CONTROLLER://localhost:9095",
                "controller.listener.names": "CONTROLLER",
                "inter.broker.listener.name": "SASL_SSL",
                "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:SASL_PLAINTEXT",
                "sasl.mechanism.controller.protocol": "PLAIN",
                "listener.name.controller.plain.sasl.jaas.config": "x",
            }
        )
    )
