"""Settings of other clients (Java, librdkafka, kafka-python, aiokafka) and what to use instead: for errors only.

A test asks for every property of librdkafka and every argument of the others that are installed.
"""

from __future__ import annotations

from typing import Final

# The name of the same setting here.
RENAMED: Final = {
    "auto.commit.enable": "enable.auto.commit",
    "batch.num.messages": "batch.size",
    "broker.address.ttl": "metadata.max.age.ms",
    "compression.codec": "compression.type",
    "compression.level": "compression.zstd.level",
    "consume.callback.max.messages": "max.poll.records",
    "error.cb": "on.error",
    "fetch.error.backoff.ms": "retry.backoff.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "interceptors": "interceptor.classes",
    "max.batch.size": "batch.size",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "message.max.bytes": "max.request.size",
    "message.send.max.retries": "retries",
    "message.timeout.ms": "delivery.timeout.ms",
    "metadata.broker.list": "bootstrap.servers",
    "oauth.cb": "sasl.login.callback.handler.class",
    "oauthbearer.token.refresh.cb": "sasl.login.callback.handler.class",
    "partitioner": "partitioner.class",
    "partitioner.cb": "partitioner.class",
    "queue.buffering.max.kbytes": "buffer.memory",
    "queue.buffering.max.messages": "buffer.memory",
    "queue.buffering.max.ms": "linger.ms",
    "rebalance.timeout.ms": "max.poll.interval.ms",
    "request.required.acks": "acks",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauth.token.provider": "sasl.login.callback.handler.class",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.plain.password": "sasl.password",
    "sasl.plain.username": "sasl.username",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.timeout.ms": "request.timeout.ms",
    "ssl.ca": "ssl.truststore.certificates",
    "ssl.ca.certificate.stores": "ssl.truststore.location",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.cafile": "ssl.truststore.location",
    "ssl.certfile": "ssl.keystore.location",
    "ssl.certificate": "ssl.keystore.certificate.chain",
    "ssl.certificate.location": "ssl.keystore.location",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.check.hostname": "ssl.endpoint.identification.algorithm",
    "ssl.ciphers": "ssl.cipher.suites",
    "ssl.key": "ssl.keystore.key",
    "ssl.key.location": "ssl.keystore.location",
    "ssl.key.pem": "ssl.keystore.key",
    "ssl.keyfile": "ssl.keystore.location",
    "ssl.password": "ssl.key.password",
    "topic.metadata.refresh.fast.interval.ms": "retry.backoff.ms",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
}

KERBEROS_NAME: Final = (
    "Kerberos takes sasl.kerberos.service.name and the host of each broker as it is in bootstrap.servers and in the"
    " advertised listeners: leave it out"
)
KERBEROS_KEYTAB: Final = (
    "set sasl.jaas.config, such as 'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true"
    ' keyTab="/etc/ann.keytab" principal="ann@EXAMPLE.COM";\''
)
LOGGING: Final = (
    'set the level of Python\'s logger "barnabas": logging.getLogger("barnabas").setLevel(logging.DEBUG)'
)
VERSIONS: Final = "versions are agreed with each broker: leave it out"

ORDER: Final = "records are sent in the order of their calls: leave it out"
READ_AHEAD: Final = "fetch.max.bytes and max.partition.fetch.bytes bound what is read ahead: leave it out"
RECOVERY: Final = "where no known broker answers, bootstrap.servers are tried again: leave it out"
STORED: Final = "offsets are committed to the broker: leave it out"
WINDOW: Final = "averages and maxima are of the last half minute to minute: leave it out"
VERIFICATION: Final = (
    "certificates are always verified: put the CA of the brokers into ssl.truststore.location. An empty"
    " ssl.endpoint.identification.algorithm accepts any host name"
)
GRANT: Final = "tokens of sasl.oauthbearer.token.endpoint.url are those of client_credentials: leave it out"
UNSECURED: Final = (
    "set sasl.jaas.config, such as 'org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    ' unsecuredLoginStringClaim_sub="ann";\''
)
ASSERTIONS: Final = (
    "tokens come from sasl.oauthbearer.token.endpoint.url with a client id and a secret, or from your own function:"
    " sasl.login.callback.handler.class"
)
HTTPS: Final = (
    "an OAuth server is verified by the certificates of the system: set SSL_CERT_FILE for another CA"
)

# What to do instead.
REPLACED: Final = {
    "allow.auto.create.topics": "a setting of consumers: the broker creates topics if auto.create.topics.enable is set",
    "api.version": VERSIONS,
    "api.version.auto.timeout.ms": VERSIONS,
    "api.version.fallback.ms": VERSIONS,
    "api.version.request": VERSIONS,
    "api.version.request.timeout.ms": VERSIONS,
    "bootstrap.timeout.ms": "calls have timeout_ms, and default.api.timeout.ms is for calls without it",
    "broker.address.family": "all addresses of a name are tried: leave it out",
    "broker.version.fallback": VERSIONS,
    "client.dns.lookup": "all addresses of a name are tried: leave it out",
    "coordinator.query.interval.ms": "the coordinator is looked up when it changes: leave it out",
    "debug": LOGGING,
    "default.offset.commit.callback": "commit_async() takes a callback",
    "default.topic.conf": "settings of topics are settings of the client: set them with the others",
    "delivery.report.only.error": "send() takes on_delivery",
    "dr.cb": "send() takes on_delivery",
    "dr.msg.cb": "send() takes on_delivery",
    "enable.auto.offset.store": "poll() says how far was read; commit(offsets) commits other offsets",
    "enable.gapless.guarantee": "enable.idempotence keeps the order of records: leave it out",
    "enable.incremental.fetch.sessions": "brokers that have fetch sessions are asked for them: leave it out",
    "enable.metrics.push": "metrics are not sent to brokers: call metrics() when you need them",
    "enable.partition.eof": "compare position() with end_offsets(), or see lag()",
    "enable.sasl.oauthbearer.unsecure.jwt": UNSECURED,
    "enable.ssl.certificate.verification": VERIFICATION,
    "fetch.queue.backoff.ms": READ_AHEAD,
    "group.protocol.type": "groups of consumers have the type consumer: leave it out",
    "https.ca.location": HTTPS,
    "https.ca.pem": HTTPS,
    "kafka.client": "a client makes its own connections: leave it out",
    "log.cb": LOGGING,
    "log.connection.close": LOGGING,
    "log.level": LOGGING,
    "log.queue": LOGGING,
    "log.thread.name": LOGGING,
    "logger": LOGGING,
    "loop": "clients of barnabas.aio use the running loop: leave it out",
    "max.in.flight": "a setting of producers: leave it out",
    "max.in.flight.requests.per.connection": "a setting of producers: leave it out",
    "message.copy.max.bytes": "there is no such limit: leave it out",
    "message.max.bytes": "a setting of producers and brokers: leave it out",
    "metadata.recovery.rebootstrap.trigger.ms": RECOVERY,
    "metadata.recovery.strategy": RECOVERY,
    "metric.group.prefix": "metrics() returns metrics by the names of Kafka's: leave it out",
    "metric.reporters": "call metrics() when you need them",
    "metrics.enabled": "metrics are always counted: leave it out",
    "metrics.num.samples": WINDOW,
    "metrics.sample.window.ms": WINDOW,
    "msg.order.cmp": ORDER,
    "offset.commit.cb": "commit_async() takes a callback",
    "offset.store.method": STORED,
    "offset.store.path": STORED,
    "offset.store.sync.interval.ms": STORED,
    "on.commit": "commit_async() takes a callback",
    "on.delivery": "send() takes on_delivery",
    "produce.offset.report": "the future of send() has the offset: leave it out",
    "proxy.url": "there are no proxies: bootstrap.servers and the advertised listeners must be reachable",
    "queue.buffering.backpressure.threshold": "max.in.flight.requests.per.connection limits requests: leave it out",
    "queued.max.messages.kbytes": READ_AHEAD,
    "queued.min.messages": READ_AHEAD,
    "queuing.strategy": ORDER,
    "rebalance.cb": "subscribe() takes a listener",
    "receive.message.max.bytes": "a response is at most as large as fetch.max.bytes and one batch: leave it out",
    "reconnect.backoff.jitter.ms": "reconnect.backoff.ms has jitter already: leave it out",
    "sasl.kerberos.domain.name": KERBEROS_NAME,
    "sasl.kerberos.keytab": KERBEROS_KEYTAB,
    "sasl.kerberos.name": KERBEROS_NAME,
    "sasl.kerberos.principal": KERBEROS_KEYTAB,
    "sasl.oauthbearer.config": UNSECURED,
    "sasl.oauthbearer.extensions": 'sasl.jaas.config takes them, as extension_NAME="value"',
    "sasl.oauthbearer.grant.type": GRANT,
    "sasl.oauthbearer.method": GRANT,
    "selector": "a client has an event loop of asyncio: leave it out",
    "share.acknowledgement.mode": "there are no share groups: leave it out",
    "socket.keepalive.enable": "set connections.max.idle.ms below the limit of your network: leave it out",
    "socket.max.fails": "a request without an answer for request.timeout.ms closes the connection: leave it out",
    "socket.nagle.disable": "Nagle's algorithm is always off: leave it out",
    "socket.options": "set receive.buffer.bytes and send.buffer.bytes",
    "socks5.proxy": "there are no proxies: bootstrap.servers and the advertised listeners must be reachable",
    "ssl.certificate.verify.cb": VERIFICATION,
    "ssl.context": "set ssl.truststore.location, ssl.keystore.location and their types",
    "ssl.crl.location": "lists of revoked certificates are not checked: remove certificates from the trust store",
    "ssl.crlfile": "lists of revoked certificates are not checked: remove certificates from the trust store",
    "statistics.interval.ms": "call metrics() when you need them",
    "stats.cb": "call metrics() when you need them",
    "sticky.partitioning.linger.ms": "records without a key change their partition with the batch: leave it out",
    "throttle.cb": "call metrics() when you need them",
    "topic.blacklist": "subscribe() takes a pattern, which can leave topics out",
    "topic.metadata.propagation.max.ms": "send() waits max.block.ms for a topic, others half a second: leave it out",
    "topic.metadata.refresh.fast.cnt": "metadata is asked for again after retry.backoff.ms: leave it out",
    "topic.metadata.refresh.sparse": "only the topics in use are asked for: leave it out",
    "topics": "call subscribe() or assign()",
}
_BY_OPENSSL: Final = "OpenSSL does this work, and ssl.enabled.protocols has the versions of TLS: leave it out"
_BY_TOKENS: Final = "a token is fetched within 10 s, and renewed after 80 % of its lifetime: leave it out"
_BY_FUNCTION: Final = (
    "sasl.login.callback.handler.class takes a Python function for OAUTHBEARER: leave it out"
)
REPLACED.update(
    {
        **dict.fromkeys(
            (
                "security.providers",
                "ssl.curves.list",
                "ssl.engine.callback.data",
                "ssl.engine.factory.class",
                "ssl.engine.id",
                "ssl.engine.location",
                "ssl.keymanager.algorithm",
                "ssl.protocol",
                "ssl.provider",
                "ssl.providers",
                "ssl.secure.random.implementation",
                "ssl.sigalgs.list",
                "ssl.trustmanager.algorithm",
            ),
            _BY_OPENSSL,
        ),
        **dict.fromkeys(
            (
                "sasl.login.connect.timeout.ms",
                "sasl.login.read.timeout.ms",
                "sasl.login.refresh.buffer.seconds",
                "sasl.login.refresh.min.period.seconds",
                "sasl.login.refresh.window.factor",
                "sasl.login.refresh.window.jitter",
                "sasl.login.retry.backoff.max.ms",
                "sasl.login.retry.backoff.ms",
            ),
            _BY_TOKENS,
        ),
        **dict.fromkeys(
            (
                "background.event.cb",
                "builtin.features",
                "closesocket.cb",
                "connect.cb",
                "consume.cb",
                "enable.random.seed",
                "enabled.events",
                "internal.termination.signal",
                "opaque",
                "open.cb",
                "plugin.library.paths",
                "resolve.cb",
                "socket.blocking.max.ms",
                "socket.cb",
            ),
            "a part of librdkafka, which this client does without: leave it out",
        ),
        **dict.fromkeys(("sasl.client.callback.handler.class", "sasl.login.class"), _BY_FUNCTION),
    }
)


def hint_for(name: str, known: object) -> str | None:
    """What to use instead of a setting of another client; None for a name that nobody has."""
    dotted = name.replace("_", ".").lower()
    renamed = RENAMED.get(dotted)
    if renamed is not None and isinstance(known, dict) and renamed in known:
        extra = " and the type PEM" if "store.location" in renamed else ""
        return f"use {renamed}{extra} ({renamed.replace('.', '_')} as a keyword)"
    if dotted.startswith(("sasl.oauthbearer.assertion.", "sasl.oauthbearer.metadata.")):
        return ASSERTIONS
    if dotted.endswith(".claim.name"):
        return "brokers read the claims of a token: leave it out"
    return REPLACED.get(dotted)


def wrong_argument(kind: str, given: object) -> str:
    """What a client was given in place of settings, and what to write."""
    name = kind.capitalize()
    if not isinstance(given, str):
        return f"{name} takes settings as keywords or as a mapping, and not {given!r}"
    if kind == "consumer" and ":" not in given:
        return (
            f"{name} takes settings, and not the topic {given!r}:"
            f' {name}(bootstrap_servers="localhost:9092", group_id="…"), and then subscribe([{given!r}])'
        )
    return f"{name} takes settings by name, and not {given!r}: {name}(bootstrap_servers={given!r})"
