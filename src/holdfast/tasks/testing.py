"""For users' tests: an app on a fresh store, and questions about what it enqueued."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.domain.job import Job
    from holdfast.tasks.app import App
    from holdfast.tasks.task import AnyTask

PAGE = 500


class Jobs:
    """What was enqueued in an app since the block began."""

    def __init__(self, app: App) -> None:
        self.app = app

    def enqueued(self, task: AnyTask | str | None = None) -> list[Job]:
        """The jobs, of one task or of all, oldest first; also those that have ended."""
        name = None if task is None else _name(task)
        found: list[Job] = []
        after: str | None = None
        while True:
            page = self.app.store.jobs(task=name, limit=PAGE, after=after)
            found += page.items
            if page.after is None:
                return sorted(found, key=lambda job: (job.created_at, job.id))
            after = page.after

    def assert_enqueued(
        self,
        task: AnyTask | str,
        payload: Mapping[str, Any] | None = None,
        *,
        queue: str | None = None,
        count: int | None = None,
    ) -> Job:
        """At least one job, or exactly `count`, of this task with at least these arguments; returns the first."""
        __tracebackhide__ = True
        wanted = self._as_stored(task, payload or {})
        jobs = self.enqueued(task)
        matching = [job for job in jobs if _fits(job, wanted, queue)]
        if not matching or (count is not None and len(matching) != count):
            raise AssertionError(_explained(_name(task), wanted, queue, count, matching, jobs))
        return matching[0]

    def assert_not_enqueued(self, task: AnyTask | str, payload: Mapping[str, Any] | None = None) -> None:
        __tracebackhide__ = True
        wanted = self._as_stored(task, payload or {})
        found = [job for job in self.enqueued(task) if _fits(job, wanted, None)]
        if found:
            raise AssertionError(f"{_name(task)} was enqueued: {_listed(found)}")

    def work(self, *, queues: Sequence[str] | None = None, limit: int | None = None) -> int:
        """Run everything that is due, here; how many jobs ran."""
        return self.app.work(until_empty=True, queues=queues, limit=limit)

    def _as_stored(self, task: AnyTask | str, payload: Mapping[str, Any]) -> dict[str, Any]:
        known = self.app.tasks.get(task) if isinstance(task, str) else task
        return dict(payload) if known is None else known.arguments.dump_some(payload)


@contextmanager
def fresh_store(app: App, directory: Path | None = None) -> Iterator[Jobs]:
    """The app on an empty SQLite file inside the block, whatever store it has outside."""
    with tempfile.TemporaryDirectory(prefix="holdfast-", dir=directory) as folder, _on(app, Path(folder)):
        yield Jobs(app)


def _on(app: App, folder: Path) -> AbstractContextManager[object]:
    return app.borrowed_store(f"sqlite:///{folder / 'holdfast.db'}", folder / "artifacts")


def _name(task: AnyTask | str) -> str:
    return task if isinstance(task, str) else task.name


def _fits(job: Job, payload: Mapping[str, Any], queue: str | None) -> bool:
    if queue is not None and job.queue != queue:
        return False
    return all(name in job.payload and job.payload[name] == value for name, value in payload.items())


def _explained(
    name: str,
    payload: Mapping[str, Any],
    queue: str | None,
    count: int | None,
    matching: list[Job],
    jobs: list[Job],
) -> str:
    wanted = "at least one job" if count is None else f"{count} jobs"
    where = f" on queue {queue}" if queue else ""
    having = f" with {dict(payload)}" if payload else ""
    seen = f"{name} was enqueued as {_listed(jobs)}" if jobs else f"{name} was not enqueued at all"
    return f"expected {wanted} of {name}{having}{where}, found {len(matching)}; {seen}"


def _listed(jobs: list[Job]) -> str:
    shown = [f"{job.payload} on {job.queue}" for job in jobs[:10]]
    return "; ".join([*shown, f"and {len(jobs) - 10} more"] if len(jobs) > 10 else shown)
