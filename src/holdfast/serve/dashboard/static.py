"""Scripts, styles and pictures: files of this package, under addresses that change with their content."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Response

from holdfast.serve.problems import Refused

KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FOR_EVER = "public, max-age=31536000, immutable"
_HEADERS = {
    "Cache-Control": _FOR_EVER,
    "Content-Security-Policy": "default-src 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
}

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class StaticFile:
    content: bytes
    kind: str
    digest: str


@cache
def known() -> dict[str, StaticFile]:
    """By their path below the folder. Read once: a name that is not among them is not looked for on any disk."""
    found: dict[str, StaticFile] = {}
    root = files("holdfast.serve.dashboard") / "static"
    for folder in ("", "vendor"):
        for file in (root / folder).iterdir() if folder else root.iterdir():
            kind = KINDS.get("." + file.name.rpartition(".")[2])
            if kind is not None and file.is_file():
                content = file.read_bytes()
                digest = hashlib.sha256(content).hexdigest()[:16]
                found[f"{folder}/{file.name}".lstrip("/")] = StaticFile(content, kind, digest)
    return found


def address(name: str) -> str:
    return f"/static/{known()[name].digest}/{name}"


@router.get("/static/{digest}/{name:path}")
async def get_static(digest: str, name: str) -> Response:
    file = known().get(name)
    if file is None or file.digest != digest:
        raise Refused(404, "Not Found", "there is no such file; open the page again, it may be of an older release")
    return Response(file.content, headers=_HEADERS, media_type=f"{file.kind}; charset=utf-8")
