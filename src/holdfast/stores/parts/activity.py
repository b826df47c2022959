"""What happened minute by minute."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.activity import Activity, Kind, RolledUp
from holdfast.stores.database import Database
from holdfast.stores.verbs import activity, rolling


class ActivityPart:
    database: Database

    def roll_up(self, holder: str) -> RolledUp | None:
        """One pass over the newest part of the audit log; None when it is not this one's turn."""
        return rolling.roll_up(self.database, holder)

    def activity(
        self, kind: Kind, seconds: float, names: Sequence[str] | None = None, step_seconds: float = 60.0
    ) -> Activity:
        """Of every name that was heard of in that time, or of these; the busiest, where there are very many."""
        return activity.activity(self.database, kind, seconds, names, step_seconds)

    def forget_minutes(self, keep_seconds: float, limit: int) -> int:
        return activity.forget_minutes(self.database, keep_seconds, limit)
