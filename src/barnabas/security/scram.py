"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802 and 7677), for servers and clients, as Kafka uses them: without channel
binding, and with Kafka's extension `tokenauth=true` for delegation tokens.

    client first    n,,n=USER,r=CLIENT_NONCE[,tokenauth=true]
    server first    r=CLIENT_NONCE SERVER_NONCE,s=SALT,i=ITERATIONS
    client final    c=biws,r=NONCE,p=PROOF
    server final    v=SIGNATURE

The server knows two keys, which verify a password but cannot be used to log in. A user that does not exist gets a salt
too, always the same one, and fails at the end of the exchange like a wrong password: nobody learns which users exist.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas.security.principal import Principal
from barnabas.security.sasl import SCRAM_HASHES, Login, SaslFailed

log = logging.getLogger(__name__)

ITERATIONS_MIN: Final = 4_096
# A server could otherwise keep a client busy.
ITERATIONS_MAX: Final = 1_000_000
MESSAGE_BYTES_MAX: Final = 16 * 1024
TOKEN_EXTENSION: Final = "tokenauth"
_NONCE_BYTES: Final = 24
_LETTERS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"
_PRINTABLE: Final = r"[\x21-\x2B\x2D-\x7E]+"
_CLIENT_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authzid>[^,]*))?,(?P<bare>(?:m=[^,]*,)?n=(?P<user>[^,]*),r=(?P<nonce>{_PRINTABLE})(?P<extensions>(?:,[A-Za-z]+=[^,]*)*))",
    re.DOTALL,
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<without_proof>c=(?P<binding>[^,]+),r=(?P<nonce>{_PRINTABLE})(?:,[A-Za-z]+=[^,]*)*),p=(?P<proof>[^,]+)",
    re.DOTALL,
)
_SERVER_FIRST: Final = re.compile(
    rf"r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>[^,]+),i=(?P<iterations>[0-9]{{1,9}})(?:,[A-Za-z]+=[^,]*)*",
    re.DOTALL,
)
_SERVER_FINAL: Final = re.compile(
    r"(?:e=(?P<error>[^,]*)|v=(?P<signature>[^,]+))(?:,[A-Za-z]+=[^,]*)*", re.DOTALL
)
_BAD_ESCAPE: Final = re.compile(r"=(?!2C|3D)")


class ScramKeys(NamedTuple):
    """The credential of a user."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return "ScramKeys([hidden])"


class ScramAccount(NamedTuple):
    """A user, or a delegation token, with the principal that it stands for."""

    principal: Principal
    keys: ScramKeys
    expires_ms: int | None = None


class Decoy(NamedTuple):
    """From a secret of the cluster: keys for users that do not exist, which look like those of another user."""

    secret: bytes
    like: ScramKeys | None = None

    def keys_for(self, user: str, hash_name: str) -> ScramKeys:
        size = hashlib.new(hash_name).digest_size
        seed = hmac.digest(self.secret, user.encode(), "sha512")
        like = self.like
        salt = hashlib.shake_256(seed).digest(20 if like is None else len(like.salt))
        if like is None or like.salt.isalnum():
            # Kafka's tools choose salts of letters and digits.
            salt = bytes(_LETTERS[each % len(_LETTERS)] for each in salt)
        iterations = ITERATIONS_MIN if like is None else like.iterations
        return ScramKeys(salt, seed[:size], seed[-size:], iterations)


# By user name or token id, and whether it is a token; None if there is none.
FindAccount = Callable[[str, bool], ScramAccount | None]


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(SCRAM_HASHES[mechanism], _normalized(password), salt, iterations)


def keys_of(mechanism: str, password: str, salt: bytes, iterations: int) -> ScramKeys:
    salted = salted_password(mechanism, password, salt, iterations)
    hash_name = SCRAM_HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    return ScramKeys(
        salt,
        hashlib.new(hash_name, client_key).digest(),
        hmac.digest(salted, b"Server Key", hash_name),
        iterations,
    )


class ScramServer:
    """A decoy stands in for users that do not exist, another one for tokens."""

    def __init__(
        self,
        mechanism: str,
        find_account: FindAccount,
        decoy: Decoy,
        token_decoy: Decoy | None = None,
        new_nonce: Callable[[], str] = lambda: secrets.token_urlsafe(_NONCE_BYTES),
    ) -> None:
        self._mechanism = mechanism
        self._hash = SCRAM_HASHES[mechanism]
        self._find_account = find_account
        self._decoy = decoy
        self._token_decoy = token_decoy or decoy
        self._new_nonce = new_nonce
        self._account: ScramAccount | None = None
        self._keys: ScramKeys | None = None
        self._client_first_bare = ""
        self._server_first = ""
        self._nonce = ""
        self.login: Login | None = None

    def step(self, message: bytes) -> bytes:
        if len(message) > MESSAGE_BYTES_MAX:
            raise self._failed()
        try:
            text = message.decode()
        except UnicodeDecodeError:
            raise self._failed() from None
        if self.login is not None:
            raise self._failed()
        return self._begin(text) if self._keys is None else self._finish(text)

    def _begin(self, text: str) -> bytes:
        found = _CLIENT_FIRST.fullmatch(text)
        if found is None or found["bare"].startswith("m="):
            raise self._failed()
        if _BAD_ESCAPE.search(found["user"]):
            raise self._failed()
        user = found["user"].replace("=2C", ",").replace("=3D", "=")
        if found["authzid"] and found["authzid"] != found["user"]:
            raise SaslFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        extensions = dict(each.split("=", 1) for each in found["extensions"].split(",") if each)
        is_token = extensions.get(TOKEN_EXTENSION, "").lower() == "true"
        self._account = self._usable(self._find_account(user, is_token), user)
        # For users that exist too: the time of the answer does not tell which ones do.
        decoy = (self._token_decoy if is_token else self._decoy).keys_for(user, self._hash)
        self._keys = decoy if self._account is None else self._account.keys
        self._client_first_bare = found["bare"]
        self._nonce = found["nonce"] + self._new_nonce()
        salt = base64.b64encode(self._keys.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={self._keys.iterations}"
        return self._server_first.encode()

    def _usable(self, account: ScramAccount | None, user: str) -> ScramAccount | None:
        """Tools that write to ZooKeeper store any number of iterations. Kafka refuses such users, too."""
        if account is None or account.keys.iterations >= ITERATIONS_MIN:
            return account
        log.warning(
            "User %s cannot log in with %s: its credential has %d iterations, and at least %d are needed. Set its"
            " password again",
            *(user, self._mechanism, account.keys.iterations, ITERATIONS_MIN),
        )
        return None

    def _finish(self, text: str) -> bytes:
        keys = self._keys
        assert keys is not None
        found = _CLIENT_FINAL.fullmatch(text)
        if found is None or found["nonce"] != self._nonce:
            raise self._failed()
        proof = _decoded(found["proof"])
        # The channel binding repeats the header of the first message, which has no channel.
        if proof is None or len(proof) != len(keys.stored_key) or not _has_no_channel(found["binding"]):
            raise self._failed()
        auth_message = f"{self._client_first_bare},{self._server_first},{found['without_proof']}".encode()
        signature = hmac.digest(keys.stored_key, auth_message, self._hash)
        client_key = bytes(a ^ b for a, b in zip(signature, proof, strict=True))
        is_right = hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), keys.stored_key)
        account = self._account
        if account is None or not is_right:
            raise self._failed()
        self.login = Login(account.principal, account.expires_ms)
        server_signature = hmac.digest(keys.server_key, auth_message, self._hash)
        return b"v=" + base64.b64encode(server_signature)

    def _failed(self) -> SaslFailed:
        return SaslFailed(
            "Authentication failed during authentication due to invalid credentials with SASL mechanism"
            f" {self._mechanism}"
        )


class ScramClient:
    def __init__(
        self,
        mechanism: str,
        user: str,
        password: str,
        *,
        is_token: bool = False,
        new_nonce: Callable[[], str] = lambda: secrets.token_urlsafe(_NONCE_BYTES),
    ) -> None:
        self._mechanism = mechanism
        self._hash = SCRAM_HASHES[mechanism]
        self._password = password
        self._nonce = new_nonce()
        escaped = user.replace("=", "=3D").replace(",", "=2C")
        extension = f",{TOKEN_EXTENSION}=true" if is_token else ""
        self._first_bare = f"n={escaped},r={self._nonce}{extension}"
        self._server_signature = b""
        self.is_complete = False

    def first(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def step(self, message: bytes) -> bytes:
        text = message[:MESSAGE_BYTES_MAX].decode(errors="replace")
        if self._server_signature:
            self._check_final(text)
            return b""
        found = _SERVER_FIRST.fullmatch(text)
        salt = None if found is None else _decoded(found["salt"])
        if found is None or salt is None:
            raise SaslFailed(f"the broker has sent an invalid message for {self._mechanism}")
        nonce, iterations = found["nonce"], int(found["iterations"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise SaslFailed(f"the broker has sent an invalid nonce for {self._mechanism}")
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise SaslFailed(
                f"the broker asks for {iterations} iterations with {self._mechanism}; this client accepts"
                f" {ITERATIONS_MIN} to {ITERATIONS_MAX}"
            )
        salted = salted_password(self._mechanism, self._password, salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored_key = hashlib.new(self._hash, client_key).digest()
        without_proof = f"c=biws,r={nonce}"
        auth_message = f"{self._first_bare},{text},{without_proof}".encode()
        signature = hmac.digest(stored_key, auth_message, self._hash)
        proof = bytes(a ^ b for a, b in zip(signature, client_key, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._hash)
        self._server_signature = hmac.digest(server_key, auth_message, self._hash)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _check_final(self, text: str) -> None:
        found = _SERVER_FINAL.fullmatch(text)
        if found is None:
            raise SaslFailed(f"the broker has sent an invalid message for {self._mechanism}")
        if found["error"] is not None:
            raise SaslFailed(f"the broker has refused the log-in: {found['error'][:200]}")
        if not hmac.compare_digest(_decoded(found["signature"]) or b"", self._server_signature):
            raise SaslFailed(
                f"the broker does not know the password of this user ({self._mechanism}): is this the right broker?"
            )
        self.is_complete = True


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _has_no_channel(binding: str) -> bool:
    decoded = _decoded(binding)
    return decoded is not None and decoded.startswith(b"n,")


def _normalized(password: str) -> bytes:
    """Kafka does not normalize passwords."""
    return password.encode()
