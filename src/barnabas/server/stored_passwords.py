"""Encrypts the passwords among this broker's settings at run time again, if the secret has changed.

Only a broker with `password.encoder.secret` loads this module.
"""

from __future__ import annotations

import logging
from functools import partial

from barnabas.broker.settings.stored_passwords import check_encoder, encoded_again
from barnabas.server.cluster import Cluster

log = logging.getLogger("barnabas.server")


async def encrypt_passwords(cluster: Cluster) -> None:
    """Raises KafkaError."""
    config = cluster.settings.current
    check_encoder(config)
    name = str(cluster.broker_id)
    stored = cluster.metadata.image.broker_config(name)
    if encoded_again(config, stored) is stored:
        return
    results = await cluster.writer.alter_broker_configs({name: partial(encoded_again, config)})
    for error in results.values():
        if error is not None:
            raise error
    log.info("The passwords among the settings of this broker are encrypted with password.encoder.secret")
