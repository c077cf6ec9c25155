"""The delegation tokens of a cluster: any broker creates, renews and removes them, and all follow the notices.

Only a broker with `delegation.token.secret.key` loads this module. All brokers must have the same key, because it makes
the secrets of the tokens from their ids. Tokens that have expired are removed from time to time, and cannot be used
until then.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Iterable, Sequence
from random import Random
from typing import Final

from barnabas.clock import Clock
from barnabas.coordination.metadata.notices import Notices, latest_notice
from barnabas.coordination.metadata.store_errors import as_kafka_error
from barnabas.coordination.metadata.token_nodes import (
    TOKEN_CHANGE_PREFIX,
    TOKEN_CHANGES,
    TOKENS,
    DelegationToken,
    decode_token,
    encode_token,
)
from barnabas.coordination.store.contract import (
    BadArguments,
    Create,
    CreateMode,
    Delete,
    MultiFailed,
    NoNode,
    Operation,
    SetData,
    Store,
    StoreError,
    child_path,
    children_of,
    ensure_path,
    validate_path,
)
from barnabas.coordination.writing.token_keys import TokenKeys
from barnabas.errors import (
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    PolicyViolation,
)
from barnabas.security.principal import Principal
from barnabas.value import Value, replace

log = logging.getLogger(__name__)
# Kafka's logger of decisions.
audit_log = logging.getLogger("kafka.authorizer.logger")

# More would be a client that creates tokens without end.
TOKENS_MAX: Final = 100_000


class TokenSettings(Value, kw_only=True):
    """Kafka's settings `delegation.token.…`."""

    secret_key: bytes
    max_lifetime_ms: int
    expiry_time_ms: int
    expiry_check_interval_ms: int
    # The SCRAM mechanisms with which tokens can be used.
    mechanisms: tuple[str, ...]

    def __repr__(self) -> str:
        return "TokenSettings([hidden])"


class DelegationTokens:
    def __init__(self, store: Store, settings: TokenSettings, clock: Clock, rng: Random) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self.keys = TokenKeys(settings.secret_key, settings.mechanisms)
        self._tokens: dict[str, DelegationToken] = {}
        # Requests name a token by its secret. Ids of tokens that are gone may be here too.
        self._ids: dict[bytes, str] = {}
        self._notices = Notices(store, clock, TOKEN_CHANGE_PREFIX, self._handle)
        self._removal: asyncio.Task[None] | None = None
        self._preparation: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Reads all tokens and follows their changes, also in a new session. Raises StoreError."""
        for path in (TOKENS, TOKEN_CHANGES):
            await ensure_path(self._store, path)
        latest = await latest_notice(self._store, TOKEN_CHANGE_PREFIX)
        await self._read(await children_of(self._store, TOKENS), is_all=True)
        await self._notices.begin(latest)
        if self._removal is None:
            self._removal = asyncio.get_running_loop().create_task(self._remove_expired())

    async def close(self) -> None:
        await self._notices.close()
        for task in (self._removal, self._preparation):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])

    def find(self, token_id: str) -> DelegationToken | None:
        """A token that can be used."""
        token = self._tokens.get(token_id)
        return None if token is None or token.is_expired(self._clock.now_ms()) else token

    def secret_of(self, token_id: str) -> bytes:
        return self.keys.secret_of(token_id)

    def all(self) -> Iterable[DelegationToken]:
        return self._tokens.values()

    async def create(
        self, owner: Principal, requester: Principal, renewers: tuple[Principal, ...], max_lifetime_ms: int
    ) -> DelegationToken:
        """Raises KafkaError."""
        if len(self._tokens) >= TOKENS_MAX:
            raise PolicyViolation(f"there are {TOKENS_MAX} delegation tokens already")
        now_ms, settings = self._clock.now_ms(), self._settings
        lifetime_ms = settings.max_lifetime_ms
        if max_lifetime_ms > 0:
            lifetime_ms = min(max_lifetime_ms, lifetime_ms)
        token = DelegationToken(
            token_id=base64.urlsafe_b64encode(self._rng.randbytes(16)).decode().rstrip("="),
            owner=owner,
            requester=requester,
            renewers=renewers,
            issue_ms=now_ms,
            max_ms=now_ms + lifetime_ms,
            expiry_ms=min(now_ms + lifetime_ms, now_ms + settings.expiry_time_ms),
        )
        await self._write(Create(child_path(TOKENS, token.token_id), encode_token(token)), token.token_id)
        self._tokens[token.token_id] = token
        self._ids[self.secret_of(token.token_id)] = token.token_id
        await self.keys.prepare([token.token_id])
        audit_log.info("Created delegation token %s of %s by %s", token.token_id, owner, requester)
        return token

    async def renew(self, principal: Principal, secret: bytes, period_ms: int) -> int:
        """The new time of expiry. Raises KafkaError."""
        token = self._found(principal, secret)
        now_ms = self._clock.now_ms()
        if token.is_expired(now_ms):
            raise DelegationTokenExpired("the token has expired")
        renewed_ms = now_ms + (self._settings.expiry_time_ms if period_ms < 0 else period_ms)
        return await self._expire_at(token, min(token.max_ms, renewed_ms), principal)

    async def expire(self, principal: Principal, secret: bytes, period_ms: int) -> int:
        """The new time of expiry: at once if the period is negative. Raises KafkaError."""
        token = self._found(principal, secret)
        now_ms = self._clock.now_ms()
        if period_ms < 0:
            await self._remove(token.token_id, str(principal))
            return now_ms
        if token.is_expired(now_ms):
            raise DelegationTokenExpired("the token has expired")
        return await self._expire_at(token, min(token.max_ms, now_ms + period_ms), principal)

    def _found(self, principal: Principal, secret: bytes) -> DelegationToken:
        token = self._tokens.get(self._ids.get(secret, ""))
        if token is None:
            raise DelegationTokenNotFound("there is no such token")
        if not token.is_of(principal):
            raise DelegationTokenOwnerMismatch(f"the token is not one of {principal}")
        return token

    async def _expire_at(self, token: DelegationToken, expiry_ms: int, author: Principal) -> int:
        changed = replace(token, expiry_ms=expiry_ms)
        path = child_path(TOKENS, token.token_id)
        await self._write(SetData(path, encode_token(changed)), token.token_id)
        self._tokens[token.token_id] = changed
        audit_log.info(
            "Delegation token %s of %s expires at %d by %s", token.token_id, token.owner, expiry_ms, author
        )
        return expiry_ms

    async def _remove(self, token_id: str, author: str) -> None:
        await self._write(Delete(child_path(TOKENS, token_id)), token_id)
        self._tokens.pop(token_id, None)
        self._ids.pop(self.secret_of(token_id), None)
        self.keys.forget(token_id)
        audit_log.info("Removed delegation token %s by %s", token_id, author)

    async def _write(self, operation: Operation, token_id: str) -> None:
        """With a notice for all brokers. Raises KafkaError."""
        notice = Create(TOKEN_CHANGE_PREFIX, token_id.encode(), CreateMode.PERSISTENT_SEQUENTIAL)
        try:
            await self._store.multi([operation, notice])
        except MultiFailed as failed:
            if isinstance(failed.error, NoNode):
                self._tokens.pop(token_id, None)
                raise DelegationTokenNotFound("another broker has removed the token") from failed
            raise as_kafka_error(failed) from failed
        except StoreError as error:
            raise as_kafka_error(error) from error

    async def _remove_expired(self) -> None:
        while True:
            await asyncio.sleep(self._settings.expiry_check_interval_ms / 1_000)
            now_ms = self._clock.now_ms()
            for token in [each for each in self._tokens.values() if each.is_expired(now_ms)]:
                try:
                    await self._remove(token.token_id, "expiry")
                except DelegationTokenNotFound:
                    continue
                except Exception as error:
                    log.warning("An expired delegation token is not removed: %s", error)
                    break

    async def _read(self, token_ids: Iterable[str], *, is_all: bool = False) -> None:
        wanted = list(dict.fromkeys(token_ids))
        paths = [child_path(TOKENS, each) for each in wanted]
        tokens = {} if is_all else dict(self._tokens)
        for token_id, path, found in zip(wanted, paths, await self._store.get_all(paths), strict=True):
            tokens.pop(token_id, None)
            if found is not None and found[0]:
                try:
                    tokens[token_id] = decode_token(path, found[0])
                except StoreError as error:
                    log.error("A delegation token is ignored: %s. Mend the node, or remove it", error)
        self._tokens = tokens
        for token_id in wanted:
            secret = self.secret_of(token_id)
            if token_id in tokens:
                self._ids[secret] = token_id
            else:
                self._ids.pop(secret, None)
                self.keys.forget(token_id)
        if self._preparation is None or self._preparation.done():
            self._preparation = asyncio.get_running_loop().create_task(self._prepare())

    async def _prepare(self) -> None:
        """Until there are keys of all tokens that are known then."""
        tokens = None
        while tokens is not self._tokens:
            tokens = self._tokens
            await self.keys.prepare(list(tokens))

    async def _handle(self, notices: Sequence[tuple[str, bytes]]) -> None:
        changed = []
        for path, data in notices:
            try:
                token_id = data.decode()
                if "/" in token_id:
                    raise BadArguments("no id contains /")
                validate_path(child_path(TOKENS, token_id))
            except (UnicodeDecodeError, BadArguments) as error:
                log.error("A notice of a changed delegation token is ignored: %s: %s", path, error)
            else:
                changed.append(token_id)
        await self._read(changed)
