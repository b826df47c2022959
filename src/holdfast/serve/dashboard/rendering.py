"""Templates into answers, with what every page needs around it.

Everything is escaped by default; no template marks a value as safe. The policy allows only what this server itself has
in files: no inline script, no inline style, no other host.
"""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from holdfast.domain.lifecycle import State
from holdfast.serve.dashboard import static, words
from holdfast.serve.dashboard.session import Visitor

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {"Content-Security-Policy": POLICY, "Cross-Origin-Opener-Policy": "same-origin"}
# What htmx is told: nothing that our policy would forbid, and no history of pages in the browser's storage.
HTMX = (
    '{"allowEval":false,"includeIndicatorStyles":false,"historyCacheSize":0,"selfRequestsOnly":true,'
    '"allowScriptTags":false,"defaultSwapStyle":"innerHTML","timeout":15000}'
)

NAVIGATION = (
    ("overview", "/", "Overview", "o"),
    ("jobs", "/jobs", "Jobs", "j"),
    ("queues", "/queues", "Queues", "q"),
    ("workers", "/workers", "Workers", "w"),
    ("sources", "/sources", "Sources", "s"),
    ("dead", "/dead", "Dead letters", "d"),
    ("schedules", "/schedules", "Schedules", "c"),
    ("audit", "/audit", "Audit", "a"),
)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("holdfast.serve.dashboard", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= words.FILTERS
    environment.globals |= {
        "static": static.address,
        "counted": words.counted,
        "states": tuple(State),
        "navigation": NAVIGATION,
        "htmx_config": HTMX,
        "NOTHING": words.NOTHING,
    }
    return environment


def is_fragment(request: Request) -> bool:
    return request.headers.get("hx-request") == "true"


def render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(**values)


async def page(
    request: Request, name: str, visitor: Visitor | None, *, status: int = 200, part: str | None = None, **values: Any
) -> HTMLResponse:
    """The page `name`.html; for a request of htmx only the part of it that is asked for.

    `part` is the template of the live region; the page includes the same one."""
    template = f"{name}.html" if part is None or not is_fragment(request) else part
    told = {**values, "visitor": visitor, "path": request.url.path, "here": name, "part": part}
    # A large page takes tenths of a second, for which nobody's heartbeat shall wait.
    text = await asyncio.to_thread(render, template, **told)
    return HTMLResponse(text, status, HEADERS)


async def fragment(template: str, visitor: Visitor, *, status: int = 200, **values: Any) -> HTMLResponse:
    return HTMLResponse(await asyncio.to_thread(render, template, visitor=visitor, **values), status, HEADERS)
