"""Times as people say them: "3 min ago", "in 2 h"."""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast.domain.durations import spoken

span = spoken


def age(moment: datetime | None, now: datetime | None = None) -> str | None:
    if moment is None:
        return None
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    if abs(seconds) < 1:
        return "just now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"
