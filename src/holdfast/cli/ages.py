"""Times as people say them: "3 min ago", "in 2 h"."""

from __future__ import annotations

from datetime import UTC, datetime

_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


def age(moment: datetime | None, now: datetime | None = None) -> str | None:
    if moment is None:
        return None
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    if abs(seconds) < 1:
        return "just now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def span(seconds: float) -> str:
    """Rounded, in the largest unit of which there is at least one."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{round(seconds / size)} {unit}"
    return f"{seconds * 1000:.0f} ms"
