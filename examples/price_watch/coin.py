"""A coin, and what a title says of one.

Clerks, dealers and auction houses all write titles, and never the same way: "1881-S Morgan Dollar MS64",
"MORGAN $1 1881 (S) ms-64 !!!". The same reading makes a coin out of ours and judges theirs.
"""

from __future__ import annotations

import html
import re
import unicodedata
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar


class Mintmark(StrEnum):
    P = "P"
    D = "D"
    S = "S"
    O = "O"  # noqa: E741 - New Orleans
    CC = "CC"
    NONE = "none"


class Denomination(StrEnum):
    CENT = "cent"
    NICKEL = "nickel"
    DIME = "dime"
    QUARTER = "quarter"
    HALF = "half"
    DOLLAR = "dollar"
    EAGLE = "eagle"


# What was struck with which design. A series of one denomination says it all by itself.
SERIES: dict[str, tuple[Denomination, ...]] = {
    "Lincoln": (Denomination.CENT,),
    "Buffalo": (Denomination.NICKEL,),
    "Mercury": (Denomination.DIME,),
    "Standing Liberty": (Denomination.QUARTER,),
    "Walking Liberty": (Denomination.HALF,),
    "Barber": (Denomination.DIME, Denomination.QUARTER, Denomination.HALF),
    "Morgan": (Denomination.DOLLAR,),
    "Peace": (Denomination.DOLLAR,),
    "Indian Head": (Denomination.CENT, Denomination.EAGLE),
}

_MINTS = {
    "philadelphia": Mintmark.P,
    "denver": Mintmark.D,
    "san francisco": Mintmark.S,
    "new orleans": Mintmark.O,
    "carson city": Mintmark.CC,
}
_YEAR = r"(?<![\d$.,])(?:1[789]\d\d|20[0-4]\d)(?!\d|[.,]\d)"
# A lone letter is a mintmark only where one is written: behind the year, in brackets, or before "mint".
_MARK = re.compile(rf"{_YEAR}[ -]{{0,3}}(cc|[pdso])\b|\((cc|[pdso])\)|\b(cc|[pdso])[ -]mint\b")
# The longer words first: a half dollar is no dollar. None: a coin that is not among ours.
_DENOMINATIONS: tuple[tuple[str, Denomination | None], ...] = (
    (r"(?:half|quarter|double) eagle", None),
    (r"half(?: dollar)?|50c", Denomination.HALF),
    (r"quarter(?: dollar)?|25c", Denomination.QUARTER),
    (r"dollar|\$1(?![,.]\d)", Denomination.DOLLAR),
    (r"dime|10c", Denomination.DIME),
    (r"nickel|5c", Denomination.NICKEL),
    (r"cent|penny|1c", Denomination.CENT),
    (r"eagle|\$10(?![,.]\d)", Denomination.EAGLE),
)
_GRADE = re.compile(r"\b([a-z]{1,2})[ -]?(\d{1,2})\b")  # ms64, ms-64 and ms 64 are one word

Fact = TypeVar("Fact")


@dataclass(frozen=True, slots=True)
class Told:
    """What a title says, and nothing that it does not. Empty: it is silent; more than one: it contradicts itself."""

    years: frozenset[int]
    mintmarks: frozenset[Mintmark]
    denominations: frozenset[Denomination | None]
    series: frozenset[str]
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Coin:
    year: int
    mintmark: Mintmark
    denomination: Denomination
    series: str
    title: str  # its words alone: two clerks who mean the same coin ask the same question, and share the answer

    @classmethod
    def from_title(cls, title: str) -> Coin:
        """The coin that a clerk describes; a ValueError says what the description lacks."""
        told = read_title(title)
        series = _the_one(told.series, "series", f"one of {', '.join(SERIES)}")
        denominations = told.denominations or frozenset(SERIES[series])
        denomination = _the_one(denominations, "denomination", " or ".join(SERIES[series]))
        if denomination not in SERIES[series]:
            raise ValueError(f"denomination: there is no {series} {denomination or 'coin like that'}")
        return cls(
            year=_the_one(told.years, "year", "one year of four digits"),
            mintmark=_the_one(told.mintmarks or frozenset({Mintmark.NONE}), "mintmark", "at most one"),
            denomination=denomination,
            series=series,
            title=" ".join(told.words),
        )

    def __str__(self) -> str:
        mark = "" if self.mintmark is Mintmark.NONE else f"-{self.mintmark}"
        return f"{self.year}{mark} {self.series} {self.denomination}"


def normalise(text: str) -> str:
    """Lower case, one form of each character, single spaces, and nothing that cannot be seen."""
    text = unicodedata.normalize("NFKC", html.unescape(text)).casefold()
    text = re.sub("[\N{HYPHEN}-\N{HORIZONTAL BAR}]", "-", text)
    seen = "".join(c if c.isprintable() else " " for c in text if unicodedata.category(c) != "Cf")
    return " ".join(seen.split())


def read_title(title: str) -> Told:
    text = normalise(title)
    return Told(
        years=frozenset(int(year) for year in re.findall(_YEAR, text)),
        mintmarks=frozenset(_mintmarks(text)),
        denominations=frozenset(_denominations(text)),
        series=frozenset(series for series in SERIES if re.search(rf"\b{series.lower()}\b", text)),
        words=tuple(re.findall(r"[^\W_]+", _GRADE.sub(r"\1\2", text))),
    )


def _mintmarks(text: str) -> set[Mintmark]:
    letters = {letter.upper() for found in _MARK.findall(text) for letter in found if letter}
    return {Mintmark(letter) for letter in letters} | {mark for city, mark in _MINTS.items() if city in text}


def _denominations(text: str) -> set[Denomination | None]:
    found = set()
    for words, denomination in _DENOMINATIONS:
        text, count = re.subn(rf"(?<![\w.,$])(?:{words})s?(?!\w)", " ", text)
        if count:
            found.add(denomination)
    return found


def _the_one(told: frozenset[Fact], what: str, rule: str) -> Fact:
    if len(told) != 1:
        raise ValueError(f"{what}: must be {rule}; the title names {len(told) or 'none'}")
    return next(iter(told))
