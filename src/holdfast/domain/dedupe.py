"""The key under which a record is the same record: `ext_<external id>` if it has one, else `hash_` and the first 16 hex
digits of SHA-256 over the canonical JSON of [URL, title, price in cents, day, price type], normalised; what is not
known is null.

Two ways to be wrong are not alike: a duplicate that is not noticed costs a row, two things that share a key cost one of
them. So whatever is doubtful keeps things apart: what is not an http URL with a sensible host counts as it is written,
and a value that cannot be what its name says is refused. docs/records.md has the rules.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from contextlib import suppress
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

from holdfast.domain.errors import InvalidInput
from holdfast.domain.names import check_name
from holdfast.domain.record import EXTERNAL
from holdfast.domain.spec import canonical_json
from holdfast.domain.web_address import normal_address

HASHED = "hash_"
HASH_HEX = 16
LONGEST_TITLE = 4_096  # to normalise a long run of accents takes the square of its length
LONGEST_URL = 8_192
MOST_CENTS = 10**15
PRICE_TYPES = ("sold", "ask", "bid")
DAY_NAMES = ("day", "date", "sold_at")

_PRICE = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18})?")
_DAY = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]{1,12})?)? ?(?:[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
_CENTS = Decimal("0.01")
# Not the context of whoever calls, which may be anything.
_EXACT = Context(prec=60, rounding=ROUND_HALF_UP, traps=[InvalidOperation])


def dedupe_key(data: Any, external_id: str | None = None) -> str:
    if external_id is not None:
        return EXTERNAL + check_name(external_id, "external_id")
    if not isinstance(data, Mapping):
        raise InvalidInput("data", f"must be an object to make a key from, or name an external_id; got {_shown(data)}")
    parts = [_url(data), _title(data), _cents(data), _day(data), _price_type(data)]
    if all(part is None for part in parts[:4]):
        raise InvalidInput(
            "data", "has no url, title, price or day to tell it from others; name an external_id, or one of these"
        )
    return HASHED + hashlib.sha256(canonical_json(parts, "data")).hexdigest()[:HASH_HEX]


def _known(data: Mapping[str, Any], field: str) -> Any:
    """Text that is blank says nothing."""
    value = data.get(field)
    return None if isinstance(value, str) and not value.strip() else value


def _url(data: Mapping[str, Any]) -> str | None:
    text = _text(data, "url", LONGEST_URL)
    return None if text is None else normal_address(text) or text


def _title(data: Mapping[str, Any]) -> str | None:
    text = _text(data, "title", LONGEST_TITLE)
    if text is None:
        return None
    # Twice: lower case is not always composed where upper case was.
    lower = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).lower())
    return " ".join(lower.split())


def _text(data: Mapping[str, Any], field: str, longest: int) -> str | None:
    value = _known(data, field)
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidInput(field, f"must be text, got {_shown(value)}")
    if len(value) > longest:
        raise InvalidInput(field, f"must be at most {longest:,} characters to make a key from, got {len(value):,}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(field, "contains a lone surrogate, which is not valid Unicode") from None
    if "\x00" in value:
        raise InvalidInput(field, "contains a NUL character, which Postgres cannot store")
    return value.strip()


def _cents(data: Mapping[str, Any]) -> int | None:
    price, cents = _known(data, "price"), _known(data, "price_cents")
    if cents is not None and (type(cents) is not int or not 0 <= cents <= MOST_CENTS):
        raise InvalidInput("price_cents", f"must be a whole number from 0 to {MOST_CENTS:,}, got {_shown(cents)}")
    if price is None:
        return cents
    found = _in_cents(price)
    if cents is not None and cents != found:
        raise InvalidInput("price_cents", f"must be the price in cents, {found}, or be left out; got {cents}")
    return found


def _in_cents(price: Any) -> int:
    exact = _exact(price)
    if exact is None or not exact.is_finite() or not 0 <= exact <= MOST_CENTS // 100:
        raise InvalidInput(
            "price",
            f"must be a number from 0 to {MOST_CENTS // 100:,}, or such a number as text (19.90: no currency, no sign,"
            f" no thousands); got {_shown(price)}",
        )
    return int(exact.quantize(_CENTS, context=_EXACT).scaleb(2, context=_EXACT))


def _exact(price: Any) -> Decimal | None:
    """A binary fraction counts as it is printed: 19.995 is 20.00, although the double is a little less."""
    match price:
        case bool():
            return None
        case int():
            return Decimal(int(price)) if 0 <= price <= MOST_CENTS else None
        case float():
            return Decimal(repr(float(price)))
        case Decimal():
            return price
        case str() if _PRICE.fullmatch(price.strip()):
            return Decimal(price.strip())
    return None


def _day(data: Mapping[str, Any]) -> str | None:
    """As it is written, in whichever time zone that is: the same sale must not change its day with the reader's."""
    for field in DAY_NAMES:
        value = _known(data, field)
        if value is not None:
            return _as_day(field, value)
    return None


def _as_day(field: str, value: Any) -> str:
    if isinstance(value, datetime):
        value = value.date()
    if isinstance(value, date):
        return value.isoformat()
    found = _DAY.fullmatch(value.strip()) if isinstance(value, str) else None
    with suppress(ValueError):
        if found is not None:
            return date.fromisoformat(found[1]).isoformat()
    raise InvalidInput(field, f"must be a date, or begin with one as in 2030-01-31T12:00:00Z; got {_shown(value)}")


def _price_type(data: Mapping[str, Any]) -> str | None:
    value = _known(data, "price_type")
    known = value.strip().lower() if isinstance(value, str) else None
    if value is not None and known not in PRICE_TYPES:
        raise InvalidInput("price_type", f"must be one of {', '.join(PRICE_TYPES)}, or left out; got {_shown(value)}")
    return known


def _shown(value: Any) -> str:
    """What a user gave, never so long that it takes long to print."""
    if isinstance(value, str):
        return ascii(value[:40])
    is_short = isinstance(value, float) or (isinstance(value, int) and abs(value) < 10**20)
    return repr(value) if is_short else f"a value of type {type(value).__name__}"
