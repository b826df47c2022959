"""Arrays as Postgres reads them. To write one here is a fifth of the work of handing over a list."""

from __future__ import annotations

from collections.abc import Iterable


def array(elements: Iterable[str]) -> str:
    """Of elements that are quoted where they need it; an unquoted NULL is none."""
    return f"{{{','.join(elements)}}}"


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
