"""httpx with the deadline of the suite; its own default, 5 s, is too short for a busy machine."""

from __future__ import annotations

from functools import partial
from typing import Any

import httpx

from tests.servers.waiting import DEADLINE_SECONDS

get = partial(httpx.get, timeout=DEADLINE_SECONDS)
post = partial(httpx.post, timeout=DEADLINE_SECONDS)


def client(**options: Any) -> httpx.Client:
    return httpx.Client(timeout=DEADLINE_SECONDS, **options)
