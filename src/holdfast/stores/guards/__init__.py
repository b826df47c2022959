"""What the database enforces by itself, generated from `domain/lifecycle.py`.

Three things, on both dialects: a move that the table does not allow is refused; every transition leaves its audit row
in the same transaction; the audit log takes no UPDATE, no DELETE and no INSERT of its own. An UPDATE typed by hand
(the state changes and `seq` does not) is completed into a proper transition, marked manual, and then judged like any
other.

Triggers and functions are not migrated step by step: `install` replaces all of them, and `db upgrade` calls it as its
last step whenever the generated text differs from the installed one.
"""

from __future__ import annotations

import hashlib

from holdfast.stores.guards import postgres, sqlite


def statements(dialect: str) -> list[str]:
    """The DDL that (re-)installs every guard of a dialect, in order."""
    return postgres.statements() if dialect == "postgresql" else sqlite.statements()


def fingerprint(dialect: str) -> str:
    return hashlib.sha256("\n".join(statements(dialect)).encode()).hexdigest()[:16]
