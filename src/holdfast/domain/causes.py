"""Failures by what they have in common: an error's message without what differs from job to job. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from holdfast.domain.views import DeadGroup

LONGEST = 300
# In this order: what is in quotes may be anything, an id is more than its digits.
_DIFFERS = (
    re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|«[^»]*»|“[^”]*”"),
    re.compile(r"\bhttps?://\S+"),
    re.compile(r"\b[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}\b", re.IGNORECASE),
    re.compile(r"\b0x[0-9a-f]+\b|\b(?=[a-f]*[0-9])[0-9a-f]{8,}\b", re.IGNORECASE),
    re.compile(r"\d+(?:[.,:]\d+)*"),
)
_SPACES = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Dead:
    """One failed job, as far as its group needs it."""

    job_id: str
    task: str
    code: str | None
    message: str
    finished_at: datetime | None


def kernel(message: str) -> str:
    """What two messages of one cause have in common."""
    text = message[:LONGEST]
    for differs in _DIFFERS:
        text = differs.sub("…", text)
    return _SPACES.sub(" ", text).strip()


def grouped(dead: Iterable[Dead]) -> tuple[DeadGroup, ...]:
    """The largest group first. They come newest first, so that the first of each is its newest."""
    groups: dict[tuple[str, str | None, str], tuple[Dead, int]] = {}
    for one in dead:
        key = (one.task, one.code, kernel(one.message))
        newest, count = groups.get(key, (one, 0))
        groups[key] = (newest, count + 1)
    found = [
        DeadGroup(newest.task, newest.code, newest.message, count, newest.finished_at, newest.job_id)
        for newest, count in groups.values()
    ]
    return tuple(sorted(found, key=lambda group: -group.count))
