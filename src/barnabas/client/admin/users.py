"""Users that log in with a password, by SCRAM: listing, setting and deleting their credentials."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from typing import Final

from barnabas.client.admin.arguments import as_secret
from barnabas.client.admin.core import FROM_CONTROLLER, AdminCore, raise_for
from barnabas.client.admin.results import ScramMechanism
from barnabas.client.arguments import as_enum, as_number, as_text, as_texts
from barnabas.protocol.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.protocol.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
    UserName,
)

DEFAULT_ITERATIONS: Final = 8_192
_SALT_BYTES: Final = 32
_HASHES: Final = {ScramMechanism.SCRAM_SHA_256: "sha256", ScramMechanism.SCRAM_SHA_512: "sha512"}


class UsersAdmin(AdminCore):
    async def describe_scram_users(
        self, users: Iterable[str] = (), *, timeout_ms: float | None = None
    ) -> dict[str, dict[ScramMechanism, int]]:
        """The mechanisms of each user with their iterations; of all users that have any, if none is named."""
        names = dict.fromkeys(as_texts(users, "users", "['ann']"))

        async def ask() -> dict[str, dict[ScramMechanism, int]]:
            request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names])
            answer = await self._request(None, request)
            raise_for(answer.error_code, answer.error_message, "users")
            for each in answer.results:
                raise_for(each.error_code, each.error_message, f"user {each.user}")
            return {
                each.user: {ScramMechanism(info.mechanism): info.iterations for info in each.credential_infos}
                for each in answer.results
            }

        return await self._once("describing users", ask, timeout_ms)

    async def set_scram_password(
        self,
        user: str,
        password: str,
        *,
        mechanism: ScramMechanism | str = ScramMechanism.SCRAM_SHA_512,
        iterations: int = DEFAULT_ITERATIONS,
        timeout_ms: float | None = None,
    ) -> None:
        """Sets the password of a user for a mechanism. The password itself does not leave the client."""
        chosen = as_enum(mechanism, "mechanism", ScramMechanism)
        salt = secrets.token_bytes(_SALT_BYTES)
        upsertion = ScramCredentialUpsertion(
            name=as_text(user, "user"),
            mechanism=int(chosen),
            iterations=as_number(iterations, "iterations"),
            salt=salt,
            salted_password=hashlib.pbkdf2_hmac(
                _HASHES[chosen], as_secret(password, "password").encode(), salt, max(iterations, 1)
            ),
        )
        request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
        await self._alter_scram_user(f"setting the password of {user}", request, timeout_ms)

    async def delete_scram_password(
        self, user: str, mechanism: ScramMechanism | str, *, timeout_ms: float | None = None
    ) -> None:
        """Deletes the password of a user for one mechanism."""
        deletion = ScramCredentialDeletion(
            name=as_text(user, "user"), mechanism=int(as_enum(mechanism, "mechanism", ScramMechanism))
        )
        request = AlterUserScramCredentialsRequest(deletions=[deletion])
        await self._alter_scram_user(f"deleting the password of {user}", request, timeout_ms)

    async def _alter_scram_user(
        self, what: str, request: AlterUserScramCredentialsRequest, timeout_ms: float | None
    ) -> None:
        async def ask() -> None:
            answer = await self._request(await self._find_controller(), request)
            for each in answer.results:
                raise_for(each.error_code, each.error_message, f"user {each.user}")

        await self._once(what, ask, timeout_ms, retriable=FROM_CONTROLLER)
