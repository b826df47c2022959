"""What was found, and what the governor did, from what is on record: results of jobs, their history, the sources' own
events, and the marketplaces' word for it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta

from examples.price_watch.coin import Coin
from examples.price_watch.market_server import Request
from examples.price_watch.tasks import Collected
from holdfast import App, Handle

COUNTS = [field.name for field in fields(Collected) if field.name != "valuation"]
NUMBER = re.compile(r"\$?[\d,.]+( s| of \d+)?")
MOVES = ("throttled", "breaker_opened", "breaker_closed")


def show(
    app: App, intakes: Mapping[str, str], collects: Sequence[Handle[Collected]], requests: Sequence[Request]
) -> None:
    opening = min(event.at for one in collects for event in app.store.events(one.id) if event.event == "claimed")
    asked = [Asked.of(app, one, opening) for one in collects]
    by_source = {name: [one for one in asked if one.source == name] for name in sorted({one.source for one in asked})}
    _valuations(app, intakes)
    _found(app, intakes, by_source)
    _governed(by_source)
    _moves(app, opening)
    _their_word(requests)


@dataclass(frozen=True, slots=True)
class Asked:
    """A marketplace that was asked for one intake."""

    source: str
    found: Counter[str]
    events: Counter[str]
    longest_wait: float  # in the queue, from when it was due (and workers were there) to a start

    @classmethod
    def of(cls, app: App, handle: Handle[Collected], opening: datetime) -> Asked:
        found, history = handle.result("0s"), app.store.events(handle.id)
        waits, due = [], opening
        for event in history:
            if event.event == "claimed":
                waits.append((event.at - due).total_seconds())
            due = max(opening, event.at + timedelta(seconds=(event.detail or {}).get("delay_seconds", 0.0)))
        return cls(
            source=handle.job().source or "",
            found=Counter({name: getattr(found, name) for name in COUNTS}),
            events=Counter(event.event for event in history),
            longest_wait=max(waits),
        )


BySource = Mapping[str, Sequence[Asked]]


def _valuations(app: App, intakes: Mapping[str, str]) -> None:
    rows = []
    for intake, title in intakes.items():
        for record in app.records.every(scope=intake, source=""):
            worth = record.data
            price = "unknown" if worth["value_cents"] is None else f"${worth['value_cents'] / 100:,.2f}"
            rows.append((intake, Coin.from_title(title), price, worth["basis"], worth["points"], worth["left_out"]))
    _table("What they are worth", ("intake", "coin", "value", "by prices", "points", "left out"), rows)


def _found(app: App, intakes: Mapping[str, str], by_source: BySource) -> None:
    kept = Counter(record.source for intake in intakes for record in app.records.every(scope=intake))
    rows = []
    for source, asked in by_source.items():
        total = _sum(one.found for one in asked)
        folded = total["replaced"] + total["existing"]
        listings = total["created"] + folded + total["other_coins"] + total["unreadable"]
        rows.append(
            (source, listings, kept[source], folded, total["replaced"], total["other_coins"], total["unreadable"])
        )
    headers = ("marketplace", "listings", "price points", "duplicates folded", "better title won", "other coins",
               "unreadable")  # fmt: skip
    _table("What was found", headers, rows)


def _governed(by_source: BySource) -> None:
    rows = []
    for source, asked in by_source.items():
        events, found = _sum(one.events for one in asked), _sum(one.found for one in asked)
        rows.append(
            (
                source,
                len(asked),
                events["claimed"],
                f"{max(one.longest_wait for one in asked):.1f} s",
                events["snoozed"],
                events["retry_scheduled"],
                f"{found['pages'] - found['fetched']} of {found['pages']}",
            )
        )
    headers = ("source", "jobs", "starts", "longest wait for a start", "snoozed, free", "failures charged",
               "pages from the cache")  # fmt: skip
    _table("What the governor did", headers, rows)


def _moves(app: App, since: datetime) -> None:
    events = [event for event in app.store.source_events(limit=1000).items if event.at >= since]
    rows = [
        (
            f"{(event.at - since).total_seconds():.1f} s",
            event.source,
            event.event,
            _told(event.event, event.detail or {}),
        )
        for event in reversed(events)
        if event.event in MOVES
    ]
    _table("When it closed the door, and opened it again", ("after", "source", "move", ""), rows)


def _told(event: str, detail: Mapping[str, object]) -> str:
    match event:
        case "throttled":
            return f"it asked for {detail['seconds']:.1f} s of peace"
        case "breaker_opened" if detail.get("probe"):
            return "the probe failed"
        case "breaker_opened":
            return f"{detail['streak']} failures in a row"
        case _:
            return "the probe succeeded"


def _their_word(requests: Sequence[Request]) -> None:
    rows = []
    for name in sorted({request.marketplace for request in requests}):
        mine = [request for request in requests if request.marketplace == name]
        answers = Counter(request.answer for request in mine)
        early = sum(request.too_early for request in mine)
        rows.append((name, len(mine), answers["ok"], answers["Throttle"], answers["Break"], answers["Dawdle"], early))
    headers = ("marketplace", "requests", "answered", "429", "500", "late", "sooner than it had asked for")
    _table("What the marketplaces saw", headers, rows)


def _sum(counters: Iterable[Counter[str]]) -> Counter[str]:
    return sum(counters, Counter())


def _table(title: str, headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Words to the left, numbers to the right."""
    print(f"\n{title}")
    if not rows:
        print("  nothing")
        return
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    right = [all(map(NUMBER.fullmatch, column)) for column in zip(*cells, strict=True)]
    for row in (headers, *cells):
        padded = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        )
        print(f"  {'  '.join(padded)}".rstrip())
