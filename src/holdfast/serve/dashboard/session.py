"""Who looks at the dashboard.

Signing in puts the token itself into a cookie that no script can read and no form of another site can send (HttpOnly,
SameSite=Lax: a link in a chat still finds its reader signed in). So there is nothing to store and nothing to forge,
every control plane of a fleet knows the visitor, and a token that is revoked or rotated is signed out at once. The
cookie is worth nothing to the API, which reads only the Authorization header; the pages, on the other hand, read only
the cookie.

Whatever changes something is a POST that shows it comes from one of our pages: by the `Sec-Fetch-Site` or `Origin` that
the browser sends, and by a word made from the token that only our pages know.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

from fastapi import Depends, Request, Response

from holdfast.domain.tokens import Scope
from holdfast.serve.auth import Identity, get_authentication
from holdfast.serve.body import read_body
from holdfast.serve.problems import Refused

_COOKIE = "holdfast_token"
COOKIE_SECONDS = 7 * 86_400
MOST_FORM_BYTES = 256 * 1024
MOST_FIELDS = 100
CSRF_HEADER = "x-csrf-token"
CSRF_FIELD = "csrf"
_CSRF_KEY = b"holdfast dashboard: this form is ours"


class SignInNeeded(Exception):
    """Nobody is signed in, or not any more."""


@dataclass(frozen=True, slots=True)
class Visitor:
    identity: Identity
    csrf: str = field(repr=False)

    @property
    def may_write(self) -> bool:
        return self.identity.may((Scope.CLIENT,))

    @property
    def sees_all(self) -> bool:
        """Some things belong to no queue; a token that is limited to queues does not see them."""
        return self.identity.queues is None


def cookie_of(request: Request) -> str:
    return cookie_name(request.url.port, secure=_is_secure(request))


def cookie_name(port: int | None, *, secure: bool = False) -> str:
    """Programs of one host share its cookies, whatever their ports: two control planes must not take each other's. Over
    TLS the browser itself sees to it that no other host can set it."""
    if secure:
        return f"__Host-{_COOKIE}"
    return _COOKIE if port is None else f"{_COOKIE}_{port}"


def _is_secure(request: Request) -> bool:
    """A proxy that says so may be anybody's; a cookie that is only sent over TLS does no harm."""
    forwarded = request.headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower()
    return "https" in (request.url.scheme, forwarded)


async def visitor(request: Request) -> Visitor:
    token = request.cookies.get(cookie_of(request))
    if not token:
        raise SignInNeeded
    try:
        identity = await get_authentication(request).identify_text(request, token)
    except Refused as refused:
        if refused.status == 401:
            raise SignInNeeded from None
        raise
    if not identity.may((Scope.CLIENT, Scope.VIEWER)):
        request.state.refusal = "wrong_scope"
        raise Refused(403, "Not for this token", "the dashboard needs a token with scope viewer, client or admin")
    return Visitor(identity, csrf_word(token))


async def writer(request: Request, found: Annotated[Visitor, Depends(visitor)]) -> Visitor:
    """Somebody who may change things, and means to: it was one of our pages that asked."""
    await check_origin(request, found.csrf)
    if not found.may_write:
        request.state.refusal = "wrong_scope"
        raise Refused(403, "Not for this token", "this token may look, and not change anything; sign in with another")
    return found


VisitorDep = Annotated[Visitor, Depends(visitor)]
WriterDep = Annotated[Visitor, Depends(writer)]


async def form_of(request: Request) -> dict[str, list[str]]:
    """The fields of a form that was sent, read once."""
    kept: dict[str, list[str]] | None = getattr(request.state, "form", None)
    if kept is None:
        raw = await read_body(request, MOST_FORM_BYTES, request.app.state.plane.settings.limits)
        kept = {}
        try:
            text = raw.decode()
            fields = parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
        except UnicodeDecodeError:  # with other characters in their place, it would name something else
            raise Refused(422, "That does not work", "the form is not UTF-8") from None
        except ValueError:
            raise Refused(413, "Too large", f"a form may have {MOST_FIELDS} fields") from None
        for name, value in fields:
            kept.setdefault(name, []).append(value)
        request.state.form = kept
    return kept


async def one_of(request: Request, name: str, fallback: str = "") -> str:
    """As it was sent: a name may begin or end with a space."""
    return (await form_of(request)).get(name, [fallback])[0]


async def check_origin(request: Request, csrf: str) -> None:
    check_same_site(request)
    given = request.headers.get(CSRF_HEADER) or await one_of(request, CSRF_FIELD)
    if not hmac.compare_digest(given.encode(), csrf.encode()):
        request.state.refusal = "csrf"
        raise Refused(403, "This form is not ours", "open the page again and repeat what you did; nothing was changed")


def check_same_site(request: Request) -> None:
    """What every browser says of where a request comes from. Forms of other sites end here."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None:
        is_ours = site in ("same-origin", "none")
    else:
        is_ours = origin is None or _host_of(origin) == request.headers.get("host")
    if not is_ours:
        request.state.refusal = "csrf"
        raise Refused(403, "This form is not ours", "another site sent this request; nothing was changed")


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def csrf_word(token: str) -> str:
    return hmac.new(token.encode(), _CSRF_KEY, hashlib.sha256).hexdigest()


def sign_in(response: Response, request: Request, token: str) -> None:
    response.set_cookie(
        cookie_of(request),
        token,
        max_age=COOKIE_SECONDS,
        path="/",
        secure=_is_secure(request),
        httponly=True,
        samesite="lax",
    )


def sign_out(response: Response, request: Request) -> None:
    secure = _is_secure(request)
    response.delete_cookie(cookie_of(request), path="/", secure=secure, httponly=True, samesite="lax")


def safe_next(text: str) -> str:
    """Where to go after the sign-in: a path of ours, and nothing that a browser could take for another host."""
    is_ours = text.startswith("/") and not text.startswith(("//", "/\\")) and "\\" not in text
    return text if is_ours and text.isprintable() else "/"
