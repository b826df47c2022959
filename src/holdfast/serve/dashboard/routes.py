"""A route of the dashboard: what goes wrong in it is said on a page, or in the corner of the one that is open."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute

from holdfast.domain.errors import HoldfastError, InvalidInput, NotFound, StoreUnavailable
from holdfast.serve.dashboard.rendering import HEADERS, is_fragment, render
from holdfast.serve.dashboard.session import SignInNeeded
from holdfast.serve.problems import Refused

SIGN_IN = "/sign-in"


class PageRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def on_a_page(request: Request) -> Response:
            try:
                return await handle(request)
            except SignInNeeded:
                return _to_sign_in(request)
            except (Refused, HoldfastError, RequestValidationError) as error:
                return problem_page(request, *_said(error))

        return on_a_page


def _to_sign_in(request: Request) -> Response:
    if is_fragment(request):
        # The page that is open goes there as a whole. 204: nothing of this answer belongs on it.
        return Response(status_code=204, headers={**HEADERS, "HX-Redirect": SIGN_IN})
    if request.method != "GET":
        return RedirectResponse(SIGN_IN, 303, HEADERS)
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    address = SIGN_IN if wanted == "/" else f"{SIGN_IN}?next={quote(wanted, safe='/')}"
    return RedirectResponse(address, 303, HEADERS)


def _said(error: Exception) -> tuple[int, str, str, dict[str, str]]:
    match error:
        case Refused():
            return error.status, error.title, error.detail, error.headers
        case NotFound():
            return 404, "Not there", str(error), {}
        case InvalidInput():
            return 422, "That does not work", str(error), {}
        case StoreUnavailable():
            said = "The store does not answer. This page comes back by itself as soon as it does."
            return 503, "The store is away", said, {"Retry-After": "2"}
        case RequestValidationError():
            first = error.errors()[0]
            return 422, "That does not work", f"{first['loc'][-1]}: {first['msg']}", {}
        case _:
            return 503, "The store does not fit", "its schema is of another release; the log has the details", {}


def problem_page(request: Request, status: int, title: str, detail: str, headers: dict[str, str]) -> Response:
    if is_fragment(request):
        notice = render("notice.html", title=title, detail=detail, is_bad=True)
        told = {**HEADERS, **headers, "HX-Retarget": "#notices", "HX-Reswap": "beforeend"}
        return HTMLResponse(notice, status, told)
    text = render("problem.html", title=title, detail=detail, status=status, visitor=None, here="", path="")
    return HTMLResponse(text, status, {**HEADERS, **headers})
