"""The OpenAPI document of the routes. `docs/console-openapi.json` is a copy, which a test compares with the routes."""

from __future__ import annotations

import re
from typing import Any, Final

from barnabas import __version__
from barnabas.console.api.guard import CHANGE_HEADER
from barnabas.console.api.routes import ROUTES, Route

_IN_PATH: Final = re.compile(r"\{(\w+)(?::(\w+))?\}")
_ERROR: Final = {
    "description": "An error: Kafka's name of it, and a message that says what to do.",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "properties": {"error": {"type": "string"}, "message": {"type": "string"}},
            }
        }
    },
}


def document() -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        path = _IN_PATH.sub(lambda found: "{" + found[1] + "}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Barnabas console",
            "version": __version__,
            "description": f"A change needs the header {CHANGE_HEADER}. A read-only console refuses changes.",
        },
        "paths": paths,
    }


def _operation(route: Route) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "integer" if kind == "int" else "string"},
        }
        for name, kind in _IN_PATH.findall(route.path)
    ]
    parameters += [
        {
            "name": each.name,
            "in": "query",
            "description": each.description,
            "schema": {"type": each.type},
        }
        for each in route.parameters
    ]
    operation: dict[str, Any] = {
        "summary": route.summary,
        "parameters": parameters,
        "responses": {
            "200": {"description": "The result.", "content": {route.media_type: {}}},
            "default": _ERROR,
        },
    }
    if route.method != "GET":
        parameters.append(
            {"name": CHANGE_HEADER, "in": "header", "required": True, "schema": {"type": "string"}}
        )
        operation["requestBody"] = {
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "properties": {name: {"description": text} for name, text in route.body.items()},
                    }
                }
            }
        }
    return operation
