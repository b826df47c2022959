"""In and out: a token, or the one-time link of a new control plane."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from holdfast.domain.tokens import Scope
from holdfast.serve.auth import get_authentication
from holdfast.serve.dashboard.rendering import HEADERS, page
from holdfast.serve.dashboard.routes import SIGN_IN, PageRoute
from holdfast.serve.dashboard.session import VisitorDep, check_origin, check_same_site, one_of, safe_next
from holdfast.serve.dashboard.session import sign_in as keep
from holdfast.serve.dashboard.session import sign_out as forget
from holdfast.serve.problems import Refused

router = APIRouter(include_in_schema=False, route_class=PageRoute)

WRONG = "That token is not whole, was revoked or has expired."
NO_PAGES = "That token is for workers: the dashboard needs scope viewer, client or admin."


@router.get(SIGN_IN)
async def ask(request: Request, next: str = "/") -> Response:
    return await page(request, "sign_in", None, next=safe_next(next), said="")


@router.post(SIGN_IN)
async def sign_in(request: Request) -> Response:
    check_same_site(request)
    token, wanted = (await one_of(request, "token")).strip(), safe_next(await one_of(request, "next", "/"))
    try:
        identity = await get_authentication(request).identify_text(request, token)
    except Refused as refused:
        if refused.status != 401:
            raise
        return await page(request, "sign_in", None, status=401, next=wanted, said=WRONG)
    if not identity.may((Scope.CLIENT, Scope.VIEWER)):
        request.state.refusal = "wrong_scope"
        return await page(request, "sign_in", None, status=403, next=wanted, said=NO_PAGES)
    response = RedirectResponse(wanted, 303, HEADERS)
    keep(response, request, token)
    return response


@router.post("/sign-out")
async def sign_out(request: Request, visitor: VisitorDep) -> Response:
    await check_origin(request, visitor.csrf)
    response = RedirectResponse(SIGN_IN, 303, HEADERS)
    forget(response, request)
    return response
