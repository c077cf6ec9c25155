"""JAAS entries as Kafka's settings contain them (`sasl.jaas.config`):

    org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="secret";

An entry names a class of Kafka's, a flag and options. The class must be that of the mechanism; the flag has no effect.
Values are quoted with ' or ", and may then contain escapes as in Java.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from barnabas.errors import InvalidConfig

PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
GSSAPI: Final = "com.sun.security.auth.module.Krb5LoginModule"
# By mechanism. The second one of GSSAPI is that of IBM's Java.
_MODULES: Final = {
    "PLAIN": (PLAIN,),
    "SCRAM-SHA-256": (SCRAM,),
    "SCRAM-SHA-512": (SCRAM,),
    "OAUTHBEARER": (OAUTHBEARER,),
    "GSSAPI": (GSSAPI, "com.ibm.security.auth.module.Krb5LoginModule"),
}
# Databricks has Kafka's classes under names of its own; such settings work here too.
_SHADED: Final = "kafkashaded."
_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_SPACE: Final = r"(?:\s|//[^\n]*(?:\n|$)|/\*.*?\*/)*"
_WORD: Final = r"[A-Za-z0-9_.$\-]+"
_TOKEN: Final = re.compile(
    rf"{_SPACE}(?:(?P<word>{_WORD})|(?P<quoted>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')|(?P<mark>[=;])|(?P<end>$))",
    re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-7]{1,3}|.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b"}
# More would hardly be written by hand, and Java's limit for a text is far above it.
LENGTH_MAX: Final = 1 << 20


class JaasEntry(NamedTuple):
    module: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        """Passwords do not belong into logs."""
        return f"JaasEntry({self.module}, [hidden])"

    def users(self) -> dict[str, str]:
        """The passwords by user that an entry of a broker has for PLAIN (`user_ann="secret"`)."""
        return {
            name.removeprefix("user_"): value
            for name, value in self.options.items()
            if name.startswith("user_")
        }


def parse_jaas(
    setting: str, text: str, mechanism: str | None = None, *, is_client: bool = False
) -> JaasEntry:
    """The one entry of a setting, with the class of the mechanism if one is given.

    As in Kafka, a client may name the class of SCRAM for PLAIN too: both take a user and a password.

    Raises InvalidConfig, which never contains the text: it has passwords.
    """
    if len(text) > LENGTH_MAX:
        raise InvalidConfig(f"{setting} has more than {LENGTH_MAX} characters")
    tokens = _tokens(setting, text)
    kind, module = next(tokens)
    if kind != "word":
        raise InvalidConfig(f"{setting} must begin with the class of a login module, such as {SCRAM}")
    kind, flag = next(tokens)
    if kind != "word" or flag.lower() not in _FLAGS:
        raise InvalidConfig(f"{setting}: the word after {module} must be one of {', '.join(sorted(_FLAGS))}")
    options: dict[str, str] = {}
    while True:
        kind, name = next(tokens)
        if (kind, name) == ("mark", ";"):
            break
        if kind not in ("word", "quoted"):
            raise InvalidConfig(f"{setting} must end with a semicolon")
        if next(tokens) != ("mark", "="):
            # The name may be the rest of a password with a space in it.
            raise InvalidConfig(
                f'{setting}: write each option as name="value", with quotation marks around a value that has spaces'
            )
        kind, value = next(tokens)
        if kind not in ("word", "quoted"):
            raise InvalidConfig(f'{setting}: option {name} has no value; write {name}="value"')
        options[name] = value
    if next(tokens)[0] != "end":
        raise InvalidConfig(f"{setting} must have one entry; there is more after the first semicolon")
    modules = _MODULES.get(mechanism or "")
    if is_client and mechanism == "PLAIN":
        modules = (PLAIN, SCRAM)
    if modules is not None and module.removeprefix(_SHADED) not in modules:
        raise InvalidConfig(f"{setting}: the class {module} is not for {mechanism}. Write {modules[0]}")
    return JaasEntry(module, options)


def _tokens(setting: str, text: str) -> Iterator[tuple[str, str]]:
    position = 0
    while True:
        found = _TOKEN.match(text, position)
        if found is None:
            raise InvalidConfig(
                f"{setting} cannot be read at character {position + 1}: is a quotation mark missing?"
            )
        position = found.end()
        kind = found.lastgroup or "end"
        value = found[kind]
        if kind == "quoted":
            value = _ESCAPE.sub(_unescape, value[1:-1])
        yield kind, value


def _unescape(found: re.Match[str]) -> str:
    escaped = found[1]
    if escaped[0] in "01234567":
        return chr(int(escaped, 8) & 0xFF)
    return _ESCAPES.get(escaped, escaped)
