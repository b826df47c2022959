"""Whether there are limited queues and sources at all, as it was at most five seconds ago.

Whoever has no limits thereby claims in one statement; an idle worker, whose claims bring the news themselves, never
asks for it. That memory decides nothing about safety: see `verbs/claiming.py`.
"""

from __future__ import annotations

import time

from holdfast.stores.database import Database
from holdfast.stores.statements.sources import LIMITS_EXIST

REMEMBERED_SECONDS = 5.0


class KnownLimits:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._exist = True
        self._looked_at = float("-inf")

    def forget(self) -> None:
        """Look again when next asked; other processes notice within five seconds."""
        self._looked_at = float("-inf")

    def seen(self, exist: bool) -> None:
        """Somebody who looked for work has noticed."""
        self._exist, self._looked_at = exist, time.monotonic()

    def exist(self) -> bool:
        if time.monotonic() - self._looked_at > REMEMBERED_SECONDS:
            with self._database.reading() as transaction:
                self.seen(bool(transaction.rows(LIMITS_EXIST)[0][0]))
        return self._exist
