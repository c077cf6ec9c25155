"""Connections to PostgreSQL and SQLite through ADBC, and what differs between the two."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from barnabas.errors import (
    ConcurrentTransactions,
    InvalidConfig,
    InvalidRecord,
    KafkaError,
    NetworkException,
    PolicyViolation,
    ResourceNotFound,
    UnknownServerError,
)

if TYPE_CHECKING:
    from adbc_driver_manager.dbapi import Connection, Cursor

BUSY_TIMEOUT_S: Final = 300
CONNECT_TIMEOUT_S: Final = 30
HIDDEN: Final = "***"

# The meaning of the first characters of an SQLSTATE; the longest match counts.
ERROR_OF_SQLSTATE: Final[dict[str, type[KafkaError]]] = {
    "08": NetworkException,
    "22": InvalidRecord,
    "23": InvalidRecord,
    "28": PolicyViolation,
    "40": ConcurrentTransactions,
    "3D": ResourceNotFound,
    "3F": ResourceNotFound,
    "42": InvalidConfig,
    "42501": PolicyViolation,
    "42P01": ResourceNotFound,
    "55P03": ConcurrentTransactions,
    "57": NetworkException,
}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Database:
    """Where a database is. Its `repr` and its errors never show a password."""

    url: str
    kind: Literal["postgresql", "sqlite"]

    @property
    def shown(self) -> str:
        return hide_password(self.url, self.url)

    def __repr__(self) -> str:
        return f"Database({self.shown})"

    @property
    def path(self) -> str:
        """Of SQLite: the file. Three slashes begin a relative path and four an absolute one, as is the custom."""
        return urllib.parse.unquote(self.url.removeprefix("sqlite:///"))


def parse_url(url: str) -> Database:
    if url.startswith(("postgresql://", "postgres://")):
        return Database(url=url, kind="postgresql")
    if url.startswith("sqlite:///") and len(url) > len("sqlite:///"):
        return Database(url=url, kind="sqlite")
    shown = hide_password(url, url)
    raise InvalidConfig(f"url: {shown!r} is neither postgresql://user@host/database nor sqlite:///file")


def hide_password(text: str, url: str) -> str:
    """The text without the password of the URL, in whichever way it is written."""
    match = re.match(r"[a-z]+://[^/@]*?:([^/]*)@", url)
    secrets = {match[1], urllib.parse.unquote(match[1])} if match else set()
    query = urllib.parse.urlsplit(url).query if "?" in url else ""
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if "password" in name.lower():
            secrets |= {value, urllib.parse.unquote(value), urllib.parse.unquote_plus(value)}
    for secret in sorted(secrets - {""}, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def identifier(name: str) -> str:
    if "\0" in name or not name:
        raise InvalidConfig(f"{name!r} cannot be the name of a table or a column")
    return '"' + name.replace('"', '""') + '"'


def literal(value: int | str | None) -> str:
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''").replace("\0", "") + "'"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableName:
    schema: str | None
    name: str

    @property
    def quoted(self) -> str:
        return (
            identifier(self.name)
            if self.schema is None
            else f"{identifier(self.schema)}.{identifier(self.name)}"
        )

    def sibling(self, name: str) -> TableName:
        return TableName(schema=self.schema, name=name)

    def __str__(self) -> str:
        return self.name if self.schema is None else f"{self.schema}.{self.name}"


_PART: Final = r'(?:"(?:[^"]|"")+"|[^".]+)'


def parse_table(text: str) -> TableName:
    """`orders`, `sales.orders` or `"with.dots"`; names are taken as they are written, capitals too."""
    match = re.fullmatch(rf"(?:({_PART})\.)?({_PART})", text.strip())
    if match is None:
        raise InvalidConfig(f"table: {text!r} is not a name such as orders or sales.orders")
    schema, name = (
        part[1:-1].replace('""', '"') if part is not None and part.startswith('"') else part
        for part in match.groups()
    )
    return TableName(schema=schema, name=name)


@contextmanager
def connected(database: Database, *, lock_timeout_s: int = BUSY_TIMEOUT_S) -> Iterator[Connection]:
    """A connection inside a transaction, undone unless it is committed. Errors are ours, without a password."""
    try:
        import adbc_driver_manager
        import adbc_driver_postgresql.dbapi  # type: ignore[import-untyped]
        import adbc_driver_sqlite.dbapi
    except ImportError as missing:
        raise InvalidConfig(
            f"databases need {missing.name}, which is not installed: pip install 'barnabas[spark]'"
        ) from None
    connection: Connection | None = None
    try:
        if database.kind == "sqlite":
            connection = adbc_driver_sqlite.dbapi.connect(database.path)
            execute(connection, f"PRAGMA busy_timeout = {lock_timeout_s * 1000}")
        else:
            connection = adbc_driver_postgresql.dbapi.connect(_with_timeout(database.url))
            execute(connection, f"SET LOCAL lock_timeout = {lock_timeout_s * 1000}")
            execute(connection, "SET LOCAL TIME ZONE 'UTC'")
        yield connection
    except adbc_driver_manager.Error as error:
        raise _translated(error, database) from None
    finally:
        if connection is not None:
            connection.close()


def _with_timeout(url: str) -> str:
    if "connect_timeout=" in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}connect_timeout={CONNECT_TIMEOUT_S}"


def _translated(error: Exception, database: Database) -> KafkaError:
    sqlstate = str(getattr(error, "sqlstate", None) or "")
    text = str(error).partition("\n\nQuery was:")[0]
    text = re.sub(r"\A[A-Z_]+: (?:\[libpq\] )?", "", text)
    text = " ".join(re.sub(r"\.? *SQLSTATE: \w+\s*\Z", "", text).split())
    kind: type[KafkaError] = UnknownServerError
    # SQLite has no SQLSTATE.
    if "Failed to connect" in text:
        kind = NetworkException
    elif "database is locked" in text:
        kind = ConcurrentTransactions
    elif "constraint failed" in text:
        kind = InvalidRecord
    for length in (5, 2):
        if sqlstate[:length] in ERROR_OF_SQLSTATE:
            kind = ERROR_OF_SQLSTATE[sqlstate[:length]]
            break
    return kind(f"{database.shown}: {hide_password(text, database.url)}")


@contextmanager
def cursor_of(connection: Connection) -> Iterator[Cursor]:
    cursor = connection.cursor()
    try:
        yield cursor
    finally:
        cursor.close()


def execute(connection: Connection, statement: str) -> None:
    with cursor_of(connection) as cursor:
        cursor.execute(statement)


def rows_of(connection: Connection, query: str) -> list[tuple[Any, ...]]:
    """The rows of a query that has few."""
    with cursor_of(connection) as cursor:
        return cursor.execute(query).fetchall()
