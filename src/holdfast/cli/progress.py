"""How far a job is, as people like to see it: `████████░░░░░░░░░░░░  40 %  2 of 5  third page`."""

from __future__ import annotations

import json
from typing import Any

WIDTH = 20


def progress_bar(value: Any, width: int = WIDTH) -> str | None:
    if value is None:
        return None
    done = value.get("done") if isinstance(value, dict) else None
    if not _is_number(done):
        return json.dumps(value, ensure_ascii=False)  # an operator may have written anything there
    total, note = value.get("total"), value.get("note")
    parts = [f"{done:,}"]
    if _is_number(total) and total > 0:
        share = min(max(done / total, 0.0), 1.0)
        full = int(share * width)
        parts = [f"{'█' * full}{'░' * (width - full)}", f"{share:.0%}".replace("%", " %"), f"{done:,} of {total:,}"]
    return "  ".join([*parts, str(note)] if note else parts)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
