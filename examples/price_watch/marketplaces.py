"""The marketplaces: how each is asked, and how its answers become price points.

Asking (`fetch`) and understanding (`read`) are apart, because what is cached is the text of the answer as it came: a
mistake here can be corrected, and the day's answers read again without asking anybody. An entry that cannot be
understood is counted and left out. An answer that cannot be understood at all is an error.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any

import httpx

from examples.price_watch.coin import Coin

TIMEOUT_SECONDS = 2.0
LONGEST_TITLE = 500
Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PricePoint:
    """Data in the names that dedupe keys are made of, and the marketplace's own id where it has one."""

    url: str
    title: str
    price: str
    day: str
    price_type: str  # sold, ask or bid
    external_id: str | None = None

    def data(self) -> dict[str, str]:
        return {name: value for name, value in asdict(self).items() if name != "external_id"}


@dataclass(frozen=True, slots=True)
class Page:
    points: list[PricePoint]
    unreadable: int
    next: int | None


@dataclass(frozen=True, slots=True)
class Marketplace:
    name: str
    path: str
    entries: str  # where an answer keeps them
    point: Callable[[Entry], PricePoint]

    def fetch(self, coin: Coin, page: int) -> str:
        """One page. A refusal is raised as httpx does it, with the response: Holdfast reads its Retry-After there."""
        base = os.environ["PRICE_WATCH_MARKETS"]
        response = _client().get(f"{base}{self.path}", params={**asdict(coin), "page": page})
        return response.raise_for_status().text

    def read(self, text: str) -> Page:
        answer = json.loads(text)
        points, unreadable = [], 0
        for entry in answer[self.entries]:
            try:
                points.append(self.point(entry))
            except (KeyError, TypeError, ValueError):
                unreadable += 1
        return Page(points, unreadable, answer.get("next_page"))


@cache
def _client() -> httpx.Client:
    """One for each process, and its connections with it."""
    return httpx.Client(timeout=TIMEOUT_SECONDS, headers={"User-Agent": "price-watch/1"})


def _lot(entry: Entry) -> PricePoint:
    """Auctionhouse: hammer prices, each with the number of its lot."""
    return PricePoint(
        url=entry["link"],
        title=_text(entry["name"]),
        price=_price(entry["hammer_price"]),
        day=entry["closed"][:10],
        price_type="sold",
        external_id=str(entry["lot"]),
    )


def _offer(entry: Entry) -> PricePoint:
    """Bourse: what dealers ask and bid. No ids, and links that carry who is looking."""
    if entry["side"] not in ("ask", "bid"):
        raise ValueError(entry["side"])
    return PricePoint(
        url=entry["href"],
        title=_text(entry["text"]),
        price=_price(Decimal(entry["cents"]) / 100),
        day=entry["quoted_on"],
        price_type=entry["side"],
    )


def _item(entry: Entry) -> PricePoint:
    """Flea: whatever people type in, and an id most of the time."""
    return PricePoint(
        url=entry["url"],
        title=_text(entry["title"]),
        price=_price(entry["price"]),
        day=datetime.strptime(entry["posted"], "%b %d, %Y").date().isoformat(),  # noqa: DTZ007 - a day has no zone
        price_type="sold" if entry.get("sold") else "ask",
        external_id=entry.get("id"),
    )


def _text(told: str) -> str:
    """Strangers send anything. What cannot be stored is taken out here, where it spoils one title and not a page."""
    return told[:LONGEST_TITLE].encode(errors="replace").decode().replace("\0", " ")


def _price(told: str | Decimal) -> str:
    """ "$1,234.5" and 1234.50 are one price; "make me an offer" is none."""
    try:
        price = Decimal(re.sub(r"[$,\s]", "", told) if isinstance(told, str) else told)
    except InvalidOperation:
        raise ValueError(f"not a price: {told!r}") from None
    if not Decimal(0) < price < Decimal(10_000_000):
        raise ValueError(f"not a price: {told!r}")
    return f"{price:.2f}"


MARKETPLACES = {
    market.name: market
    for market in (
        Marketplace("auctionhouse", "/auctionhouse/lots", "lots", _lot),
        Marketplace("bourse", "/bourse/offers", "offers", _offer),
        Marketplace("flea", "/flea/items", "items", _item),
    )
}
