"""The tasks that workers have announced. Inserted in the order of their names: two workers cannot wait in a circle."""

from __future__ import annotations

from holdfast.stores.statements.words import Statement, Words

COLUMNS = {"name": "text", "version": "text", "kind": "text", "on_lost_lease": "text", "defaults": "json"}
_NAMES = ", ".join(COLUMNS)


def _announce(words: Words) -> str:
    changes = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS if name != "name")
    return f"""
        INSERT INTO holdfast_tasks ({_NAMES}, announced_at)
        SELECT {", ".join(f"r.{name}" for name in COLUMNS)}, {words.now} FROM {words.rows(COLUMNS)} {words.true_filter}
        ORDER BY r.name
        ON CONFLICT (name) DO UPDATE SET {changes}, announced_at = excluded.announced_at"""


ANNOUNCE = Statement("tasks.announce", _announce)
ANNOUNCED = Statement("tasks.announced", lambda _words: f"SELECT {_NAMES} FROM holdfast_tasks WHERE name = :name")
ALL_ANNOUNCED = Statement("tasks.all_announced", lambda _words: f"SELECT {_NAMES} FROM holdfast_tasks ORDER BY name")
