"""docs/scale.md: its statements, typed in as an operator would."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from tests.chaos.databases import Rows, query
from tests.examples.shell import ROOT

PAGE = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
STATEMENTS: dict[str, str] = dict(re.findall(r"<!-- sql: (\w+) -->\n```sql\n(.*?)\n```", PAGE, re.DOTALL))
ON_THE_PAGE = "2026-12-07 00:00Z"  # where the page ends the first partition

MIDNIGHT = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
UNTIL = MIDNIGHT + timedelta(days=7)  # where the tests do


def statement(name: str, until: datetime = UNTIL) -> str:
    return STATEMENTS[name].replace(ON_THE_PAGE, until.isoformat())


def type_in(url: str, name: str, until: datetime = UNTIL) -> Rows:
    """Its rows; of several statements in one block, as psql does it, each in a transaction of its own."""
    text = statement(name, until)
    parts = [text] if text.startswith("DO ") else [part for part in text.split(";\n") if part.strip()]
    return [query(url, part) for part in parts][-1]


def partition(url: str, until: datetime = UNTIL) -> None:
    """All that the page says to do, once."""
    for name in ("bound", "convert", "ahead"):
        type_in(url, name, until)
