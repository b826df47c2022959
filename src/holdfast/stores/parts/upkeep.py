"""What any process may do for all of them, one at a time."""

from __future__ import annotations

from holdfast.domain.retention import Group, Kept, Preview, Pruned, Retired, Rules, Turn, Watermark
from holdfast.stores.database import Database
from holdfast.stores.verbs import (
    duties,
    retaining,
)


class UpkeepPart:
    database: Database

    def take_turn(self, name: str, holder: str, period: float) -> bool:
        """One winner per period, by the store's clock, however many ask."""
        return duties.take_turn(self.database, name, holder, period)

    def keep_turn(self, name: str, holder: str) -> bool:
        """Renew a turn while working; False when somebody else has it now."""
        return duties.keep_turn(self.database, name, holder)

    def turns(self) -> list[Turn]:
        return duties.turns(self.database)

    def retention_rules(self) -> Rules:
        return retaining.rules(self.database)

    def set_retention(self, what: str, queue: str, state: str, keep_seconds: float | None) -> None:
        retaining.set_rule(self.database, what, queue, state, keep_seconds)

    def unset_retention(self, what: str, queue: str, state: str) -> bool:
        return retaining.unset_rule(self.database, what, queue, state)

    def retention_due(self, what: Kept) -> list[Group]:
        return retaining.due(self.database, what)

    def retention_preview(self, most: int = retaining.COUNTED) -> list[Preview]:
        return retaining.preview(self.database, most)

    def prune(self, group: Group, limit: int) -> Pruned:
        return retaining.prune(self.database, group, limit)

    def retire(self, group: Group, limit: int) -> Retired:
        return retaining.retire(self.database, group, limit)

    def forget_ticks(self, keep_seconds: float, limit: int) -> int:
        return retaining.forget_ticks(self.database, keep_seconds, limit)

    def forget_source_events(self, keep_seconds: float, limit: int) -> int:
        return retaining.forget_source_events(self.database, keep_seconds, limit)

    def forget_refusals(self, keep_seconds: float, after: str | None, limit: int) -> tuple[int, str | None]:
        return retaining.forget_refusals(self.database, keep_seconds, after, limit)

    def histories_retired(self) -> Watermark | None:
        return retaining.watermark(self.database)

    def checkpoint(self) -> bool:
        return self.database.checkpoint()
