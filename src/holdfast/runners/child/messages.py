"""The frames a runner writes, encoded for speed: two of them go out for every job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.domain.outcome import Outcome, Succeeded
from holdfast.domain.wire import outcome_to_json
from holdfast.runners.frames import COMPLETED_IN, encode, succeeded

if TYPE_CHECKING:
    from holdfast.domain.artifacts import Artifact
    from holdfast.domain.logs import LogLine
    from holdfast.domain.looks import Looks
    from holdfast.domain.manifest import TaskInfo
    from holdfast.domain.schedule import Declaration
    from holdfast.domain.sources import SourceDeclaration

frame = encode


def done(lease_id: str, outcome: Outcome, usage: dict[str, float]) -> bytes:
    if "duration_ms" in usage and type(outcome) is Succeeded and outcome.result is None and outcome.result_ref is None:
        return succeeded(lease_id, usage)
    return frame("done", id=lease_id, outcome=outcome_to_json(outcome), usage=usage)


def completed_in(lease_id: str, otherwise: Outcome, usage: dict[str, float]) -> bytes:
    """`otherwise` is how the task itself ended: it tells why its transaction may have rolled back."""
    return frame("done", id=lease_id, outcome=COMPLETED_IN, usage=usage, otherwise=outcome_to_json(otherwise))


def looked(lease_id: str, looks: Looks) -> bytes:
    return frame("looked", id=lease_id, looks=looks)


def returned(lease_ids: list[str]) -> bytes:
    return frame("returned", ids=lease_ids)


def logged(lease_id: str, lines: list[LogLine]) -> bytes:
    return frame("log", id=lease_id, lines=[line.to_json() for line in lines])


def saved(lease_id: str, name: str, artifact: Artifact | None) -> bytes:
    if artifact is None:
        return frame("saving", id=lease_id, name=name)
    return frame("saved", id=lease_id, artifact=artifact.to_json())


def ready(
    tasks: list[TaskInfo],
    schedules: list[Declaration],
    sources: list[SourceDeclaration],
    database: str | None,
    artifacts: str | None,
) -> bytes:
    return frame(
        "ready",
        tasks=[task.to_json() for task in tasks],
        schedules={schedule.name: schedule.to_json() for schedule in schedules},
        sources={source.name: source.limits for source in sources},
        database=database,
        artifacts=artifacts,
    )
