"""Credentials that a broker creates when it starts (`--add-scram`): the way in to a broker whose listeners all ask for
a password. Users that have a credential of the mechanism keep it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial

from barnabas.coordination.metadata.scram_credentials import ScramCredential, new_credential
from barnabas.coordination.writing.cluster_writer import ClusterWriter
from barnabas.security.new_users import NewUser

log = logging.getLogger("barnabas.server")


async def create_users(writer: ClusterWriter, users: Sequence[NewUser]) -> None:
    """Raises KafkaError."""
    for user in users:
        results = await writer.alter_scram_credentials({user.name: partial(_with, user)})
        for error in results.values():
            if error is not None:
                raise error
        log.info("User %s can log in with %s", user.name, user.mechanism)


def _with(user: NewUser, current: Mapping[str, ScramCredential]) -> Mapping[str, ScramCredential]:
    if user.mechanism in current:
        return current
    return {
        **current,
        user.mechanism: new_credential(user.mechanism, user.salt, user.salted_password, user.iterations),
    }
