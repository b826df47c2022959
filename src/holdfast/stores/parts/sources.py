"""Sources: their limits, how they are, and the jobs inside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.domain.answers import Beat
from holdfast.domain.sources import Entered, Entry, Leaving, SourceDeclaration
from holdfast.domain.views import Page, SourceEvent, SourceView
from holdfast.stores.database import Database
from holdfast.stores.verbs import holds, sources
from holdfast.stores.verbs.claiming import Claiming


class SourcePart:
    database: Database
    _claiming: Claiming

    def set_source(self, name: str, **changes: Any) -> SourceView:
        """Create the source if need be, and change the limits that are named, and no others."""
        changed = sources.set_source(self.database, name, changes)
        self._claiming.limits_changed()
        return changed

    def resume_source(self, name: str) -> SourceView:
        """End its pause, whoever paused it, and close its breaker."""
        return sources.resume(self.database, name)

    def announce_sources(self, declared: Sequence[SourceDeclaration]) -> None:
        """What a worker's code declares, when it starts. What an operator has changed since stays, until the code says
        something else than it said before."""
        sources.announce(self.database, declared)
        self._claiming.limits_changed()

    def sources(self) -> list[SourceView]:
        return sources.views(self.database)

    def source(self, name: str) -> SourceView:
        return sources.view(self.database, name)

    def source_events(self, source: str | None = None, limit: int = 50, after: str | None = None) -> Page[SourceEvent]:
        """The newest first."""
        return sources.events(self.database, source, limit, after)

    def enter_source(self, lease: Beat, entry: Entry) -> Entered:
        return holds.enter(self.database, lease, entry)

    def leave_source(self, lease: Beat, leaving: Leaving) -> None:
        holds.leave(self.database, lease, leaving)

    def forget_holds(self, limit: int) -> int:
        """Drop those of attempts that are over; they count for nothing any more."""
        return holds.forget(self.database, limit)
