"""A query on a broker with TLS and SASL: the settings of the client begin with `kafka.`, as in Spark's own format."""

from __future__ import annotations

import pytest

from barnabas.errors import InvalidConfig, SaslAuthenticationFailed
from barnabas.spark.topics.options import parse_options
from barnabas.spark.topics.sink_options import parse_sink_options
from barnabas.testing import Broker
from tests.spark.topic_reading import fill, reader, rows


@pytest.mark.slow
def test_reading_with_a_password() -> None:
    with Broker(security="sasl_ssl", users={"ann": "secret"}, topics={"t": 2}) as broker:
        fill(broker, "t", [3, 2])
        security = {f"kafka__{name}": value for name, value in broker.security_settings.items()}
        found = rows(reader(broker, "t", **security))
        assert sorted(row["value"] for row in found) == [b"0-0", b"0-1", b"0-2", b"1-0", b"1-1"]
        security["kafka__sasl.jaas.config"] = security["kafka__sasl.jaas.config"].replace("secret", "wrong")
        with pytest.raises(SaslAuthenticationFailed):
            rows(reader(broker, "t", **security))


def test_options_without_effect_are_refused() -> None:
    options = {"kafka.bootstrap.servers": "localhost:9092", "kafka.ssl.truststore.location": "/none"}
    with pytest.raises(InvalidConfig, match=r"kafka\.ssl\.truststore\.location has no effect"):
        parse_options({**options, "subscribe": "t"})
    with pytest.raises(InvalidConfig, match=r"kafka\.ssl\.truststore\.location has no effect"):
        parse_sink_options({**options, "topic": "t"})
