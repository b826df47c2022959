"""`/openapi.json`, and `/docs`: the same as a page of plain HTML, that loads nothing from anywhere."""

from __future__ import annotations

import asyncio
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse

router = APIRouter(include_in_schema=False)

_METHODS = ("get", "post", "put", "patch", "delete")
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }}
code {{ font: 0.9em ui-monospace, monospace }}
dt {{ margin-top: 1rem }} dd {{ margin-left: 1.5rem }}
</style></head><body>
<h1>{title} {version}</h1>
<p>{description}</p>
<p>The whole description, for programs: <a href="openapi.json">openapi.json</a>. Every request but those for its health
carries <code>Authorization: Bearer …</code>.</p>
{groups}
</body></html>
"""


@router.get("/openapi.json")
async def openapi(request: Request) -> JSONResponse:
    return JSONResponse(await _description(request))


@router.get("/docs")
async def docs(request: Request) -> HTMLResponse:
    policy = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
    return HTMLResponse(page(await _description(request)), headers=policy)


async def _description(request: Request) -> dict[str, Any]:
    """Made once, in a thread: it takes longer than a heartbeat should wait."""
    return await asyncio.to_thread(request.app.openapi)


def page(description: dict[str, Any]) -> str:
    groups: dict[str, list[str]] = {}
    for path, operations in description["paths"].items():
        for method in (method for method in _METHODS if method in operations):
            operation = operations[method]
            tag = (operation.get("tags") or ["other"])[0]
            groups.setdefault(tag, []).append(_operation(method, path, operation, description))
    sections = [f"<h2>{escape(tag)}</h2><dl>{''.join(items)}</dl>" for tag, items in groups.items()]
    about = {name: escape(str(description["info"].get(name, ""))) for name in ("title", "version", "description")}
    return _PAGE.format(**about, groups="\n".join(sections))


def _operation(method: str, path: str, operation: dict[str, Any], description: dict[str, Any]) -> str:
    said = escape(operation.get("description") or operation.get("summary", ""))
    details = [said, *_parameters(operation), *_body(operation, description)]
    return f"<dt><code>{method.upper()} {escape(path)}</code></dt><dd>{'<br>'.join(filter(None, details))}</dd>"


def _parameters(operation: dict[str, Any]) -> list[str]:
    names = [parameter["name"] for parameter in operation.get("parameters", [])]
    return [f"Parameters: {_codes(names)}"] if names else []


def _body(operation: dict[str, Any], description: dict[str, Any]) -> list[str]:
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    properties = description.get("components", {}).get("schemas", {}).get(name, schema).get("properties", {})
    return [f"Body: {_codes(properties)}"] if properties else []


def _codes(names: Any) -> str:
    return ", ".join(f"<code>{escape(str(name))}</code>" for name in names)
