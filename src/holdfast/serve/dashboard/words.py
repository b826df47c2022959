"""Values as the pages say them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from holdfast.domain.durations import spoken

NOTHING = "\u2013"
LARGEST = 10**15
LONGEST_JSON = 50_000
# They change what stands around them on the screen; a name has no use for them.
_UNSEEN = {code: f"\\u{code:04x}" for code in (0x200B, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}
_UNSEEN |= {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}


def is_plain(value: Any) -> bool:
    """A number that can be shown and reckoned with. Jobs and workers may send any."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST < value < LARGEST


def share(value: Any, whole: Any) -> float | None:
    """From 0 to 1; None where that makes no sense."""
    if not is_plain(value) or not is_plain(whole) or whole <= 0:
        return None
    return float(min(max(value / whole, 0.0), 1.0))


def number(value: float | None, digits: int = 0) -> str:
    """1,234: people who count want to see the digits."""
    if value is None or not is_plain(value):
        return NOTHING
    return f"{value:,.{digits}f}" if digits else f"{round(value):,}"


def counted(count: int, at_least: bool) -> str:
    return f"{count:,}+" if at_least else f"{count:,}"


def duration(seconds: float | None) -> str:
    """0.42 s · 3 min: short, and never with more than is known."""
    if seconds is None:
        return NOTHING
    if 0 < seconds < 0.0005:
        return "< 1 ms"
    if 1 <= seconds < 10:
        return f"{seconds:.1f} s"
    return spoken(seconds)


def kilobytes(value: float | None) -> str:
    if value is None or not is_plain(value):
        return NOTHING
    for unit in ("KB", "MB", "GB"):
        if value < 1024 or unit == "GB":
            return f"{value:,.0f} {unit}" if value >= 100 or unit == "KB" else f"{value:,.1f} {unit}"
        value /= 1024
    return NOTHING


def percent(share: float | None) -> str:
    return (
        NOTHING if share is None else f"{share * 100:.0f} %" if share >= 0.1 or share == 0 else f"{share * 100:.1f} %"
    )


def moment(value: datetime | None, nothing: str = NOTHING) -> Markup:
    """A `<time>`; a script turns it into "3 min ago" and keeps it true."""
    if value is None:
        return Markup(nothing)
    at = value.astimezone(UTC)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC",
        at.strftime("%Y-%m-%d %H:%M:%S"),
    )


def since(value: datetime | None) -> Markup:
    """How long ago, without the word: 3 min."""
    if value is None:
        return Markup(NOTHING)
    at = value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Markup('<time datetime="{0}" data-span title="{0}">{0}</time>').format(at)


def clock(value: datetime) -> str:
    return value.astimezone(UTC).strftime("%H:%M:%S")


def seen(text: Any) -> str:
    """What cannot be seen is shown as its number."""
    return str(text).translate(_UNSEEN)


def shortened(text: Any, most: int = 80) -> str:
    whole = seen(text)
    return whole if len(whole) <= most else whole[: most - 1] + "…"


def pretty_json(value: Any) -> str:
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return seen(text if len(text) <= LONGEST_JSON else f"{text[:LONGEST_JSON]}\n… {len(text):,} characters in all")


FILTERS = {
    "number": number,
    "share": share,
    "duration": duration,
    "kilobytes": kilobytes,
    "percent": percent,
    "moment": moment,
    "since": since,
    "clock": clock,
    "seen": seen,
    "shortened": shortened,
    "pretty_json": pretty_json,
}
