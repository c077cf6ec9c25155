"""GSSAPI (RFC 4752): Kerberos tickets, without a security layer after the log-in, as in Kafka.

    client                                      server
    token of the context                 →
                                         ←      token of the context, if the client wants to know who the server is
    (nothing)                            →
                                         ←      wrapped: 1 (no security layer), three bytes of zero
    wrapped: 1, three bytes, a user      →
                                         ←      (nothing)

The Kerberos library reads files and, for a client, asks the KDC. So these machines wait: a thread runs them. What the
library says about a failure is for the log of the broker. The client of the broker gets Kafka's sentence.
"""

from __future__ import annotations

import os
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from barnabas.errors import InvalidConfig, KafkaError, NetworkException
from barnabas.security.kerberos_login import ANY_PRINCIPAL, KerberosLogin
from barnabas.security.kerberos_names import KerberosNames, NoName
from barnabas.security.principal import USER, Principal
from barnabas.security.sasl import Login, SaslFailed

if TYPE_CHECKING:
    from types import ModuleType

NO_LAYER: Final = 1
_NO_LAYER_OFFER: Final = b"\x01\0\0\0"
# Layer, the largest message (three bytes) and, from a client, the user that it wants to be.
_OFFER_BYTES: Final = 4
_REFUSED: Final = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"
)
# KRB5_KDC_UNREACH and KRB5_REALM_CANT_RESOLVE: these may pass.
_UNREACHABLE: Final = frozenset({2529639068, 2529639066})


class _Stage(Enum):
    CONTEXT = 1
    OFFER = 2
    CHOICE = 3
    DONE = 4


class GssapiServer:
    def __init__(self, credentials: Any, names: KerberosNames) -> None:
        self._credentials = credentials
        self._names = names
        self._context: Any = None
        self._principal = ""
        self._stage = _Stage.CONTEXT
        self.login: Login | None = None

    def step(self, message: bytes) -> bytes:
        raw = need_library()
        try:
            if self._stage is _Stage.CONTEXT:
                return self._accept(raw, message)
            if self._stage is _Stage.OFFER:
                if message:
                    raise SaslFailed(_REFUSED, "the client has sent a token after the end of the context")
                return self._offer(raw)
            if self._stage is _Stage.CHOICE:
                return self._choose(raw.unwrap(self._context, message).message)
        except raw.GSSError as error:
            raise SaslFailed(_REFUSED, reason_of(error)) from None
        raise SaslFailed(_REFUSED, "the exchange is complete")

    def _accept(self, raw: ModuleType, token: bytes) -> bytes:
        if not token:
            raise SaslFailed(_REFUSED, "the first token is empty")
        accepted = raw.accept_sec_context(token, self._credentials, self._context)
        self._context = accepted.context
        if accepted.more_steps:
            return accepted.token or b""
        if raw.RequirementFlag.anonymity in accepted.flags:
            raise SaslFailed(_REFUSED, "the client is anonymous")
        self._principal = raw.display_name(accepted.initiator_name, name_type=False).name.decode(
            "utf-8", "replace"
        )
        self._stage = _Stage.OFFER
        return accepted.token or self._offer(raw)

    def _offer(self, raw: ModuleType) -> bytes:
        self._stage = _Stage.CHOICE
        offer: bytes = raw.wrap(self._context, _NO_LAYER_OFFER, confidential=False).message
        return offer

    def _choose(self, choice: bytes) -> bytes:
        """As in Kafka, the name that the client asks for does not count: the ticket says who it is."""
        self._stage = _Stage.DONE
        if len(choice) < _OFFER_BYTES:
            raise SaslFailed(_REFUSED, f"the client's choice has {len(choice)} bytes")
        if choice[0] != NO_LAYER:
            raise SaslFailed(
                f"{_REFUSED}: there is no security layer. Use TLS (security.protocol=SASL_SSL)",
                f"the client asks for the security layer {choice[0]}",
            )
        try:
            user = self._names.user_of(self._principal)
        except NoName as error:
            raise SaslFailed(_REFUSED, str(error)) from None
        self.login = Login(Principal(USER, user))
        return b""


class GssapiClient:
    """A log-in to the broker of a host. All methods may wait, and raise KafkaError."""

    def __init__(self, login: KerberosLogin, host: str) -> None:
        self._login = login
        self._host = host
        self._context: Any = None
        self._stage = _Stage.CONTEXT
        self.is_complete = False

    def first(self) -> bytes:
        return self.step(b"")

    def step(self, message: bytes) -> bytes:
        raw = need_library()
        try:
            if self._stage is _Stage.CONTEXT:
                return self._initiate(raw, message or None)
            if self._stage is _Stage.OFFER:
                return self._answer_offer(raw, raw.unwrap(self._context, message).message)
        except raw.GSSError as error:
            raise self._failed(error) from None
        except InvalidConfig as error:
            # The keytab was there when the client began.
            raise SaslFailed(str(error)) from None
        self.is_complete = True
        return b""

    def _initiate(self, raw: ModuleType, token: bytes | None) -> bytes:
        target = f"{self._login.service}@{self._host}".encode()
        result = raw.init_sec_context(
            raw.import_name(target, raw.NameType.hostbased_service),
            credentials_of(self._login),
            self._context,
            raw.MechType.kerberos,
            {raw.RequirementFlag.mutual_authentication, raw.RequirementFlag.integrity},
            input_token=token,
        )
        self._context = result.context
        if not result.more_steps:
            if raw.RequirementFlag.mutual_authentication not in result.flags:
                raise SaslFailed(f"{self._host} does not prove who it is")
            self._stage = _Stage.OFFER
        return result.token or b""

    def _answer_offer(self, raw: ModuleType, offer: bytes) -> bytes:
        self._stage = _Stage.DONE
        if len(offer) < _OFFER_BYTES or not offer[0] & NO_LAYER:
            raise SaslFailed(
                f"{self._host} demands a security layer of GSSAPI. Clients have none: let the broker offer auth, and"
                " use TLS (security.protocol=SASL_SSL)"
            )
        answer: bytes = raw.wrap(self._context, _NO_LAYER_OFFER, confidential=False).message
        return answer

    def _failed(self, error: Any) -> KafkaError:
        login = self._login
        if login.keytab is not None:
            source = f"as {login.principal} with the keytab {login.keytab}"
        else:
            source = (
                f"with the ticket cache {login.cache or 'of the environment'} (is there a ticket? See klist)"
            )
        text = f"log-in with Kerberos to {login.service}@{self._host} failed, {source}: {reason_of(error)}"
        return NetworkException(text) if error.min_code in _UNREACHABLE else SaslFailed(text)


def credentials_of(login: KerberosLogin) -> Any:
    """Of a client. Those of a keytab are in memory; the library asks for the next ticket before one ends."""
    raw = need_library()
    if login.keytab is None:
        store = {} if login.cache is None else {b"ccache": os.fsencode(login.cache)}
        return _acquired(raw, login, store, "initiate")
    check_readable(login.keytab)
    keytab = os.fsencode(login.keytab)
    memory = os.fsencode(f"MEMORY:barnabas {login.principal} {login.keytab}")
    try:
        return _acquired(raw, login, {b"client_keytab": keytab, b"ccache": memory}, "initiate")
    except raw.GSSError:
        # If the key is missing, the library says so only to those who would accept tickets with it.
        _acquired(raw, login, {b"keytab": keytab}, "accept")
        raise


def accepting_credentials(login: KerberosLogin, jaas_name: str) -> Any:
    """The keys of a listener. Raises InvalidConfig if they are not there."""
    raw = need_library()
    assert login.keytab is not None
    check_readable(login.keytab)
    try:
        return _acquired(raw, login, {b"keytab": os.fsencode(login.keytab)}, "accept")
    except raw.GSSError as error:
        raise InvalidConfig(
            f"{jaas_name}: the keytab has no key for {login.principal}: {reason_of(error)}. See klist -k"
            f" {login.keytab}"
        ) from None


def default_realm() -> str:
    """Of this machine; empty if it has none."""
    raw = need_library()
    try:
        name = raw.canonicalize_name(raw.import_name(b"any", raw.NameType.user), raw.MechType.kerberos)
        shown: bytes = raw.display_name(name, name_type=False).name
    except raw.GSSError:
        return ""
    return shown.decode("utf-8", "replace").rpartition("@")[2]


def reason_of(error: Any) -> str:
    """What the library says, in one line. The minor status is the one of Kerberos."""
    statuses = [] if not error.min_code else error.get_all_statuses(error.min_code, False)
    said = [each.decode("utf-8", "replace") if isinstance(each, bytes) else str(each) for each in statuses]
    if not any(said):
        said = [str(each) for each in error.get_all_statuses(error.maj_code, True)]
    return "; ".join(said)


def _acquired(raw: ModuleType, login: KerberosLogin, store: dict[bytes, bytes], usage: str) -> Any:
    name = None
    if login.principal not in (None, ANY_PRINCIPAL):
        assert login.principal is not None
        name = raw.import_name(login.principal.encode(), raw.NameType.kerberos_principal)
    return raw.acquire_cred_from(store, name, mechs={raw.MechType.kerberos}, usage=usage).creds


def check_readable(keytab: str) -> None:
    """The library only says that a key was not found. Raises InvalidConfig."""
    try:
        with open(keytab, "rb"):
            pass
    except OSError as error:
        raise InvalidConfig(f"the keytab {keytab} cannot be read: {error.strerror}") from None


def need_library() -> ModuleType:
    """Raises InvalidConfig if the extra is not installed."""
    try:
        import gssapi.raw as raw
    except ImportError as error:
        raise InvalidConfig(
            f"GSSAPI needs python-gssapi and the Kerberos library: pip install 'barnabas[gssapi]' ({error})"
        ) from None
    module: ModuleType = raw
    return module
