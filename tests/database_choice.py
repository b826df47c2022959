"""Which database a test of processes, commands or HTTP runs on in `make test`. `make test-long` runs it on the other.

The contract suite proves on both databases what they do differently, for every verb. What is left for these tests is
in front of the database, and processes cost a hundred times as much.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SQLITE, POSTGRES = "sqlite", "postgres"

# By folder: SQLite is what a new user has, and a start costs less; Postgres is what loses connections and servers.
CHOSEN = {
    "acceptance": SQLITE,
    "chaos": POSTGRES,
    "dashboard": SQLITE,
    "promises": POSTGRES,
    "remote": SQLITE,
    "serve": SQLITE,
    "traces": SQLITE,
    "transports": SQLITE,
    "webhooks": SQLITE,
    "worker": SQLITE,
}
# On both: the first thing that a user runs, the two ways to lose a worker, and claims that are made together.
ON_BOTH = (
    "chaos/test_killed_processes.py",
    "serve/test_hub.py",
    "worker/test_first_steps.py",
    "worker/test_killed_supervisor.py",
)
_DATABASE = re.compile(r"(?<=[\[-])(sqlite|postgres)(?:ql)?(?=[\]-])")


def mark_other_database_long(items: Iterable[pytest.Item]) -> None:
    """Of tests that exist once for each database, mark the one as long that runs on the database not chosen."""
    twins: dict[str, dict[str, pytest.Item]] = defaultdict(dict)
    for item in items:
        place = item.path.relative_to(HERE).as_posix() if item.path.is_relative_to(HERE) else ""
        named = _DATABASE.search(item.name)
        if named and place not in ON_BOTH and place.partition("/")[0] in CHOSEN:
            twins[f"{place}::{_DATABASE.sub('', item.name)}"][named.group(1)] = item
    for name, by_database in twins.items():
        chosen = CHOSEN[name.partition("/")[0]]
        for database, item in by_database.items():
            if database != chosen and chosen in by_database:
                item.add_marker(pytest.mark.long)
