"""How well a listing's title matches a coin: the strength of its record, from 0 (another coin) to 1.

A price of the wrong coin does more harm than a missing one: whatever contradicts the coin makes it 0, and so does
whatever is no single genuine coin. What a title leaves out only makes it weaker, so that a fuller title of the same
listing wins.
"""

from __future__ import annotations

from examples.price_watch.coin import Coin, Mintmark, Told, read_title

YEAR, MINTMARK, SERIES, DENOMINATION, WORDS = 0.4, 0.2, 0.2, 0.1, 0.1

NO_SINGLE_COIN = frozenset({"lot", "set", "roll", "bag", "album", "collection", "pair"})
NOT_GENUINE = frozenset({"copy", "replica", "reproduction", "fake", "counterfeit", "tribute", "fantasy"})


def strength(coin: Coin, title: str) -> float:
    told = read_title(title)
    if told.years != {coin.year} or _contradicts(coin, told):
        return 0.0
    marked = told.mintmarks or coin.mintmark is Mintmark.NONE  # Philadelphia struck most of its coins without one
    words = set(coin.title.split())
    found = (
        YEAR,
        MINTMARK if marked else 0.0,
        SERIES if told.series else 0.0,
        DENOMINATION if told.denominations else 0.0,
        WORDS * len(words & set(told.words)) / len(words),
    )
    return round(sum(found), 3)


def _contradicts(coin: Coin, told: Told) -> bool:
    return bool(
        told.mintmarks - {coin.mintmark}
        or told.series - {coin.series}
        or told.denominations - {coin.denomination}
        or (NO_SINGLE_COIN | NOT_GENUINE) & set(told.words)
    )
