"""The delegation tokens of the cluster, if the broker has the key that makes their secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.listener_settings import ListenerSettings
from barnabas.security.sasl import SCRAM_HASHES
from barnabas.server.cluster import Cluster
from barnabas.server.environment import Environment

if TYPE_CHECKING:
    from barnabas.coordination.writing.delegation_tokens import DelegationTokens


def _mechanisms(config: BrokerConfig) -> tuple[str, ...]:
    """The SCRAM mechanisms of all listeners."""
    enabled = {
        each
        for endpoint in config.endpoints
        for each in ListenerSettings(config, endpoint.listener_name).words("sasl.enabled.mechanisms")
    }
    return tuple(each for each in SCRAM_HASHES if each in enabled)


async def open_tokens(cluster: Cluster, environment: Environment) -> DelegationTokens | None:
    values = cluster.settings.current.values
    # The second is the name in older files.
    key = values["delegation.token.secret.key"] or values["delegation.token.master.key"]
    if not key:
        return None
    from barnabas.coordination.writing.delegation_tokens import DelegationTokens, TokenSettings

    max_lifetime_ms = values["delegation.token.max.lifetime.ms"]
    expiry_time_ms = values["delegation.token.expiry.time.ms"]
    check_interval_ms = values["delegation.token.expiry.check.interval.ms"]
    assert isinstance(max_lifetime_ms, int)
    assert isinstance(expiry_time_ms, int)
    assert isinstance(check_interval_ms, int)
    settings = TokenSettings(
        secret_key=str(key).encode(),
        max_lifetime_ms=max_lifetime_ms,
        expiry_time_ms=expiry_time_ms,
        expiry_check_interval_ms=check_interval_ms,
        mechanisms=_mechanisms(cluster.settings.current),
    )
    tokens = DelegationTokens(cluster.session, settings, environment.clock, environment.rng)
    await tokens.begin()
    cluster.session.on_renewed(tokens.begin)
    return tokens
