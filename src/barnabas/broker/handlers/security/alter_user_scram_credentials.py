"""AlterUserScramCredentials, version 0: sets and deletes SCRAM credentials of users.

Credentials are stored whether or not a listener uses SASL. A request may name a user once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import coroutine_handler
from barnabas.broker.handlers.results import code_of, message_of
from barnabas.broker.handlers.security.describe_user_scram_credentials import MECHANISM_CODES
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.coordination.metadata.scram_credentials import ScramCredential, new_credential
from barnabas.coordination.writing.cluster_writer import Edit
from barnabas.errors import (
    DuplicateResource,
    KafkaError,
    NotController,
    ResourceNotFound,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
)
from barnabas.protocol.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.protocol.messages.alter_user_scram_credentials_response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

# Kafka's logger of decisions.
audit_log = logging.getLogger("kafka.authorizer.logger")

_ITERATIONS_MIN: Final = 4_096
_ITERATIONS_MAX: Final = 16_384
_SALT_BYTES_MAX: Final = 1_024
# They cannot be names of nodes in the store.
_UNUSABLE_NAMES: Final = frozenset({"<default>", ".", ".."})


async def handle(
    broker: Broker, exchange: AnyExchange, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    results: dict[str, KafkaError | None] = {}
    edits: dict[str, Edit[ScramCredential]] = {}
    changes: list[ScramCredentialDeletion | ScramCredentialUpsertion]
    changes = [*request.deletions, *request.upsertions]
    end_ns = broker.turns.end_ns()
    for change in changes:
        if broker.turns.is_over(end_ns):
            await broker.turns.next()
            end_ns = broker.turns.end_ns()
        if results.get(change.name) is not None:
            continue
        try:
            if not broker.controller.is_active:
                raise NotController("This is not the correct controller for this cluster.")
            if change.name in results:
                raise DuplicateResource("A user credential cannot be altered twice in the same request")
            results[change.name] = None
            mechanism = _checked_mechanism(change)
            if isinstance(change, ScramCredentialDeletion):
                _without(mechanism, broker.image.scram_credentials.get(change.name, {}))
                edits[change.name] = partial(_without, mechanism)
            else:
                edits[change.name] = partial(_with, mechanism, _checked_credential(mechanism, change))
        except KafkaError as error:
            results[change.name] = error
            edits.pop(change.name, None)
    async for part in broker.turns.parts(list(edits.items())):
        edited = dict(part)
        try:
            results.update(await broker.writer.alter_scram_credentials(edited))
        except KafkaError as error:
            results.update(dict.fromkeys(edited, error))
    _log_changes(changes, results, exchange)
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(
                user=user,
                error_code=code_of(error),
                error_message=message_of(error),
            )
            for user, error in results.items()
        ]
    )


def _log_changes(
    changes: Iterable[ScramCredentialDeletion | ScramCredentialUpsertion],
    results: Mapping[str, KafkaError | None],
    exchange: AnyExchange,
) -> None:
    for change in changes:
        if results.get(change.name) is None:
            word = "Removed" if isinstance(change, ScramCredentialDeletion) else "Set"
            mechanism = MECHANISM_CODES.get(change.mechanism)
            audit_log.info(
                "%s %s credential of User:%s by %s", word, mechanism, change.name, exchange.session.principal
            )


def refuse(
    request: AlterUserScramCredentialsRequest, error: KafkaError, version: int
) -> AlterUserScramCredentialsResponse:
    users = {each.name for each in request.deletions} | {each.name for each in request.upsertions}
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=error.code, error_message=str(error))
            for user in sorted(users)
        ]
    )


HANDLER: Final = coroutine_handler(
    AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse, handle, refuse=refuse
)


def _checked_mechanism(change: ScramCredentialDeletion | ScramCredentialUpsertion) -> str:
    if not change.name:
        raise UnacceptableCredential("Username must not be empty")
    if change.name in _UNUSABLE_NAMES:
        raise UnacceptableCredential(f"A user named {change.name} cannot have credentials")
    mechanism = MECHANISM_CODES.get(change.mechanism)
    if mechanism is None:
        raise UnsupportedSaslMechanism("Unknown SCRAM mechanism")
    return mechanism


def _checked_credential(mechanism: str, change: ScramCredentialUpsertion) -> ScramCredential:
    if change.iterations < _ITERATIONS_MIN:
        raise UnacceptableCredential("Too few iterations")
    if change.iterations > _ITERATIONS_MAX:
        raise UnacceptableCredential("Too many iterations")
    if len(change.salt) > _SALT_BYTES_MAX:
        raise UnacceptableCredential(f"The salt has more than {_SALT_BYTES_MAX} bytes")
    return new_credential(mechanism, bytes(change.salt), bytes(change.salted_password), change.iterations)


def _with(
    mechanism: str, credential: ScramCredential, current: Mapping[str, ScramCredential]
) -> Mapping[str, ScramCredential]:
    return {**current, mechanism: credential}


def _without(mechanism: str, current: Mapping[str, ScramCredential]) -> Mapping[str, ScramCredential]:
    if mechanism not in current:
        raise ResourceNotFound("Attempt to delete a user credential that does not exist")
    return {name: credential for name, credential in current.items() if name != mechanism}
