"""franz-go and KafkaJS with SASL and TLS: they produce, consume, and are refused a wrong password or certificate."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet

from barnabas.testing import Broker
from tests.interop.programs import available, franz_go, kafkajs, run
from tests.security.certificates import tls_settings_of, write_certificates

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module", params=["sasl_plaintext", "sasl_ssl"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(security=request.param, users={"ann": "secret"}) as running:
        yield running
        assert "Traceback" not in running.log()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("program", [franz_go, kafkajs])
def test_log_in(broker: Broker, tmp_path: Path, program: Callable[[], list[str]], mechanism: str) -> None:
    arguments = [broker.bootstrap, f"{program.__name__}-{mechanism}", mechanism, "ann", "secret"]
    authority = broker.security_settings.get("ssl.truststore.certificates")
    if authority is not None:
        path = tmp_path / "ca.pem"
        path.write_text(authority)
        arguments.append(str(path))
    assert run([*available(program), *arguments]) == "all steps hold\n"


@pytest.mark.parametrize("program", [franz_go, kafkajs])
def test_tokens(tmp_path: Path, program: Callable[[], list[str]]) -> None:
    key = ECKey.generate_key("P-256", {"kid": "one"})
    keys = tmp_path / "jwks.json"
    keys.write_text(json.dumps(KeySet([key]).as_dict(private=False)))
    now_s = int(time.time())
    token = jwt.encode({"alg": "ES256", "kid": "one"}, {"sub": "a", "iat": now_s, "exp": now_s + 600}, key)
    with Broker(
        security="sasl_plaintext",
        sasl_enabled_mechanisms="OAUTHBEARER",
        sasl_oauthbearer_jwks_endpoint_url=keys.as_uri(),
    ) as running:
        arguments = [running.bootstrap, f"{program.__name__}-token", "OAUTHBEARER", "-", token]
        assert run([*available(program), *arguments]) == "all steps hold\n"


@pytest.mark.parametrize("program", [franz_go, kafkajs])
def test_certificates_of_clients(tmp_path: Path, program: Callable[[], list[str]]) -> None:
    write_certificates(tmp_path)
    tls: dict[str, Any] = {name.replace(".", "_"): value for name, value in tls_settings_of(tmp_path).items()}
    with Broker(security="ssl", ssl_client_auth="required", **tls) as running:
        arguments = [
            running.bootstrap,
            f"{program.__name__}-mutual",
            "SSL",
            str(tmp_path / "ann.pem"),
            "right",
        ]
        assert run([*available(program), *arguments, str(tmp_path / "ca.pem")]) == "all steps hold\n"
