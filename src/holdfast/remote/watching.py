"""What somebody asks who watches the whole fleet, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from holdfast.domain.feed import FeedPage, FeedPlace, Transition
from holdfast.domain.job import Job
from holdfast.domain.jsonable import from_json
from holdfast.domain.lifecycle import State
from holdfast.domain.views import Listed, StateCount
from holdfast.remote.line import Line

API = "/api/v1"


class Watching:
    _line: Line

    def state_counts(self) -> list[StateCount]:
        return [from_json(StateCount, count) for count in self._line.get(f"{API}/stats")["states"]]

    def running(self, limit: int = 50) -> list[Listed]:
        """Without what is large; the youngest of them where there are more."""
        found = self._line.get(f"{API}/jobs", state=[str(State.RUNNING)], limit=limit)["jobs"]
        listed = [Listed(from_json(Job, {**job, **_empty(job)}), tuple(job["omitted"])) for job in found]
        return sorted(listed, key=lambda item: item.job.claimed_at or item.job.updated_at)

    def feed(self, after: FeedPlace | None, limit: int = 1000) -> FeedPage:
        """The live stream, ended at once: what it looks back on is what there was. It knows the time to the second."""
        since = None if after is None else replace(after, seq=0).text
        response = self._line.stream(f"{API}/events/stream", since, seconds=0)
        told = _Told(response.text)
        items = [] if after is None else sorted((i for i in told if i.place > after), key=lambda item: item.place)
        now = max([_date(response.headers.get("Date")), *(item.at for item in items[-1:])])
        return FeedPage(now, tuple(items[:limit]), told.gap or len(items) > limit)


class _Told:
    """The events of a stream of server-sent events. `gap`: some were left out."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.gap = "\nevent: gap\n" in f"\n{text}"

    def __iter__(self) -> Iterator[Transition]:
        for block in self._text.split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
            if fields.get("event") == "transition":
                yield from_json(Transition, json.loads(fields["data"]))


def _empty(job: dict[str, object]) -> dict[str, object]:
    """A payload that is too large for a list is left out of it; a job without one is none."""
    return {} if job.get("payload") is not None else {"payload": {}}


def _date(header: str | None) -> datetime:
    try:
        return parsedate_to_datetime(header or "")
    except ValueError:
        return datetime.now(UTC)
