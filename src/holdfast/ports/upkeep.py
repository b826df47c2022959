"""What the chores ask (`maintenance/`): whose turn it is, what is due, what may go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from holdfast.domain.activity import Activity, Kind, RolledUp
    from holdfast.domain.artifacts import Artifact, LiveArtifacts
    from holdfast.domain.retention import Group, Kept, Pruned, Retired, Rules


class UpkeepStore(Protocol):
    """What any process may do for all of them, one at a time: see `maintenance/`."""

    def take_turn(self, name: str, holder: str, period: float) -> bool: ...

    def keep_turn(self, name: str, holder: str) -> bool: ...

    def retention_rules(self) -> Rules: ...

    def retention_due(self, what: Kept) -> list[Group]: ...

    def prune(self, group: Group, limit: int) -> Pruned: ...

    def retire(self, group: Group, limit: int) -> Retired: ...

    def forget_ticks(self, keep_seconds: float, limit: int) -> int: ...

    def forget_source_events(self, keep_seconds: float, limit: int) -> int: ...

    def forget_refusals(self, keep_seconds: float, after: str | None, limit: int) -> tuple[int, str | None]: ...

    def forget_claim_requests(self, keep_seconds: float, limit: int) -> int: ...

    def checkpoint(self) -> bool: ...


class ActivityStore(Protocol):
    """What happened minute by minute: kept by whoever does upkeep, read by whoever draws charts."""

    def roll_up(self, holder: str) -> RolledUp | None:
        """One pass over the newest part of the audit log; None when it is not this one's turn."""

    def activity(
        self, kind: Kind, seconds: float, names: Sequence[str] | None = None, step_seconds: float = 60.0
    ) -> Activity: ...

    def forget_minutes(self, keep_seconds: float, limit: int) -> int: ...


class ArtifactRecordStore(Protocol):
    """What is on record of the files that jobs saved."""

    def store_id(self) -> str: ...

    def artifacts(self, job_id: str) -> list[Artifact]: ...

    def live_artifacts(self, job_ids: Sequence[str]) -> LiveArtifacts: ...
