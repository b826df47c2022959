"""From the URL and the token of a control plane to a store that is ready to use.

Nothing is asked yet: whether the token is good shows with the first question.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from holdfast.domain.errors import ConfigurationError
from holdfast.domain.timing import LONGEST_TIMEOUT_SECONDS
from holdfast.remote.secret import Secret

if TYPE_CHECKING:
    from holdfast.remote.store import RemoteStore

CONNECTIONS = 5


def checked_url(url: str) -> str:
    """The URL without a slash at its end."""
    parsed = urlsplit(url)
    if not parsed.hostname or parsed.query or parsed.fragment:
        raise ConfigurationError("the URL of a control plane is https://host, or https://host/path behind a proxy")
    if parsed.username or parsed.password:
        raise ConfigurationError("the URL of a control plane holds no password: give its token as HOLDFAST_TOKEN")
    return url.rstrip("/")


def open_remote(
    url: str,
    token: str | None,
    new_ids: Callable[[int], list[str]],
    *,
    timeout_seconds: float | None = None,
    connections: int | None = None,
    for_worker: bool = False,
) -> RemoteStore:
    """For a worker a token that is refused counts as a store that is away: it is told, and asked again."""
    from holdfast.remote.line import Line
    from holdfast.remote.store import RemoteStore

    place, secret = checked_url(url), Secret(token)
    seconds = timeout_seconds or LONGEST_TIMEOUT_SECONDS

    def open_line(count: int) -> Line:
        return Line(place, secret, timeout_seconds=seconds, connections=count, waits=for_worker)

    return RemoteStore(open_line, connections or CONNECTIONS, seconds, new_ids)
