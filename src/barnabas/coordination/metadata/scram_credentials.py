"""Credentials of users for SCRAM (RFC 5802), as Apache Kafka keeps them in ZooKeeper below /config/users.

A client sends a salted password, with which anybody could log in. The stored credential can verify a log-in, but cannot
be used for one:

    client_key = HMAC(salted_password, "Client Key")
    stored_key = H(client_key)
    server_key = HMAC(salted_password, "Server Key")

A credential is one setting of its user, named after the mechanism, with all bytes in base 64:

    salt=...,stored_key=...,server_key=...,iterations=4096
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Final

from barnabas.coordination.metadata.node_reader import MalformedNode
from barnabas.value import Value

# The hash of each mechanism, by Kafka's names for both.
MECHANISMS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_FIELDS: Final = ("salt", "stored_key", "server_key", "iterations")


class ScramCredential(Value, kw_only=True):
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        """Keys do not belong into logs."""
        return "ScramCredential([hidden])"


def new_credential(mechanism: str, salt: bytes, salted_password: bytes, iterations: int) -> ScramCredential:
    # Few brokers have users with passwords.
    import hashlib
    import hmac

    hash_name = MECHANISMS[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", hash_name)
    return ScramCredential(
        salt=salt,
        stored_key=hashlib.new(hash_name, client_key).digest(),
        server_key=hmac.digest(salted_password, b"Server Key", hash_name),
        iterations=iterations,
    )


def credential_texts(credentials: Mapping[str, ScramCredential]) -> dict[str, str]:
    """Credentials by mechanism as settings of their user."""
    return {
        mechanism: (
            f"salt={_encode(each.salt)},stored_key={_encode(each.stored_key)},"
            f"server_key={_encode(each.server_key)},iterations={each.iterations}"
        )
        for mechanism, each in credentials.items()
    }


def user_credentials(path: str, properties: Mapping[str, str]) -> dict[str, ScramCredential]:
    """The credentials among the settings of a user: quotas are beside them."""
    return {
        mechanism: _parse(f"{path}: {mechanism}", properties[mechanism])
        for mechanism in MECHANISMS
        if mechanism in properties
    }


def _parse(where: str, text: str) -> ScramCredential:
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    if sorted(fields) != sorted(_FIELDS):
        raise MalformedNode(f"{where} does not have the fields of a credential")
    try:
        salt, stored_key, server_key = (
            base64.b64decode(fields[name], validate=True) for name in ("salt", "stored_key", "server_key")
        )
        iterations = int(fields["iterations"])
    except (binascii.Error, ValueError):
        raise MalformedNode(f"{where} has a field that cannot be read") from None
    return ScramCredential(salt=salt, stored_key=stored_key, server_key=server_key, iterations=iterations)


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()
