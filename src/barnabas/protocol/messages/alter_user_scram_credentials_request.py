"""AlterUserScramCredentialsRequest: versions 0, flexible 0+.

Written by `make messages` from schemas/AlterUserScramCredentialsRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class ScramCredentialDeletion:
    __slots__ = (
        "name",
        "mechanism",
        "unknown_tagged_fields",
    )
    name: str
    mechanism: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        name: str = "",
        mechanism: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.name = name
        self.mechanism = mechanism
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class ScramCredentialUpsertion:
    __slots__ = (
        "name",
        "mechanism",
        "iterations",
        "salt",
        "salted_password",
        "unknown_tagged_fields",
    )
    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        name: str = "",
        mechanism: int = 0,
        iterations: int = 0,
        salt: bytes = b"",
        salted_password: bytes = b"",
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.name = name
        self.mechanism = mechanism
        self.iterations = iterations
        self.salt = salt
        self.salted_password = salted_password
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class AlterUserScramCredentialsRequest:
    __slots__ = (
        "deletions",
        "upsertions",
        "unknown_tagged_fields",
    )
    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        deletions: list[ScramCredentialDeletion] = EMPTY,
        upsertions: list[ScramCredentialUpsertion] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.deletions = [] if deletions is EMPTY else deletions
        self.upsertions = [] if upsertions is EMPTY else upsertions
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
