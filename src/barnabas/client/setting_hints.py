"""Settings of other clients (Java, librdkafka, kafka-python, aiokafka) and what to use instead: for errors only."""

from __future__ import annotations

from typing import Final

# The name of the same setting here.
RENAMED: Final = {
    "batch.num.messages": "batch.size",
    "broker.address.ttl": "metadata.max.age.ms",
    "compression.codec": "compression.type",
    "compression.level": "compression.zstd.level",
    "error.cb": "on.error",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "max.batch.size": "batch.size",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "message.max.bytes": "max.request.size",
    "message.send.max.retries": "retries",
    "message.timeout.ms": "delivery.timeout.ms",
    "metadata.broker.list": "bootstrap.servers",
    "partitioner": "partitioner.class",
    "queue.buffering.max.kbytes": "buffer.memory",
    "queue.buffering.max.messages": "buffer.memory",
    "queue.buffering.max.ms": "linger.ms",
    "rebalance.timeout.ms": "max.poll.interval.ms",
    "request.required.acks": "acks",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauth.token.provider": "sasl.login.callback.handler.class",
    "sasl.plain.password": "sasl.password",
    "sasl.plain.username": "sasl.username",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.timeout.ms": "request.timeout.ms",
    "ssl.cafile": "ssl.truststore.location",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.check.hostname": "ssl.endpoint.identification.algorithm",
    "ssl.ciphers": "ssl.cipher.suites",
    "ssl.certfile": "ssl.keystore.location",
    "ssl.certificate.location": "ssl.keystore.location",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.location",
    "ssl.key.pem": "ssl.keystore.key",
    "ssl.keyfile": "ssl.keystore.location",
    "ssl.password": "ssl.key.password",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
}

KERBEROS: Final = "Kerberos (GSSAPI) is not supported: use SCRAM-SHA-512 or OAUTHBEARER over TLS"

# What to do instead.
REPLACED: Final = {
    "allow.auto.create.topics": "a setting of consumers: the broker creates topics if auto.create.topics.enable is set",
    "api.version": "versions are agreed with each broker: leave it out",
    "api.version.auto.timeout.ms": "versions are agreed with each broker: leave it out",
    "api.version.request": "versions are agreed with each broker: leave it out",
    "broker.version.fallback": "versions are agreed with each broker: leave it out",
    "bootstrap.timeout.ms": "calls have timeout_ms, and default.api.timeout.ms is for calls without it",
    "client.dns.lookup": "all addresses of a name are tried: leave it out",
    "default.offset.commit.callback": "commit_async() takes a callback",
    "enable.auto.offset.store": "poll() says how far was read; commit(offsets) commits other offsets",
    "enable.partition.eof": "compare position() with end_offsets(), or see lag()",
    "enable.incremental.fetch.sessions": "brokers that have fetch sessions are asked for them: leave it out",
    "kafka.client": "a client makes its own connections: leave it out",
    "loop": "clients of barnabas.aio use the running loop: leave it out",
    "max.in.flight.requests.per.connection": "a setting of producers: leave it out",
    "metric.group.prefix": "metrics() returns metrics by the names of Kafka's: leave it out",
    "metric.reporters": "call metrics() when you need them",
    "metrics.enabled": "metrics are always counted: leave it out",
    "metrics.num.samples": "metrics() returns totals: leave it out",
    "metrics.sample.window.ms": "metrics() returns totals: leave it out",
    "on.commit": "commit_async() takes a callback",
    "on.delivery": "send() takes on_delivery",
    "proxy.url": "there are no proxies: bootstrap.servers and the advertised listeners must be reachable",
    "rebalance.cb": "subscribe() takes a listener",
    "receive.message.max.bytes": "a response is at most as large as fetch.max.bytes and one batch: leave it out",
    "sasl.kerberos.domain.name": KERBEROS,
    "sasl.kerberos.name": KERBEROS,
    "sasl.kerberos.service.name": KERBEROS,
    "selector": "a client has an event loop of asyncio: leave it out",
    "socket.options": "set receive.buffer.bytes and send.buffer.bytes",
    "socks5.proxy": "there are no proxies: bootstrap.servers and the advertised listeners must be reachable",
    "ssl.context": "set ssl.truststore.location, ssl.keystore.location and their types",
    "ssl.crlfile": "lists of revoked certificates are not checked: remove certificates from the trust store",
    "statistics.interval.ms": "call metrics() when you need them",
    "stats.cb": "call metrics() when you need them",
    "throttle.cb": "call metrics() when you need them",
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
                "ssl.engine.factory.class",
                "ssl.keymanager.algorithm",
                "ssl.protocol",
                "ssl.provider",
                "ssl.secure.random.implementation",
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
