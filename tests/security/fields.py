"""Every field that an OpenAPI description has, and requests with a text of our choice in one of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from tests.serve.operations import Held, Operation, body_for

Step = str | int
ANY_KEY = "*"  # of an object that takes keys of the sender's choice


@dataclass(frozen=True)
class Field:
    operation: Operation
    place: str  # body, query, path
    at: tuple[Step, ...]

    def __str__(self) -> str:
        return f"{self.operation.method} {self.operation.path} {self.place}:{'.'.join(map(str, self.at))}"


@dataclass(frozen=True)
class Request:
    field: Field
    text: str  # the name of it
    method: str
    path: str
    params: dict[str, bytes]
    content: str | None

    def send(self, client: httpx.Client) -> httpx.Response:
        headers = {"Content-Type": "application/json"}
        return client.request(self.method, self.path, params=self.params, content=self.content, headers=headers)


def fields(description: dict[str, Any], operations: Sequence[Operation]) -> list[Field]:
    return [field for operation in operations for field in _fields(description, operation)]


def _fields(description: dict[str, Any], operation: Operation) -> Iterator[Field]:
    known = description["paths"][operation.path][operation.method]
    for parameter in known.get("parameters", []):
        yield Field(operation, parameter["in"], (parameter["name"],))
    if operation.has_body:
        schema = known["requestBody"]["content"]["application/json"]["schema"]
        places = dict.fromkeys(_texts(schema, description["components"]["schemas"], ()))
        yield from (Field(operation, "body", at) for at in places)


def _texts(schema: dict[str, Any], known: dict[str, Any], at: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    """Where a text may stand: also where anything may."""
    if "$ref" in schema:
        schema = known[schema["$ref"].rpartition("/")[2]]
    for choice in schema.get("anyOf", ()):
        yield from _texts(choice, known, at)
    match schema.get("type", "anything" if "anyOf" not in schema else "choice"):
        case "object":
            for name, inner in schema.get("properties", {}).items():
                yield from _texts(inner, known, (*at, name))
            if schema.get("additionalProperties", False) is not False:
                yield (*at, ANY_KEY)
        case "array":
            yield from _texts(schema.get("items", {}), known, (*at, 0))
        case "string" | "anything":
            yield at


def with_text(field: Field, name: str, text: str, job: Held) -> Request:
    """The request that would work, but for that one text."""
    operation = field.operation
    body = body_for(operation.path, job) if operation.has_body else None
    path, params = operation.path, {}
    raw = text.encode("utf-8", "surrogatepass")
    match field.place:
        case "body":
            body = _put(body, field.at, text)
        case "query":
            params[str(field.at[0])] = raw
        case _:
            path = path.replace(f"{{{field.at[0]}}}", quote(raw, safe=""))
    for name_of, value in {"job_id": job.job_id, "name": job.stream, "record_id": job.job_id}.items():
        path = path.replace(f"{{{name_of}}}", value)
    if path.endswith("/stream"):
        params.setdefault("seconds", b"0")
    # Surrogates as JSON escapes them: that is how they arrive.
    content = None if body is None else json.dumps(body)
    return Request(field, name, operation.method, path, params, content)


def _put(value: Any, at: tuple[Step, ...], text: str) -> Any:
    if not at:
        return text
    step, rest = at[0], at[1:]
    if isinstance(step, int):
        found = value if isinstance(value, list) and value else [None]
        return [_put(deepcopy(found[0]), rest, text)]
    known = dict(value) if isinstance(value, dict) else {}
    key = text if step == ANY_KEY else step
    return {**known, key: _put(known.get(key), rest, text)}
