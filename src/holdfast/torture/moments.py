"""Times as the audit log is read: texts of one form in UTC. What has another form is damage, and has no moment."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(text: str) -> float | None:
    """Seconds since 1970."""
    try:
        found = datetime.fromisoformat(text)
    except (ValueError, TypeError):
        return None
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
