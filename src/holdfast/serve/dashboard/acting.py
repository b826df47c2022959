"""What an action answers: nothing to show but a few words, and that the page looks again."""

from __future__ import annotations

import json

from fastapi import Response

from holdfast.serve.dashboard.rendering import HEADERS
from holdfast.serve.plane import Plane


def done(title: str, detail: str = "") -> Response:
    # A header is ASCII, and has no line breaks; json.dumps makes it so.
    said = json.dumps({"title": title, "detail": detail})
    return Response(status_code=204, headers={**HEADERS, "Holdfast-Said": said})


async def seen_anew(plane: Plane) -> None:
    """What was changed is in the next look at the fleet, which the page is about to ask for."""
    await plane.gauges.renew()
