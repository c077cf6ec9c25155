"""Databases for tests: fixtures, which conftest.py makes known."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.spark.databases.connection import connected, execute, parse_url
from tests.spark.postgres_server import postgres_server

__all__ = ["database_url", "postgres", "run"]


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a PostgreSQL server, one for all tests."""
    with postgres_server() as running:
        yield running


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without tables, for this test alone: a file, or a schema that is the first of the search path."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/test.db"
    base: str = request.getfixturevalue("postgres")
    schema = f"test_{os.urandom(6).hex()}"
    run(base, f"CREATE SCHEMA {schema}")
    return f"{base}?options=-c%20search_path%3D{schema}"


def run(url: str, *statements: str) -> None:
    with connected(parse_url(url)) as connection:
        for statement in statements:
            execute(connection, statement)
        connection.commit()
