"""A small Schema Registry in this process: real HTTP, the REST interface of Confluent's, schemas in memory.

It answers what clients of records need: register, look up, read by id and by version, delete, compatibility settings.
Like the original it gives one id to one schema, whatever its subjects, and a Protobuf schema as a descriptor in base64
when it is asked for `format=serialized`. It does not check compatibility: `incompatible` names subjects that refuse.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit


class Refused(Exception):
    def __init__(self, status: int, error_code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.error_code = error_code


class RegistryServer:
    def __init__(self, *, user: str = "", password: str = "", tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[str] = []
        self.incompatible: set[str] = set()
        # How many of the next requests are answered with 503.
        self.failures = 0
        self._login = base64.b64encode(f"{user}:{password}".encode()).decode() if user else ""
        self._ids: dict[str, int] = {}
        self._subjects: dict[str, list[dict[str, Any] | None]] = {}
        self._levels: dict[str, str] = {}
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                try:
                    status, answer = 200, outer.answer(self.command, self.path, body, dict(self.headers))
                except Refused as refused:
                    status = refused.status
                    answer = {"error_code": refused.error_code, "message": str(refused)}
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815 - the base class calls them so

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def answer(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Any:
        with self._lock:
            parts = urlsplit(path)
            self.requests.append(f"{method} {path}")
            if self._login and headers.get("Authorization") != f"Basic {self._login}":
                raise Refused(401, 40101, "Unauthorized")
            if self.failures > 0:
                self.failures -= 1
                raise Refused(503, 50301, "Leader not known")
            query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
            return self._answer(method, [unquote(each) for each in parts.path.split("/")[1:]], query, body)

    def _answer(self, method: str, path: list[str], query: dict[str, str], body: Any) -> Any:
        match method, path:
            case "GET", ["subjects"]:
                return [name for name, versions in self._subjects.items() if any(versions)]
            case "POST", ["subjects", subject, "versions"]:
                return {"id": self._register(subject, body)}
            case "POST", ["subjects", subject]:
                return self._lookup(subject, body)
            case "GET", ["subjects", subject, "versions"]:
                return [index + 1 for index, each in enumerate(self._known(subject)) if each is not None]
            case "GET", ["subjects", subject, "versions", version]:
                return self._version(subject, version)
            case "DELETE", ["subjects", subject]:
                return [index + 1 for index, _ in enumerate(self._subjects.pop(subject, []))]
            case "DELETE", ["subjects", subject, "versions", version]:
                self._known(subject)[int(version) - 1] = None
                return int(version)
            case "GET", ["schemas", "ids", number]:
                return self._by_id(int(number))
            case "GET", ["config", *subject]:
                return {"compatibilityLevel": self._levels.get("".join(subject), "BACKWARD")}
            case "PUT", ["config", *subject]:
                self._levels["".join(subject)] = body["compatibility"]
                return body
            case "POST", ["compatibility", "subjects", subject, "versions", _]:
                return {"is_compatible": subject not in self.incompatible}
        raise Refused(404, 404, "HTTP 404 Not Found")

    def _register(self, subject: str, body: Any) -> int:
        if subject in self.incompatible:
            raise Refused(409, 409, "Schema being registered is incompatible with an earlier schema")
        for reference in body.get("references") or ():
            self._version(reference["subject"], str(reference["version"]))
        text = json.dumps([body.get("schemaType", "AVRO"), body["schema"], body.get("references") or []])
        schema_id = self._ids.setdefault(text, len(self._ids) + 1)
        versions = self._subjects.setdefault(subject, [])
        if not any(each is not None and each["id"] == schema_id for each in versions):
            versions.append({"subject": subject, "version": len(versions) + 1, "id": schema_id, **body})
        return schema_id

    def _lookup(self, subject: str, body: Any) -> Any:
        for each in self._known(subject):
            if each is not None and all(
                (each.get(field) or None) == (body.get(field) or None) for field in ("schema", "references")
            ):
                return each
        raise Refused(404, 40403, "Schema not found")

    def _known(self, subject: str) -> list[dict[str, Any] | None]:
        if subject not in self._subjects:
            raise Refused(404, 40401, f"Subject '{subject}' not found.")
        return self._subjects[subject]

    def _version(self, subject: str, version: str) -> Any:
        versions = self._known(subject)
        index = len(versions) if version in ("latest", "-1") else int(version)
        if not 0 < index <= len(versions) or versions[index - 1] is None:
            raise Refused(404, 40402, f"Version {version} not found.")
        return versions[index - 1]

    def _by_id(self, number: int) -> Any:
        for versions in self._subjects.values():
            for each in versions:
                if each is not None and each["id"] == number:
                    return each
        raise Refused(404, 40403, f"Schema {number} not found")
