"""Collect price points for the coins that come in, and keep one valuation of each.

An intake is one coin over the counter. Each marketplace is asked for it by a job of its own, which belongs to that
marketplace's source: while the source is paused, busy or out of tokens the job waits in the queue, where waiting costs
nothing. Every job that ends well asks for the intake to be valued again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import httpx

from examples.price_watch.coin import Coin
from examples.price_watch.marketplaces import MARKETPLACES, Marketplace, Page, PricePoint
from examples.price_watch.matching import strength
from examples.price_watch.valuation import Point, Valuation, value
from holdfast import App, Context, RetryPolicy

COLLECTING = "price-watch"
VALUING = "price-watch-valuations"

app = App(name="price-watch")

# What says that a marketplace is unwell. A mistake of ours, a KeyError say, must not close it.
UNWELL = [error.__name__ for error in (
    httpx.HTTPStatusError, httpx.ConnectError, httpx.ConnectTimeout, httpx.ReadError, httpx.ReadTimeout,
    httpx.RemoteProtocolError,
)]  # fmt: skip

# Scaled down so that a run takes seconds: in real life "60/m", and breakers that pause for five minutes. An operator
# changes them while everything runs: `holdfast sources set bourse --rate 1/s`.
BREAKER = {"breaker_threshold": 3, "breaker_pause_seconds": 2, "breaker_only": UNWELL}
app.source("auctionhouse", rate="5/s", max_concurrent=1, **BREAKER)
app.source("bourse", rate="5/s", max_concurrent=1, **BREAKER)
app.source("flea", rate="5/s", max_concurrent=2, **BREAKER)


@dataclass(frozen=True, slots=True)
class Collected:
    """What became of one marketplace's listings of a coin, and how often it was asked."""

    valuation: str  # the job that takes them into account
    pages: int = 0
    fetched: int = 0  # the other pages came from the cache
    created: int = 0
    replaced: int = 0  # a duplicate whose title matches better
    existing: int = 0  # a duplicate that is no better than what is there
    other_coins: int = 0
    unreadable: int = 0


@app.task(queue=COLLECTING, max_attempts=6, retry=RetryPolicy("fixed", base=0.5), timeout="60s")
def collect(ctx: Context, intake: str, coin: Coin, marketplace: str) -> Collected:
    """Enqueued with `source=marketplace`. What a marketplace does wrong is not handled here: `fetch` raises, and a 429
    becomes a pause of the source and a snooze of this job, anything else a failure that its breaker counts."""
    market, done = MARKETPLACES[marketplace], Counter[str]()
    for page in _pages(ctx, coin, market, done):
        records = _records(intake, coin, marketplace, page.points)
        done.update(str(written.kept) for written in ctx.record_many(records))
        done["pages"] += 1
        done["other_coins"] += len(page.points) - len(records)
        done["unreadable"] += page.unreadable
    return Collected(**done, valuation=value_intake.enqueue(intake).id)


def _pages(ctx: Context, coin: Coin, market: Marketplace, done: Counter[str]) -> Iterator[Page]:
    """The start of the job has paid for the first request, each further one takes a token of its own. Who is sent away
    on page two finds page one in the cache when it comes back."""
    source = ctx.source(market.name)

    def fetch(number: int) -> str:
        done["fetched"] += 1
        return market.fetch(coin, number)

    number: int | None = 1
    while number is not None:
        page = market.read(source.cached({**asdict(coin), "page": number}, partial(fetch, number)))
        yield page
        number = page.next


def _records(intake: str, coin: Coin, marketplace: str, points: Sequence[PricePoint]) -> list[dict[str, Any]]:
    """A listing of another coin is no record. Of those with one key the best match stays: its strength decides."""
    return [
        {
            "scope": intake,
            "source": marketplace,
            "data": point.data(),
            "external_id": point.external_id,
            "strength": match,
        }
        for point in points
        if (match := strength(coin, point.title)) > 0
    ]


@app.task(queue=VALUING)
def value_intake(ctx: Context, intake: str) -> Valuation:
    """One row an intake, however often. The queue lets one run at a time, so that the last one has seen everything."""
    found = [record for record in app.records.every(scope=intake) if record.source in MARKETPLACES]
    worth = value(Point.of(record.data, record.strength) for record in found)
    ctx.upsert_single(intake, asdict(worth))
    return worth
