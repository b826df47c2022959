"""Which guards a database really has. Its fingerprint says only which were once installed: a trigger may have been
dropped or switched off since."""

from __future__ import annotations

import re
from typing import NamedTuple

from holdfast.stores import guards

_TRIGGER = re.compile(r"CREATE TRIGGER (\w+)\s.*?\sON (\w+)", re.DOTALL)
_VIEW = re.compile(r"CREATE (?:OR REPLACE )?VIEW (\w+)")

# Table, name, and whether it is in force: it fires, on every partition of the table if it has some, and its function
# finds the tables and has the rights of their owner. The view has no table of its own.
QUESTION = {
    "postgresql": (
        "SELECT relname, tgname, tgenabled IN ('O', 'A')"
        " AND (NOT prosecdef OR pg_has_role(proowner, relowner, 'USAGE') AND pronamespace = relnamespace)"
        " AND NOT EXISTS ("
        "  SELECT FROM pg_partition_tree(tgrelid) place WHERE NOT EXISTS ("
        "    SELECT FROM pg_trigger other WHERE other.tgrelid = place.relid AND other.tgname = pg_trigger.tgname"
        "    AND other.tgenabled IN ('O', 'A')))"
        " FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid JOIN pg_proc ON pg_proc.oid = tgfoid"
        " WHERE NOT tgisinternal AND starts_with(relname, 'holdfast_') AND pg_table_is_visible(pg_class.oid)"
        " UNION ALL SELECT relname, relname, true FROM pg_class"
        " WHERE relkind = 'v' AND relname = 'holdfast_attempts' AND pg_table_is_visible(oid)"
    ),
    "sqlite": "SELECT tbl_name, name, true FROM sqlite_master WHERE type IN ('trigger', 'view')",
}


class Guard(NamedTuple):
    table: str
    name: str

    def __str__(self) -> str:
        return self.name if self.table == self.name else f"{self.name} on {self.table}"


def expected(dialect: str) -> frozenset[Guard]:
    ddl = guards.statements(dialect)
    triggers = (Guard(found[2], found[1]) for text in ddl if (found := _TRIGGER.match(text)))
    views = (Guard(found[1], found[1]) for text in ddl if (found := _VIEW.match(text)))
    return frozenset([*triggers, *views])
