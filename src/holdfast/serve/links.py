"""The first way in: a one-time link, printed when a control plane starts and there is no token yet.

The link shows a page with a button. Only the button uses the link up, so that a program that looks at links before
people do (a chat, a mail filter) takes nothing away. Whoever presses it first, on whichever control plane, gets an
admin token, shown this once, and is signed in to the dashboard. The link is a secret for as long as it works: it is
printed on standard error, for whoever started the server, and is in no record of the log.
"""

from __future__ import annotations

import base64
import hashlib
import html
from typing import TextIO
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from holdfast.domain.durations import spoken
from holdfast.domain.errors import ConfigurationError
from holdfast.domain.tokens import token_parts
from holdfast.ports import TokenStore
from holdfast.serve.addresses import is_loopback
from holdfast.serve.auth import get_authentication
from holdfast.serve.body import read_body
from holdfast.serve.dashboard.session import sign_in
from holdfast.serve.plane import PlaneDep

PATH = "/welcome"
LINK_SECONDS = 3600.0
MOST_FORM_BYTES = 1024
NOT_VALID = "link_not_valid"
ADVICE = "Make a token with: holdfast tokens create NAME --scope admin"

router = APIRouter(include_in_schema=False)


def check_bind(host: str, store: TokenStore) -> None:
    """A server that others can reach must have somebody whom it lets in, made by whoever has the store."""
    if not is_loopback(host) and not store.any_live_token():
        raise ConfigurationError(
            f"--host {host} can be reached from outside, and there is no token yet. {ADVICE}, or bind 127.0.0.1."
        )


def welcome(store: TokenStore, url: str, stream: TextIO) -> None:
    """Where there is no token yet, print a way to the first one. Also where the stream is no terminal: there the first
    start is the only moment to say it, and what is kept of it is worth nothing after its use, or after an hour."""
    if store.any_live_token():
        return
    link = store.create_admin_link(LINK_SECONDS)
    said = f"There is no token yet. This link gives an admin token, once, within {spoken(LINK_SECONDS)}:"
    print(f"\n{said}\n\n  {url.rstrip('/')}{PATH}?code={link.text}\n", file=stream, flush=True)


@router.get(PATH)
async def show(request: Request, code: str = "") -> HTMLResponse:
    """Asks the store nothing: whether the link is good is only known to whoever uses it."""
    if token_parts(code) is None:
        request.state.refusal = NOT_VALID
        return _no_good()
    return _page(
        "Welcome to Holdfast",
        "<p>This link gives you an admin token. It works once.</p>"
        f'<form method="post" action="{PATH}">'
        f'<input type="hidden" name="code" value="{html.escape(code, quote=True)}">'
        "<button>Show me the token</button></form>",
    )


@router.post(PATH)
async def exchange(request: Request, plane: PlaneDep) -> HTMLResponse:
    authentication = get_authentication(request)
    authentication.check_address(request)
    raw = await read_body(request, MOST_FORM_BYTES, plane.settings.limits)
    code = parse_qs(raw.decode("ascii", "replace")).get("code", [""])[0]
    issued = await plane.writes.call(lambda store: store.use_admin_link(code)) if token_parts(code) else None
    if issued is None:
        authentication.failed(request, NOT_VALID)
        return _no_good()
    response = _page(
        "Your admin token",
        f"<p>Keep it now: it is not shown again. Its name is <b>{html.escape(issued.token.name)}</b>.</p>"
        f"<pre>{html.escape(issued.text)}</pre>"
        "<p>Send it as <code>Authorization: Bearer …</code>. With it, or with <code>holdfast tokens create</code>,"
        " make one for each worker and program, and revoke this one when it is no longer needed.</p>"
        '<p>This browser is signed in: <a href="/">open the dashboard</a>.</p>',
    )
    sign_in(response, request, issued.text)
    return response


def _no_good() -> HTMLResponse:
    return _page(
        "This link does not work",
        "<p>It is not whole, was used before, or is more than an hour old. Nothing was changed.</p>"
        f"<p>{html.escape(ADVICE)}</p>",
        status=403,
    )


_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:40em;margin:4em auto;padding:0 1em}"
    "pre{white-space:pre-wrap;word-break:break-all;padding:1em;background:#eee;color:#111}"
    "button{font:inherit;padding:.5em 1em}"
)
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


def _page(title: str, body: str, status: int = 200) -> HTMLResponse:
    """One small page with nothing from elsewhere: no script, no font, no picture."""
    text = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body><h1>{title}</h1>{body}</body></html>"
    )
    return HTMLResponse(text, status, {"Content-Security-Policy": _POLICY})
