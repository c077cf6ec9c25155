"""Where Avro schemas live that values name by number: a Schema Registry, or a directory of `<id>.avsc` files.

A value in the registry's wire format begins with five bytes, big-endian:

     0       1                       5
    +-------+-----------------------+---------...
    | 0     | schema id (int32)     | Avro body
    +-------+-----------------------+---------...
"""

from __future__ import annotations

import base64
import functools
import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from struct import Struct
from typing import Any, Final

from barnabas.errors import InvalidConfig, NetworkException, ResourceNotFound

WIRE_HEADER: Final = Struct(
    ">b"  # magic: 0
    "i"  # schema id
)
assert WIRE_HEADER.size == 5
WIRE_MAGIC: Final = 0

TIMEOUT_S: Final = 10.0
ATTEMPTS_MAX: Final = 4
BACKOFF_S: Final = 0.2
RESPONSE_BYTES_MAX: Final = 8 << 20
REFERENCES_MAX: Final = 100
CACHED_SCHEMAS_MAX: Final = 1000


def location_shown(location: str) -> str:
    """A registry's address without user and password, for messages."""
    parts = urllib.parse.urlsplit(location)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if parts.netloc else location


class DirectoryRegistry:
    """Schemas in files `<id>.avsc`; there are no subjects."""

    def __init__(self, location: str) -> None:
        self._directory = Path(location)
        if not self._directory.is_dir():
            raise InvalidConfig(f"registry: {location} is neither an http(s) address nor a directory")

    def texts(self, schema_id: int) -> tuple[str, ...]:
        path = self._directory / f"{schema_id}.avsc"
        try:
            return (path.read_text("utf-8"),)
        except FileNotFoundError:
            raise ResourceNotFound(f"schema {schema_id}: there is no file {path}") from None

    def latest(self, subject: str) -> int:
        raise InvalidConfig(
            f"subject {subject!r}: a directory of schemas has no subjects; give the schema id instead"
        )

    def enroll(self, subject: str, schema: str) -> int:
        return self.latest(subject)


class HttpRegistry:
    """A Schema Registry behind its REST interface, as far as readers and writers of values need it."""

    def __init__(self, location: str) -> None:
        parts = urllib.parse.urlsplit(location)
        self._shown = location_shown(location)
        self._url = self._shown.rstrip("/")
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if parts.username is not None:
            login = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()

    def texts(self, schema_id: int) -> tuple[str, ...]:
        """The schema, and before it those that it borrows types from."""
        answer = self._ask(f"/schemas/ids/{schema_id}")
        borrowed: dict[str, str] = {}
        self._read_references(answer, borrowed, REFERENCES_MAX)
        return (*borrowed.values(), self._avro(answer, f"schema {schema_id}"))

    def latest(self, subject: str) -> int:
        answer = self._ask(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/latest")
        return int(answer["id"])

    def enroll(self, subject: str, schema: str) -> int:
        """The id of the schema in the subject, which gets it as its newest version unless it has it."""
        path = f"/subjects/{urllib.parse.quote(subject, safe='')}/versions"
        return int(self._ask(path, json.dumps({"schema": schema}).encode())["id"])

    def _avro(self, answer: dict[str, Any], what: str) -> str:
        if (kind := answer.get("schemaType", "AVRO")) != "AVRO":
            raise InvalidConfig(f"{what} of {self._shown} is of type {kind}, not AVRO")
        return str(answer["schema"])

    def _read_references(self, answer: dict[str, Any], borrowed: dict[str, str], left: int) -> int:
        """Adds the schemas that one refers to, each behind those that it refers to itself."""
        for reference in answer.get("references") or ():
            name, subject = reference["name"], urllib.parse.quote(reference["subject"], safe="")
            if name in borrowed:
                continue
            if left == 0:
                raise InvalidConfig(f"a schema of {self._shown} refers to more than {REFERENCES_MAX} others")
            found = self._ask(f"/subjects/{subject}/versions/{int(reference['version'])}")
            left = self._read_references(found, borrowed, left - 1)
            borrowed[name] = self._avro(found, name)
        return left

    def _ask(self, path: str, body: bytes | None = None) -> dict[str, Any]:
        headers = dict(self._headers)
        if body is not None:
            headers["Content-Type"] = "application/vnd.schemaregistry.v1+json"
        request = urllib.request.Request(self._url + path, data=body, headers=headers)
        trouble = ""
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                time.sleep(BACKOFF_S * 2**attempt)
            try:
                with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                    text = response.read(RESPONSE_BYTES_MAX)
            except urllib.error.HTTPError as error:
                with error:
                    detail = error.read(1000).decode("utf-8", "replace")
                if error.code == 404:
                    raise ResourceNotFound(f"{self._shown} knows no {path}: {detail}") from None
                if error.code < 500:
                    raise InvalidConfig(f"{self._shown}{path}: HTTP {error.code} {detail}") from None
                trouble = f"HTTP {error.code} {detail}"
            except (OSError, http.client.HTTPException) as error:
                trouble = str(error)
            else:
                try:
                    answer = json.loads(text)
                except ValueError:
                    answer = None
                if not isinstance(answer, dict):
                    raise InvalidConfig(f"{self._shown}{path} does not answer as a Schema Registry does")
                return answer
        raise NetworkException(f"the schema registry {self._shown} cannot be reached: {trouble}")


def open_registry(location: str) -> DirectoryRegistry | HttpRegistry:
    if location.startswith(("http://", "https://")):
        return HttpRegistry(location)
    return DirectoryRegistry(location)


@functools.lru_cache(maxsize=CACHED_SCHEMAS_MAX)
def registered_schema(location: str, schema_id: int) -> tuple[str, ...]:
    """A schema by its id, behind those it refers to. An id never changes its schema: it is asked for once a process."""
    return open_registry(location).texts(schema_id)
