"""Users that a broker creates when it starts, as `kafka-storage format --add-scram` of Kafka writes them:

SCRAM-SHA-256=[name=ann,password=secret]
SCRAM-SHA-512=[name=ann,iterations=8192,salt="BASE64",saltedpassword="BASE64"]

All users of a machine see the arguments of a process. So `@FILE` names a file with such lines, `@-` is the standard
input, and a user without a password is asked for.
"""

from __future__ import annotations

import base64
import binascii
import re
import sys
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from barnabas.errors import InvalidConfig
from barnabas.security.sasl import SCRAM_HASHES

ITERATIONS: Final = 4_096
ITERATIONS_MAX: Final = 16_384
FILE_CHARACTERS_MAX: Final = 1 << 20
_SALT_BYTES: Final = 32
_FORM: Final = "write it as 'SCRAM-SHA-256=[name=USER,password=PASSWORD]'"
_ARGUMENT: Final = re.compile(r"(SCRAM-SHA-(?:256|512))=\[(.*)\]", re.DOTALL)
_FIELD: Final = re.compile(r"\s*(name|password|salt|saltedpassword|iterations)=(\"[^\"]*\"|[^,]*)\s*(?:,|$)")


class NewUser(NamedTuple):
    name: str
    mechanism: str
    salt: bytes
    salted_password: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"NewUser({self.name}, {self.mechanism}, [hidden])"


def new_users(texts: Iterable[str], ask: Callable[[str], str]) -> list[NewUser]:
    """From the values of `--add-scram`. `ask` returns the password of a user. Raises InvalidConfig."""
    users = []
    for text in texts:
        lines = _lines_of(text[1:]) if text.startswith("@") else [text]
        users += [parse_new_user(line, ask) for line in lines]
    return users


def _lines_of(path: str) -> list[str]:
    try:
        if path == "-":
            content = sys.stdin.read(FILE_CHARACTERS_MAX + 1)
        else:
            with open(path, encoding="utf-8") as file:
                content = file.read(FILE_CHARACTERS_MAX + 1)
    except (OSError, ValueError) as error:
        raise InvalidConfig(f"--add-scram: {path} cannot be read: {error}") from None
    if len(content) > FILE_CHARACTERS_MAX:
        raise InvalidConfig(f"--add-scram: {path} has more than {FILE_CHARACTERS_MAX} characters")
    return [line for line in content.splitlines() if line.strip() and not line.startswith("#")]


def parse_new_user(text: str, ask: Callable[[str], str] | None = None) -> NewUser:
    """Raises InvalidConfig, which does not have the password."""
    found = _ARGUMENT.fullmatch(text.strip())
    if found is None:
        raise InvalidConfig(f"--add-scram: {_FORM}")
    mechanism, rest = found[1], found[2]
    fields: dict[str, str] = {}
    position = 0
    while position < len(rest):
        field = _FIELD.match(rest, position)
        if field is None:
            raise InvalidConfig(f"--add-scram: {_FORM}")
        fields[field[1]] = field[2].strip('"')
        position = field.end()
    name, password = fields.get("name"), fields.get("password")
    if not name:
        raise InvalidConfig(f"--add-scram has no name: {_FORM}")
    if password is None and "saltedpassword" not in fields and ask is not None:
        password = ask(name)
    if (password is None) == ("saltedpassword" not in fields):
        raise InvalidConfig("--add-scram needs either password or saltedpassword")
    iterations = _iterations(fields.get("iterations", str(ITERATIONS)))
    if password is None:
        if "salt" not in fields:
            raise InvalidConfig("--add-scram: saltedpassword needs the salt that it was made with")
        return NewUser(
            name, mechanism, _decoded(fields, "salt"), _decoded(fields, "saltedpassword"), iterations
        )
    salt = _decoded(fields, "salt") if "salt" in fields else None
    return new_user(name, password, mechanism, iterations, salt)


def new_user(
    name: str, password: str, mechanism: str, iterations: int = ITERATIONS, salt: bytes | None = None
) -> NewUser:
    import secrets

    from barnabas.security.scram import salted_password

    assert mechanism in SCRAM_HASHES
    salt = secrets.token_bytes(_SALT_BYTES) if salt is None else salt
    return NewUser(name, mechanism, salt, salted_password(mechanism, password, salt, iterations), iterations)


def new_user_text(user: NewUser) -> str:
    """What `parse_new_user` reads; it has no password."""
    salt, salted = (base64.b64encode(each).decode() for each in (user.salt, user.salted_password))
    return f'{user.mechanism}=[name="{user.name}",iterations={user.iterations},salt="{salt}",saltedpassword="{salted}"]'


def _iterations(text: str) -> int:
    if not (
        text.isascii() and text.isdigit() and len(text) < 9 and ITERATIONS <= int(text) <= ITERATIONS_MAX
    ):
        raise InvalidConfig(
            f"--add-scram: iterations={text} must be between {ITERATIONS} and {ITERATIONS_MAX}"
        )
    return int(text)


def _decoded(fields: dict[str, str], name: str) -> bytes:
    try:
        return base64.b64decode(fields[name], validate=True)
    except binascii.Error:
        raise InvalidConfig(f"--add-scram: {name} must be in base 64") from None
