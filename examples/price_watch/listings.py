"""What the misbehaving marketplaces have for sale: for every coin a few honest offers, the same ones again in other
words, and things that only look like it. The seed decides the prices, and nothing else does."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

from examples.price_watch.coin import Coin, Denomination, Mintmark

Entry = dict[str, Any]
LAST_PAGE = 2
FIRST_DAY = date(2026, 9, 1)


def answer(marketplace: str, wanted: dict[str, str], seed: int) -> dict[str, Any]:
    coin = Coin(
        year=int(wanted["year"]),
        mintmark=Mintmark(wanted["mintmark"]),
        denomination=Denomination(wanted["denomination"]),
        series=wanted["series"],
        title=wanted["title"],
    )
    page = int(wanted["page"])
    name, listed = ANSWERS[marketplace]
    worth = random.Random(f"{seed} {coin}").uniform(30, 900)  # the same for all of them
    entries = listed(coin, page, random.Random(f"{seed} {coin} {marketplace}"), worth)
    return {name: entries, "next_page": page + 1 if page < LAST_PAGE else None}


def _lots(coin: Coin, page: int, pick: random.Random, worth: float) -> list[Entry]:
    """Page two repeats two lots of page one: one described better by now, the other worse."""
    first, second, third, fourth = (f"{worth * pick.uniform(0.85, 1.15):.2f}" for _ in range(4))
    number = pick.randrange(10_000, 90_000)

    def lot(place: int, name: str, price: str) -> Entry:
        return {
            "lot": number + place,
            "name": name,
            "hammer_price": price,
            "closed": f"{FIRST_DAY + timedelta(days=place)}T18:30:00Z",
            "link": f"https://auctionhouse.example/lots/{number + place}?session={pick.randrange(10**9)}",
        }

    if page == 1:
        return [
            lot(1, f"{coin.series} of {coin.year}, not yet catalogued", first),
            lot(2, f"{_dashed(coin)} {coin.series} {coin.denomination.title()}, choice", second),
            lot(3, f"{_dashed(coin)} {coin.series}", third),
            lot(4, f"{coin.year + 1} {coin.series} {coin.denomination.title()}", fourth),
        ]
    return [
        lot(1, f"{_dashed(coin)} {coin.series} {coin.denomination.title()} {coin.title}", first),
        lot(2, f"{coin.year} coin", second),
        lot(5, f"{_dashed(coin)} {coin.series} {coin.denomination.title()}", fourth),
        lot(6, f"Lot of 12: {coin.series} {coin.denomination.title()}s, {coin.year} and others", "2400.00"),
    ]


def _offers(coin: Coin, page: int, pick: random.Random, worth: float) -> list[Entry]:
    """Page two quotes page one again, in another hand and with another tracking id."""
    asks = [round(worth * 100 * pick.uniform(1.05, 1.3)) for _ in range(2)]
    bid = round(worth * 100 * pick.uniform(0.7, 0.9))
    text = f"{_dashed(coin)} {coin.series} {coin.denomination.title()}"
    number = pick.randrange(1_000, 9_000)

    def offer(place: int, side: str, cents: int, said: str) -> Entry:
        visit = random.Random(f"{number} {place} {page}").randrange(10**9)
        return {
            "side": side,
            "text": said,
            "cents": cents,
            "quoted_on": str(FIRST_DAY + timedelta(days=place)),
            "href": f"https://bourse.example/{number + place}?utm_source=watch&click={visit}#offer-{page}",
        }

    if page == 1:
        return [
            offer(1, "ask", asks[0], text),
            offer(2, "bid", bid, text),
            offer(3, "swap", asks[0], text),
        ]
    return [
        offer(1, "ask", asks[0], f"  {text.upper()} "),
        offer(2, "bid", bid, text.replace(" ", "\t ")),
        offer(4, "ask", asks[1], text),
        offer(5, "ask", 1_00, f"{text} - museum REPLICA"),
    ]


def _items(coin: Coin, page: int, pick: random.Random, worth: float) -> list[Entry]:
    """Anything goes: invisible characters, entities, words for prices, and a dreamer."""
    prices = [f"${worth * pick.uniform(0.8, 1.2):,.2f}" for _ in range(3)]
    number = pick.randrange(100_000, 900_000)
    mark = "" if coin.mintmark is Mintmark.NONE else f" ({coin.mintmark.lower()})"

    def item(place: int, title: str, price: str | None, sold: bool = False, known: bool = True) -> Entry:
        posted = (FIRST_DAY + timedelta(days=place)).strftime("%b %d, %Y")
        url = f"https://flea.example/item/{number + place}?fbclid={pick.randrange(10**9)}&ref=../../%00"
        ident = {"id": f"F{number + place}"} if known else {}
        return {"title": title, "price": price, "posted": posted, "url": url, "sold": sold, **ident}

    if page == 1:
        return [
            item(
                1,
                f"L@@K!! \u200b\0\ud83d {coin.series} {coin.year}{mark} &amp; free shipping \U0001f525",
                prices[0],
                sold=True,
            ),
            item(2, f"{coin.year}{mark} {coin.series}\x07 from grandpa", prices[1], known=False),
            item(3, f"{coin.year}{mark} {coin.series} {coin.denomination}", "make me an offer"),
            item(4, f"'); DROP TABLE coins; -- {coin.year - 1} {coin.series}", "$5.00"),
        ]
    return [
        item(2, f"{coin.year}{mark}   {coin.series}\x07 FROM grandpa", prices[1], known=False),
        item(5, f"{coin.year}{mark} {coin.series} {coin.denomination} VERY RARE", f"${worth * 60:,.2f}"),
        item(6, f"{coin.year}{mark} {coin.series} {coin.denomination}", prices[2], sold=True),
        item(7, f"{coin.year}{mark} {coin.series} {coin.denomination}", None),
    ]


def _dashed(coin: Coin) -> str:
    return f"{coin.year}" if coin.mintmark is Mintmark.NONE else f"{coin.year}-{coin.mintmark}"


Listed = Callable[[Coin, int, random.Random, float], list[Entry]]
ANSWERS: dict[str, tuple[str, Listed]] = {
    "auctionhouse": ("lots", _lots),
    "bourse": ("offers", _offers),
    "flea": ("items", _items),
}
