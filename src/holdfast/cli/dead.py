"""`holdfast dead list`, `requeue` and `purge`: the dead letters, which are the failed jobs"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import output
from holdfast.cli.ages import age
from holdfast.cli.confirm import confirm
from holdfast.cli.jobs_list import standing
from holdfast.cli.progress_shown import shown
from holdfast.cli.session import Json, Session, begin, opened
from holdfast.domain import durations
from holdfast.domain.answers import Operated, OperatorAnswer
from holdfast.domain.errors import InvalidInput
from holdfast.domain.views import DeadCount, Page

if TYPE_CHECKING:
    from holdfast.domain.job import Job
    from holdfast.stores.sql_store import SqlStore

BATCH = 500
MOST_REFUSALS = 1000  # of them are listed

Task = Annotated[str | None, typer.Option(metavar="TASK", help="Only jobs of this task.")]
Queue = Annotated[str | None, typer.Option(metavar="Q", help="Only jobs of this queue.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def list_dead(
    context: typer.Context,
    task: Task = None,
    queue: Queue = None,
    limit: Annotated[int, typer.Option(metavar="N", help="List at most so many jobs, up to 1000.")] = 50,
    after: Annotated[str | None, typer.Option(metavar="ID", help="Continue after this job.")] = None,
    json: Json = False,
) -> None:
    """The failed jobs, counted by task and error code, and the newest of them. Exit code 1 when there is none."""
    session = begin(context, json)
    with opened(session.settings()) as store:
        groups = store.dead_counts(task=task, queue=queue)
        page = store.dead(task=task, queue=queue, limit=limit, after=after)
    if session.json:
        output.document({"groups": groups, "jobs": page.items, "after": page.after})
    elif groups:
        _print(groups, page)
    else:
        output.remark("There is no dead letter.")
    if not groups:
        raise typer.Exit(1)


def requeue(
    context: typer.Context,
    job_ids: Annotated[list[str] | None, typer.Argument(metavar="[ID…]")] = None,
    every: Annotated[bool, typer.Option("--all", help="All that --task and --queue leave.")] = False,
    task: Task = None,
    queue: Queue = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Make failed jobs pending again, with fresh budgets. Exit code 1 when one was refused."""
    session = begin(context, json)
    if bool(job_ids) == every:
        raise InvalidInput("jobs", "name their ids, or say --all, and not both")
    if job_ids and (task or queue):
        raise InvalidInput("--task and --queue", "choose among all failed jobs; they do not go with ids")
    with opened(session.settings()) as store:
        if job_ids:
            requeued = _requeue(store, iter([job_ids]), len(job_ids), session)
        else:
            count = _count(store, task, queue, None)
            if count:
                confirm(f"Requeue {count:,} failed jobs?", yes)
            requeued = _requeue(store, _pages(store, task, queue, None), count, session)
    _answer_requeue(session, requeued)


def purge(
    context: typer.Context,
    task: Task = None,
    queue: Queue = None,
    older_than: Annotated[
        str | None, typer.Option(metavar="30d", help="Only what failed longer ago than that.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Delete failed jobs. What happened to them stays on record, and ends in `pruned`."""
    session = begin(context, json)
    age_seconds = None if older_than is None else durations.seconds(older_than, "--older-than")
    with opened(session.settings()) as store:
        groups = store.dead_counts(task=task, queue=queue, older_than=age_seconds)
        count = sum(group.count for group in groups)
        purged = 0
        if count and not dry_run:
            confirm(f"Delete {count:,} failed jobs?", yes)
            with shown("deleting", silent=session.json) as steps:
                for purged in _purge(store, task, queue, age_seconds):
                    steps.told(purged, count)
    if session.json:
        output.document({"purged": None if dry_run else purged, "groups": groups})
    elif dry_run:
        _print_groups(groups)
        output.line(f"{count:,} jobs would be deleted.")
    else:
        output.line(f"{purged:,} jobs deleted.")


def _purge(store: SqlStore, task: str | None, queue: str | None, older_than: float | None) -> Iterator[int]:
    """How many are gone by now, again and again."""
    purged = 0
    for ids in _pages(store, task, queue, older_than):
        more = True
        while more:  # a batch is cut short where jobs have many log lines
            gone = store.purge(ids, older_than or 0.0)
            purged += len(gone.ids)
            yield purged
            more = gone.more and bool(gone.ids)


def _pages(store: SqlStore, task: str | None, queue: str | None, older_than: float | None) -> Iterator[list[str]]:
    """Newest first, by id: a job that fails again meanwhile is not met twice."""
    after: str | None = None
    while ids := store.dead_ids(task=task, queue=queue, older_than=older_than, limit=BATCH, after=after):
        yield ids
        after = ids[-1]


def _count(store: SqlStore, task: str | None, queue: str | None, older_than: float | None) -> int:
    return sum(group.count for group in store.dead_counts(task=task, queue=queue, older_than=older_than))


@dataclass(slots=True)
class _Requeued:
    counts: Counter[Operated] = field(default_factory=Counter)
    refused: list[OperatorAnswer] = field(default_factory=list)

    def add(self, answers: list[OperatorAnswer]) -> None:
        self.counts.update(answer.did for answer in answers)
        self.refused += [answer for answer in answers if not answer.ok][: MOST_REFUSALS - len(self.refused)]


def _requeue(store: SqlStore, batches: Iterator[list[str]], count: int, session: Session) -> _Requeued:
    done = _Requeued()
    with shown("requeueing", silent=session.json) as steps:
        for ids in batches:
            done.add(store.requeue(ids))
            steps.told(done.counts.total(), count)
    return done


def _answer_requeue(session: Session, done: _Requeued) -> None:
    counts, refused = done.counts, done.refused
    requeued = counts[Operated.REQUEUED]
    if session.json:
        listed = [{"id": answer.job_id, "did": answer.did, "state": answer.state} for answer in refused]
        output.document({"requeued": requeued, "refused": counts.total() - requeued, "jobs": listed})
    else:
        for answer in refused:
            output.line(f"{answer.job_id}  refused: {str(answer.did).replace('_', ' ')}")
        output.line(f"{requeued:,} jobs are pending again; {counts.total() - requeued:,} were refused.")
    if counts.total() != requeued:
        raise typer.Exit(1)


def _print(groups: list[DeadCount], page: Page[Job]) -> None:
    _print_groups(groups)
    output.line("")
    now = datetime.now(UTC)
    rows = [(j.id, j.task, j.queue, j.attempt, age(j.finished_at, now), standing(j, now)) for j in page.items]
    output.table(("id", "task", "queue", "attempt", "failed", ""), rows)
    if page.after:
        output.remark(f"There are more: --after {page.after}")


def _print_groups(groups: list[DeadCount]) -> None:
    now = datetime.now(UTC)
    output.table(
        ("task", "code", "count", "newest"), [(g.task, g.code, f"{g.count:,}", age(g.newest_at, now)) for g in groups]
    )
