"""A client of the Schema Registry's REST interface.

    registry = barnabas.SchemaRegistry("https://registry:8081", user="ann", password="secret", ca_file="ca.pem")
    serializer = barnabas.AvroSerializer(registry, schema)

It asks for a schema id once: an id never changes its schema. Calls block; any thread may make them. Several addresses
with commas are tried in turn. Failures of the network and of the server are tried again, within `timeout_ms`.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, cast

from barnabas.client.argument_hints import hinting
from barnabas.client.schemas.failures import SchemaNotFound, SchemaRegistryError, SchemaRegistryUnavailable
from barnabas.client.timeouts import refuse_other_types
from barnabas.errors import InvalidConfig

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"
TYPES: Final = (AVRO, JSON, PROTOBUF)

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
TIMEOUT_MS: Final = 30_000
BACKOFF_MS: Final = 100
BACKOFF_MS_MAX: Final = 2_000
RESPONSE_BYTES_MAX: Final = 16 << 20
SHOWN_CHARACTERS_MAX: Final = 500
CACHED_MAX: Final = 1_000
REFERENCES_MAX: Final = 100

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A schema that another one uses: `name` is how that one calls it."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as the registry has it: its text, AVRO, JSON or PROTOBUF, and the schemas that it refers to."""

    text: str
    type: str = AVRO
    references: tuple[SchemaReference, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSchema:
    """A version of a subject."""

    subject: str
    version: int
    schema_id: int
    schema: Schema


@hinting
class SchemaRegistry:
    """A Schema Registry at one or several addresses."""

    def __init__(
        self,
        url: str,
        *,
        user: str | None = None,
        password: str | None = None,
        token: str | None = None,
        ca_file: str | None = None,
        certificate_file: str | None = None,
        key_file: str | None = None,
        timeout_ms: float = TIMEOUT_MS,
    ) -> None:
        """`user` and `password` may also be in the address; `token` is a bearer token."""
        # A caller without type checks may have passed anything.
        if not isinstance(cast(object, url), str) or not url.strip():
            raise InvalidConfig(
                f"a schema registry has an address such as http://localhost:8081, and not {url!r}"
            )
        if token is not None and user is not None:
            raise InvalidConfig("give a user and password, or a token, for the schema registry; not both")
        refuse_other_types("SchemaRegistry", timeout_ms, allows_none=False)
        self._timeout_ms: Final = timeout_ms
        self._addresses: Final = [
            self._address(each.strip(), user, password, token) for each in url.split(",")
        ]
        handlers: list[urllib.request.BaseHandler] = []
        if any(address.startswith("https:") for address, _ in self._addresses):
            handlers.append(urllib.request.HTTPSHandler(context=_tls(ca_file, certificate_file, key_file)))
        elif ca_file or certificate_file or key_file:
            raise InvalidConfig(f"certificates for the schema registry need an https address, and not {url}")
        self._opener: Final = urllib.request.build_opener(*handlers)
        self._schemas: Final[_Cache[tuple[int, str], Schema]] = _Cache()
        self._ids: Final[_Cache[tuple[str, Schema, bool], int]] = _Cache()
        self._versions: Final[_Cache[tuple[str, int, str], RegisteredSchema]] = _Cache()

    def __repr__(self) -> str:
        return f"<SchemaRegistry {', '.join(address for address, _ in self._addresses)}>"

    def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        """The id of the schema. The subject gets it as a new version unless it has it already."""
        key = subject, schema, normalize
        known = self._ids.get(key)
        if known is None:
            path = f"/subjects/{_quoted(subject)}/versions{_query(normalize=normalize or None)}"
            known = int(self._ask("POST", path, _body(schema))["id"])
            self._ids.put(key, known)
        return known

    def lookup(self, subject: str, schema: Schema, *, normalize: bool = False) -> RegisteredSchema:
        """The version of the subject that has this schema; SchemaNotFound if there is none."""
        path = f"/subjects/{_quoted(subject)}{_query(normalize=normalize or None)}"
        found = _registered(self._ask("POST", path, _body(schema)))
        self._ids.put((subject, schema, normalize), found.schema_id)
        return found

    def schema(self, schema_id: int, *, format: str = "") -> Schema:  # noqa: A002 - the registry's name
        """The schema with this id. With `format="serialized"` a Protobuf schema is a descriptor in base64."""
        key = schema_id, format
        known = self._schemas.get(key)
        if known is None:
            path = f"/schemas/ids/{int(schema_id)}{_query(format=format or None)}"
            known = _schema(self._ask("GET", path))
            self._schemas.put(key, known)
        return known

    def version(
        self,
        subject: str,
        version: int | str = "latest",
        *,
        format: str = "",  # noqa: A002 - the registry's name
    ) -> RegisteredSchema:
        """A version of a subject, by default the latest, which is asked for at each call."""
        if isinstance(version, int):
            known = self._versions.get((subject, version, format))
            if known is not None:
                return known
        path = f"/subjects/{_quoted(subject)}/versions/{version}{_query(format=format or None)}"
        found = _registered(self._ask("GET", path))
        self._versions.put((subject, found.version, format), found)
        return found

    def subjects(self) -> list[str]:
        """All subjects."""
        return [str(each) for each in self._ask("GET", "/subjects")]

    def versions(self, subject: str) -> list[int]:
        """The versions of a subject."""
        return [int(each) for each in self._ask("GET", f"/subjects/{_quoted(subject)}/versions")]

    def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Deletes all versions of a subject. A permanent deletion needs an ordinary one before it."""
        path = f"/subjects/{_quoted(subject)}{_query(permanent=permanent or None)}"
        self._forget(subject)
        return [int(each) for each in self._ask("DELETE", path)]

    def delete_version(self, subject: str, version: int, *, permanent: bool = False) -> int:
        """Deletes one version of a subject."""
        path = f"/subjects/{_quoted(subject)}/versions/{version}{_query(permanent=permanent or None)}"
        self._forget(subject)
        return int(self._ask("DELETE", path))

    def compatibility(self, subject: str | None = None) -> str:
        """The rule for new versions of a subject, such as BACKWARD; the registry's default if there is no own rule."""
        path = "/config" if subject is None else f"/config/{_quoted(subject)}{_query(defaultToGlobal=True)}"
        answer = self._ask("GET", path)
        return str(answer.get("compatibilityLevel") or answer.get("compatibility"))

    def set_compatibility(self, level: str, subject: str | None = None) -> None:
        """Sets the rule for new versions of a subject, or the registry's default."""
        path = "/config" if subject is None else f"/config/{_quoted(subject)}"
        self._ask("PUT", path, {"compatibility": level})

    def is_compatible(self, subject: str, schema: Schema, version: int | str = "latest") -> bool:
        """Whether the schema may follow a version of the subject."""
        path = f"/compatibility/subjects/{_quoted(subject)}/versions/{version}"
        return bool(self._ask("POST", path, _body(schema))["is_compatible"])

    def referenced(self, schema: Schema, *, format: str = "") -> dict[str, Schema]:  # noqa: A002
        """The schemas that a schema refers to, by their names; each comes after those that it refers to itself."""
        found: dict[str, Schema] = {}
        self._collect(schema, format, found, set())
        return found

    def _collect(self, schema: Schema, form: str, found: dict[str, Schema], open_names: set[str]) -> None:
        for reference in schema.references:
            if reference.name in found or reference.name in open_names:
                continue
            if len(open_names) >= REFERENCES_MAX:
                raise SchemaRegistryError(f"a schema refers to more than {REFERENCES_MAX} others")
            open_names.add(reference.name)
            used = self.version(reference.subject, reference.version, format=form).schema
            self._collect(used, form, found, open_names)
            found[reference.name] = used

    def _forget(self, subject: str) -> None:
        self._ids.drop(lambda key: key[0] == subject)
        self._versions.drop(lambda key: key[0] == subject)

    def _ask(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
        """The answer of the first address that has one; network and server errors are tried again in turn."""
        deadline_s = time.monotonic() + self._timeout_ms / 1000
        backoff_ms: float = BACKOFF_MS
        trouble = SchemaRegistryUnavailable(f"{self!r} was not asked: timeout_ms={self._timeout_ms:g}")
        while True:
            for address, headers in self._addresses:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    raise trouble
                try:
                    return self._ask_one(method, address, path, headers, body, left_s)
                except SchemaRegistryUnavailable as error:
                    trouble = error
            if time.monotonic() + backoff_ms / 1000 >= deadline_s:
                raise trouble
            time.sleep(backoff_ms / 1000)
            backoff_ms = min(backoff_ms * 2, BACKOFF_MS_MAX)

    def _ask_one(
        self,
        method: str,
        address: str,
        path: str,
        headers: Mapping[str, str],
        body: Mapping[str, object] | None,
        timeout_s: float,
    ) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(address + path, data=data, headers=dict(headers), method=method)
        try:
            with self._opener.open(request, timeout=timeout_s) as answer:
                content = answer.read(RESPONSE_BYTES_MAX + 1)
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(
                    error.code, error.read(RESPONSE_BYTES_MAX), f"{method} {address}{path}"
                ) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise SchemaRegistryUnavailable(
                f"the schema registry {address} cannot be reached: {reason}"
            ) from None
        if len(content) > RESPONSE_BYTES_MAX:
            raise SchemaRegistryError(
                f"the answer of {address}{path} has more than {RESPONSE_BYTES_MAX} bytes"
            )
        try:
            return json.loads(content)
        except ValueError:
            raise SchemaRegistryError(
                f"{address}{path} does not answer as a schema registry does: {_shown(content)}"
            ) from None

    @staticmethod
    def _address(
        url: str, user: str | None, password: str | None, token: str | None
    ) -> tuple[str, dict[str, str]]:
        """An address without user and password, and the headers of requests to it."""
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidConfig(
                f"{url!r} is not the address of a schema registry, such as http://localhost:8081"
            )
        headers = {"Accept": f"{CONTENT_TYPE}, application/json", "Content-Type": CONTENT_TYPE}
        if user is None and parts.username is not None:
            user = urllib.parse.unquote(parts.username)
            password = urllib.parse.unquote(parts.password or "")
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        elif user is not None:
            login = base64.b64encode(f"{user}:{password or ''}".encode()).decode()
            headers["Authorization"] = f"Basic {login}"
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/"), headers


class _Cache(Generic[Key, Value]):
    """The values that were used last. Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: OrderedDict[Key, Value] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key]

    def put(self, key: Key, value: Value) -> None:
        with self._lock:
            self._values[key] = value
            if len(self._values) > CACHED_MAX:
                self._values.popitem(last=False)

    def drop(self, is_gone: Callable[[Key], bool]) -> None:
        with self._lock:
            for key in [each for each in self._values if is_gone(each)]:
                del self._values[key]


def _tls(ca_file: str | None, certificate_file: str | None, key_file: str | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca_file)
        if certificate_file is not None:
            context.load_cert_chain(certificate_file, key_file)
    except (OSError, ssl.SSLError) as error:
        named = ", ".join(each for each in (ca_file, certificate_file, key_file) if each)
        raise InvalidConfig(
            f"the certificates for the schema registry cannot be read ({named}): {error}"
        ) from None
    return context


def _refusal(status: int, content: bytes, what: str) -> SchemaRegistryError:
    error_code, message = 0, _shown(content)
    try:
        told = json.loads(content)
        error_code, message = int(told["error_code"]), str(told["message"])
    except (ValueError, TypeError, KeyError):
        pass
    text = f"{what}: HTTP {status}: {message}"
    kind: type[SchemaRegistryError] = SchemaRegistryError
    if status == 404:
        kind = SchemaNotFound
    elif status >= 500 or status in (408, 429):
        kind = SchemaRegistryUnavailable
    elif status in (401, 403):
        text += "; check user and password, or the token"
    return kind(text, status=status, error_code=error_code)


def _shown(content: bytes) -> str:
    return content[:SHOWN_CHARACTERS_MAX].decode("utf-8", "replace")


def _quoted(subject: str) -> str:
    return urllib.parse.quote(subject, safe="")


def _query(**fields: object) -> str:
    """The fields that are set; the registry's names keep their capitals."""
    given = {name: str(value).lower() for name, value in fields.items() if value is not None}
    return f"?{urllib.parse.urlencode(given)}" if given else ""


def _body(schema: Schema) -> dict[str, object]:
    body: dict[str, object] = {"schema": schema.text}
    # The registry's default, which old ones alone know.
    if schema.type != AVRO:
        body["schemaType"] = schema.type
    if schema.references:
        body["references"] = [
            {"name": each.name, "subject": each.subject, "version": each.version}
            for each in schema.references
        ]
    return body


def _schema(answer: Mapping[str, Any]) -> Schema:
    references = tuple(
        SchemaReference(str(each["name"]), str(each["subject"]), int(each["version"]))
        for each in answer.get("references") or ()
    )
    return Schema(str(answer["schema"]), str(answer.get("schemaType") or AVRO), references)


def _registered(answer: Mapping[str, Any]) -> RegisteredSchema:
    return RegisteredSchema(
        subject=str(answer["subject"]),
        version=int(answer["version"]),
        schema_id=int(answer["id"]),
        schema=_schema(answer),
    )
