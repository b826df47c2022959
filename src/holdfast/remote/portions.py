"""Many things in as few requests as they fit into: by their size, and by what a token that is limited may say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from holdfast.domain.errors import NotAllowed
from holdfast.remote.line import encode

# Half of what a control plane takes: one result that is large, and what stands around it, still fit.
MOST_BYTES = 4 * 1024 * 1024

Item = TypeVar("Item")


def portions(
    items: Sequence[Item], as_json: Callable[[Item], dict[str, Any]], most: int
) -> Iterator[tuple[list[Item], list[dict[str, Any]]]]:
    """As many together as one request may hold."""
    some: list[Item] = []
    body: list[dict[str, Any]] = []
    size = 0
    for item in items:
        value = as_json(item)
        weight = len(encode(value))
        if some and (size + weight > MOST_BYTES or len(some) == most):
            yield some, body
            some, body, size = [], [], 0
        some.append(item)
        body.append(value)
        size += weight
    if some:
        yield some, body


def send_allowed(items: Sequence[Item], send: Callable[[Sequence[Item]], None]) -> list[tuple[Item, NotAllowed]]:
    """Send what the token may say, and answer with what it may not: an app has tasks of many queues, and the token of
    one of its workers perhaps of one. A request with one that is refused is refused as a whole, so it is halved."""
    try:
        send(items)
    except NotAllowed as error:
        if len(items) == 1:
            return [(items[0], error)]
        half = len(items) // 2
        return send_allowed(items[:half], send) + send_allowed(items[half:], send)
    return []
