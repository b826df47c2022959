"""Column types and the store's clock, for both dialects.

SQLite keeps a time as text of one fixed width in UTC, so that text order is time order and its own date functions can
read it. Its statements are handed the time as a parameter (the embedded store's clock is the host's); Postgres calls
`holdfast_now()`, which is `clock_timestamp()` unless a test has replaced it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, TIMESTAMP, Dialect, Text, TypeDecorator, Uuid
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import FunctionElement
from sqlalchemy.types import TypeEngine

from holdfast.domain.spec import decode_json, encode_json

SQLITE_NOW = "(strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z')"

# UUIDv7: 48 bits of milliseconds, the version and variant nibbles, the rest random. Python makes the ids of jobs that
# come through the library; these expressions make those of a raw INSERT.
POSTGRES_UUID7 = (
    "encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid()) placing "
    "substring(int8send(floor(extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6), "
    "52, 1), 53, 1), 'hex')::uuid"
)
_SQLITE_MILLISECONDS = "printf('%012x', strftime('%s', 'now') * 1000 + substr(strftime('%f', 'now'), 4))"
SQLITE_UUID7 = (
    f"(substr({_SQLITE_MILLISECONDS}, 1, 8) || '-' || substr({_SQLITE_MILLISECONDS}, 9, 4) || '-7' || "
    "substr(lower(hex(randomblob(2))), 2) || '-' || substr('89ab', 1 + (abs(random()) % 4), 1) || "
    "substr(lower(hex(randomblob(2))), 2) || '-' || lower(hex(randomblob(6))))"
)


def to_text(moment: datetime) -> str:
    # Not strftime: it leaves out the leading zeros of an early year.
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def from_text(text: str) -> datetime:
    return datetime.fromisoformat(text)


class Time(TypeDecorator[datetime]):
    impl = TIMESTAMP(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == "sqlite":
            return dialect.type_descriptor(Text())
        return dialect.type_descriptor(TIMESTAMP(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        return to_text(value) if value is not None and dialect.name == "sqlite" else value

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        return from_text(value) if value is not None and dialect.name == "sqlite" else value


class JobId(TypeDecorator[str]):
    """A UUID that Python code always sees in its hyphenated text form."""

    impl = Uuid(as_uuid=False)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(Text() if dialect.name == "sqlite" else Uuid(as_uuid=False))


class Json(TypeDecorator[Any]):
    """JSON kept as the text that was sent: `json` on Postgres, TEXT on SQLite.

    Not jsonb: text keeps a float a float, so that a payload read back has the spec hash it was stored under, and it is
    cheaper to write. Operators cast to jsonb where they need its operators. Not SQLite's JSON: that name gives the
    column numeric affinity, and the result "007" would come back as 7.
    """

    impl = JSON(none_as_null=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(Text() if dialect.name == "sqlite" else JSON(none_as_null=True))

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return encode_json(value) if value is not None and dialect.name == "sqlite" else value

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        return decode_json(value) if value is not None and dialect.name == "sqlite" else value


class store_now(FunctionElement[datetime]):
    inherit_cache = True


class new_uuid7(FunctionElement[str]):
    inherit_cache = True


@compiles(store_now, "postgresql")
def _postgres_now(_element: Any, _compiler: Any, **_options: Any) -> str:
    return "holdfast_now()"


@compiles(store_now, "sqlite")
def _sqlite_now(_element: Any, _compiler: Any, **_options: Any) -> str:
    return SQLITE_NOW


@compiles(new_uuid7, "postgresql")
def _postgres_uuid7(_element: Any, _compiler: Any, **_options: Any) -> str:
    return "holdfast_uuid7()"


@compiles(new_uuid7, "sqlite")
def _sqlite_uuid7(_element: Any, _compiler: Any, **_options: Any) -> str:
    return SQLITE_UUID7
