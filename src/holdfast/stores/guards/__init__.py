"""What the database enforces by itself, generated from `domain/lifecycle.py`.

Three things, on both dialects: a move that the table does not allow is refused; every transition leaves its audit row
in the same transaction; the audit log takes no UPDATE, no DELETE and no INSERT of its own. An UPDATE typed by hand
(the state changes and `seq` does not) is completed into a proper transition, marked manual, and then judged like any
other.

Triggers and functions are not migrated step by step: `db upgrade` replaces all of them as its last step. It never
installs a lower number over a higher one (docs/decisions/0020).
"""

from __future__ import annotations

import hashlib

from holdfast.stores.guards import postgres, sqlite

# Raise it in the first change of a guard after a release: 1 is commit 004dfe1, which stores no number. Within one
# number the fingerprint tells development builds apart. tests/migration/test_numbers.py keeps the released ones.
NUMBER = 2

# The fingerprints of number 1. That release compares nothing else: as long as it finds its own, and the triggers of its
# names, it starts beside this one and its `db upgrade` changes nothing. Remove them with the first migration after
# 0008: that release refuses a newer schema.
UNNUMBERED = {"postgresql": "10e0e9ef8690087e", "sqlite": "5babef9b566166cb"}


def statements(dialect: str) -> list[str]:
    """The DDL that (re-)installs every guard of a dialect, in order."""
    return postgres.statements() if dialect == "postgresql" else sqlite.statements()


def fingerprint(dialect: str) -> str:
    return hashlib.sha256("\n".join(statements(dialect)).encode()).hexdigest()[:16]
