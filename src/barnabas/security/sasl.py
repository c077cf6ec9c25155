"""SASL mechanisms as machines: messages go in, messages come out, without IO.

A server machine belongs to one authentication. `step` takes a message of the client and returns the answer. When the
client is authenticated, `login` has its name. A message that does not authenticate the client raises SaslFailed. The
reason goes to the client, so it never says whether a user exists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from barnabas.errors import SaslAuthenticationFailed
from barnabas.security.principal import USER, Principal

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"
GSSAPI: Final = "GSSAPI"
# The hash of each mechanism of the SCRAM family.
SCRAM_HASHES: Final = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
SUPPORTED: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER, GSSAPI)


class SaslFailed(SaslAuthenticationFailed):
    """The client is not who it says, or does not follow the mechanism. The client does not get `log_reason`."""

    def __init__(self, message: str, log_reason: str | None = None) -> None:
        super().__init__(message)
        self.log_reason = log_reason or message


class Login(NamedTuple):
    """The result of an authentication."""

    principal: Principal
    # When the credential itself ends, in milliseconds since 1970; None if it does not.
    expires_ms: int | None = None


class SaslServer(Protocol):
    @property
    def login(self) -> Login | None:
        """Who the client is, once it is authenticated."""

    def step(self, message: bytes) -> bytes:
        """The answer to a message. Raises SaslFailed."""


class SaslClient(Protocol):
    @property
    def is_complete(self) -> bool:
        """Whether nothing more is expected from either side."""

    def first(self) -> bytes:
        """The message that begins."""

    def step(self, message: bytes) -> bytes:
        """The answer to a message of the server. Raises SaslFailed."""


# Creates the machine for the next authentication with a mechanism.
NewServer = Callable[[], SaslServer]

_INVALID_PLAIN: Final = "Authentication failed: Invalid username or password"


class PlainServer:
    """PLAIN (RFC 4616): authorization id, user and password in one message.

    All wrong passwords take the same time, whether or not there is such a user.
    """

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.login: Login | None = None

    def step(self, message: bytes) -> bytes:
        from hmac import compare_digest

        if self.login is not None:
            raise SaslFailed("Authentication failed: the exchange is complete")
        try:
            parts = message.decode().split("\0")
        except UnicodeDecodeError:
            raise SaslFailed("Authentication failed: the message is not UTF-8") from None
        if len(parts) != 3:
            raise SaslFailed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {min(len(parts), 4)}")
        authorization_id, user, password = parts
        if not user:
            raise SaslFailed("Authentication failed: username not specified")
        if not password:
            raise SaslFailed("Authentication failed: password not specified")
        expected = self._passwords.get(user)
        # A comparison with something of the same length takes as long if there is no such user.
        given = password.encode()
        is_right = compare_digest(given, given[::-1] + b"\0" if expected is None else expected.encode())
        if expected is None or not is_right:
            raise SaslFailed(_INVALID_PLAIN)
        if authorization_id and authorization_id != user:
            raise SaslFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.login = Login(Principal(USER, user))
        return b""


class PlainClient:
    def __init__(self, user: str, password: str) -> None:
        self._user = user
        self._password = password
        self.is_complete = False

    def first(self) -> bytes:
        self.is_complete = True
        return f"\0{self._user}\0{self._password}".encode()

    def step(self, message: bytes) -> bytes:
        raise SaslFailed("the broker has sent an unexpected message for PLAIN")
