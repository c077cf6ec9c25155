"""Delegation tokens as Apache Kafka 3.9 keeps them in ZooKeeper.

    /delegation_token/tokens/ID                          JSON, version 3
    /delegation_token/token_changes/token_change_N       the id of a token that has changed

A node does not have the secret of its token: that is the HMAC of the id with `delegation.token.secret.key`.
"""

from __future__ import annotations

import json
from typing import Final

from barnabas.coordination.metadata.node_reader import NodeReader
from barnabas.coordination.metadata.tree import desanitize, sanitize
from barnabas.security.principal import Principal, parse_principal
from barnabas.value import Value

TOKENS: Final = "/delegation_token/tokens"
TOKEN_CHANGES: Final = "/delegation_token/token_changes"
TOKEN_CHANGE_PREFIX: Final = TOKEN_CHANGES + "/token_change_"
_VERSION: Final = 3
# Versions before have no requester: the owner has asked for the token.
_FIRST_WITH_REQUESTER: Final = 3
_INT64_MAX: Final = 2**63 - 1


class DelegationToken(Value, kw_only=True):
    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issue_ms: int
    max_ms: int
    expiry_ms: int

    def is_expired(self, now_ms: int) -> bool:
        return self.max_ms < now_ms or self.expiry_ms < now_ms

    def is_of(self, principal: Principal) -> bool:
        """Whether the principal owns the token, or may renew it."""
        named = (principal.type, principal.name)
        return any((each.type, each.name) == named for each in (self.owner, *self.renewers))

    def is_shown_to(self, principal: Principal) -> bool:
        """As in Kafka, also who has created the token for another user sees it, but may not renew it."""
        requester = self.requester
        return self.is_of(principal) or (requester.type, requester.name) == (principal.type, principal.name)


def encode_token(token: DelegationToken) -> bytes:
    content = {
        "version": _VERSION,
        "owner": sanitize(str(token.owner)),
        "tokenRequester": sanitize(str(token.requester)),
        "renewers": [sanitize(str(each)) for each in token.renewers],
        "issueTimestamp": token.issue_ms,
        "maxTimestamp": token.max_ms,
        "expiryTimestamp": token.expiry_ms,
        "tokenId": token.token_id,
    }
    return json.dumps(content, separators=(",", ":")).encode()


def decode_token(path: str, data: bytes) -> DelegationToken:
    """Raises MalformedNode."""
    node = NodeReader(path, data)
    version = node.integer("version")
    if not 1 <= version <= _VERSION:
        raise node.malformed(f"version {version} is not known")
    requester = "tokenRequester" if version >= _FIRST_WITH_REQUESTER else "owner"
    renewers = node.required("renewers")
    if not isinstance(renewers, list):
        raise node.malformed("renewers is no list")
    return DelegationToken(
        token_id=node.text("tokenId"),
        owner=_principal(node, node.text("owner")),
        requester=_principal(node, node.text(requester)),
        renewers=tuple(_principal(node, each) for each in renewers),
        issue_ms=_time_ms(node, "issueTimestamp"),
        max_ms=_time_ms(node, "maxTimestamp"),
        expiry_ms=_time_ms(node, "expiryTimestamp"),
    )


def _principal(node: NodeReader, text: object) -> Principal:
    try:
        return parse_principal(desanitize(str(text)))
    except ValueError as error:
        raise node.malformed(str(error)) from None


def _time_ms(node: NodeReader, key: str) -> int:
    value = node.required(key)
    if type(value) is not int or not 0 <= value <= _INT64_MAX:
        raise node.malformed(f"{key} is no time")
    return value
