"""Where the dialects differ, as a small vocabulary; and the statement that is rendered from it once.

Batches travel as one JSON parameter: a single round trip for any number of rows, the same on every driver, and no
limit on the number of parameters. Times that the store decides come from its own clock: `holdfast_now()` on Postgres,
the `:now` parameter on SQLite, which the transaction fills in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from sqlalchemy import make_url, text

POSTGRES = "postgresql"
SQLITE = "sqlite"


@dataclass(frozen=True, slots=True)
class Words:
    dialect: str

    @property
    def postgres(self) -> bool:
        return self.dialect == POSTGRES

    @property
    def now(self) -> str:
        return "holdfast_now()" if self.postgres else ":now"

    @property
    def fixed_now(self) -> str:
        """The time, as a value that an index condition can use (a volatile call could only filter)."""
        return "(SELECT holdfast_now())" if self.postgres else ":now"

    def after(self, seconds: str, moment: str | None = None) -> str:
        start = moment or self.now
        if self.postgres:
            return f"({start} + make_interval(secs => {seconds}))"
        return f"(strftime('%Y-%m-%dT%H:%M:%f', {start}, ({seconds}) || ' seconds') || '000Z')"

    @property
    def transition_time(self) -> str:
        """`updated_at` of a transition: the clock, but never before the transition that went before."""
        return f"greatest({self.now}, j.updated_at)" if self.postgres else "max(:now, j.updated_at)"

    def as_text(self, column: str) -> str:
        return f"CAST({column} AS text)" if self.postgres else column

    def id(self, parameter: str = "id") -> str:
        return f"CAST(:{parameter} AS uuid)" if self.postgres else f":{parameter}"

    def moment(self, parameter: str) -> str:
        return f"CAST(:{parameter} AS timestamptz)" if self.postgres else f":{parameter}"

    def texts(self, parameter: str) -> str:
        """A JSON array of texts as a table whose column is `value`."""
        if self.postgres:
            return f"json_array_elements_text(CAST(:{parameter} AS json))"
        return f"json_each(:{parameter})"

    def among(self, parameter: str) -> str:
        """The right-hand side of `IN` for a JSON array of texts."""
        return f"(SELECT value FROM {self.texts(parameter)})"

    def ids(self, parameter: str = "ids") -> str:
        """The right-hand side of `id = …` for a JSON array of ids."""
        if self.postgres:
            return f"ANY (ARRAY(SELECT CAST(value AS uuid) FROM {self.texts(parameter)}))"
        return self.among(parameter)

    def is_one_of(self, parameter: str = "ids") -> str:
        return f"= {self.ids(parameter)}" if self.postgres else f"IN {self.ids(parameter)}"

    def rows(self, columns: Mapping[str, str], alias: str = "r", parameter: str = "rows") -> str:
        """A JSON array of objects as a table. Column types: uuid, text, integer, bigint, float8, json, timestamptz."""
        if self.postgres:
            typed = ", ".join(f"{name} {kind}" for name, kind in columns.items())
            return f"json_to_recordset(CAST(:{parameter} AS json)) AS {alias} ({typed})"
        picked = ", ".join(_sqlite_column(name, kind) for name, kind in columns.items())
        return f"(SELECT {picked} FROM json_each(:{parameter})) AS {alias}"

    @property
    def skip_locked(self) -> str:
        return "FOR NO KEY UPDATE OF j SKIP LOCKED" if self.postgres else ""

    def returning(self, *columns: str) -> str:
        """Columns of the updated row `j`, the id first; SQLite's RETURNING knows no alias, Postgres needs it."""
        prefix = "j." if self.postgres else ""
        return ", ".join([self.as_text(f"{prefix}id"), *(f"{prefix}{column}" for column in columns)])

    @property
    def true_filter(self) -> str:
        """SQLite cannot tell an upsert from a join unless the SELECT before it has a WHERE."""
        return "" if self.postgres else "WHERE true"


def _sqlite_column(name: str, kind: str) -> str:
    if kind == "json":
        return f"nullif(value -> '$.{name}', 'null') AS {name}"
    return f"value ->> '$.{name}' AS {name}"


@dataclass(frozen=True)
class Statement:
    """SQL with named parameters, for every dialect it is used on."""

    name: str
    build: Callable[[Words], str]
    # On Postgres: plan it anew at every execution. A plan that is kept from when the table was small or empty reads
    # all of it, until somebody analyses the table, when it has become large.
    replan: bool = False

    def sql(self, dialect: str) -> str:
        """Text with `:name` parameters, for SQLAlchemy's `text()`."""
        return _source(self, dialect)

    def driver_sql(self, dialect: str) -> str:
        """Text in the parameter style of psycopg or sqlite3."""
        return _compiled(self, dialect)

    def __hash__(self) -> int:
        return hash(self.name)


@cache
def _source(statement: Statement, dialect: str) -> str:
    return statement.build(Words(dialect))


@cache
def _compiled(statement: Statement, dialect: str) -> str:
    if dialect == SQLITE:  # sqlite3 takes :name as it stands
        return statement.sql(dialect)
    driver = make_url("postgresql+psycopg://").get_dialect()
    return str(text(statement.sql(dialect)).compile(dialect=driver()))
