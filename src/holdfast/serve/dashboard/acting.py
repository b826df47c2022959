"""What an action answers: nothing to show but a few words, and that the page looks again."""

from __future__ import annotations

import json

from fastapi import Response

from holdfast.serve.dashboard.rendering import HEADERS
from holdfast.serve.plane import Plane


def done(title: str, detail: str = "", *, is_bad: bool = False) -> Response:
    said = {"hf:said": {"title": title, "detail": detail, "bad": is_bad}, "hf:again": True}
    # A header is ASCII; json.dumps makes it so.
    return Response(status_code=204, headers={**HEADERS, "HX-Trigger": json.dumps(said)})


def gone_to(address: str) -> Response:
    return Response(status_code=204, headers={**HEADERS, "HX-Redirect": address})


async def seen_anew(plane: Plane) -> None:
    """What was changed is in the next look at the fleet, which the page is about to ask for."""
    await plane.gauges.renew()
