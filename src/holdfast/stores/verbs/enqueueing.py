"""Enqueue: one statement for one or many, COPY where nothing can conflict.

Uniqueness is the database's unique index. A job that was not inserted because its key or id is taken is answered with
the job that holds it; the holder's row is only read, never locked, so a user's long transaction blocks nobody. If the
holder ended between the two statements, the insert is tried again.

The ids are chosen before the first statement, so an enqueue whose session broke is repeated once on a new one: the
jobs of the first try are recognised by their ids.

An insert waits for whoever else is inserting its key. Nobody waits in a circle because every batch takes its keys in
one order; so a batch of our own that has to try again gives its keys back first and begins anew.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from holdfast.domain.alike import AlikeJobs, representatives
from holdfast.domain.errors import Conflict, StoreUnavailable
from holdfast.domain.job import Enqueued, NewJob
from holdfast.domain.lifecycle import State
from holdfast.domain.retry import RetryPolicy
from holdfast.domain.spec import encode_json
from holdfast.stores.database import CursorTransaction, Database, SessionLost, Transaction
from holdfast.stores.ids import is_uuid7, new_ids
from holdfast.stores.statements import enqueue as sql
from holdfast.stores.statements.words import POSTGRES, SQLITE, Statement
from holdfast.stores.types import to_text

COPY_FROM = 20  # below this a single INSERT is faster than setting up a COPY
BY_THE_PAGE_FROM = 200
CHUNK = 5_000
TRIES = 8
# In a transaction of our own nobody waits while we do: the more hands a batch of keys goes through, the longer.
OWN_TRIES = 20
LONGEST_PAUSE_SECONDS = 0.1
UNIQUE_VIOLATION = "23505"
NO_TRANSACTION = "25P01"  # SQLSTATE of a savepoint outside a transaction


def enqueue_one(database: Database, job: NewJob) -> Enqueued:
    ids = new_ids(1)
    try:
        if _may_conflict(job):
            return _enqueue_all(database, [job], ids)[0]
        with database.statement() as transaction:
            if database.dialect == POSTGRES and _is_plain(job):
                return _insert_one(transaction, job, ids[0])
            return _insert_plain(transaction, [job], ids)[0]
    except SessionLost:
        return _enqueue_again(database, [job], ids)[0]


def enqueue(database: Database, jobs: Sequence[NewJob]) -> list[Enqueued]:
    if not jobs:
        return []
    if len(jobs) == 1:
        return [enqueue_one(database, jobs[0])]
    ids = new_ids(len(jobs))
    try:
        return _enqueue(database, jobs, ids)
    except SessionLost:
        return _enqueue_again(database, jobs, ids)


def _enqueue(database: Database, jobs: Sequence[NewJob], ids: list[str]) -> list[Enqueued]:
    if database.dialect == POSTGRES and len(jobs) >= COPY_FROM and all(map(_is_plain, representatives(jobs))):
        with database.statement() as transaction:  # one COPY, which is all or nothing by itself
            return _copy(transaction, jobs, ids)
    return _enqueue_all(database, list(jobs), ids)


def _enqueue_again(database: Database, jobs: Sequence[NewJob], ids: list[str]) -> list[Enqueued]:
    """The first try may have been committed: a job with an id that was chosen here was created by it."""
    known = [job if job.id is not None else replace(job, id=own) for job, own in zip(jobs, ids, strict=True)]
    answers = _enqueue_all(database, known, ids)
    tried = zip(answers, jobs, ids, strict=True)
    return [
        replace(answer, created=answer.created or (answer.id == own and job.id is None)) for answer, job, own in tried
    ]


def _enqueue_all(database: Database, jobs: Sequence[NewJob], ids: list[str]) -> list[Enqueued]:
    for tried in range(OWN_TRIES):
        if tried:
            time.sleep(random.uniform(0, min(0.001 * 2**tried, LONGEST_PAUSE_SECONDS)))
        try:
            with database.transaction() as transaction:
                return _insert(transaction, jobs, ids, tries=1)
        except _KeyChangedHands:
            continue
        except database.content_errors as error:
            if not _has_history(error):
                raise
    raise StoreUnavailable("a unique key changed hands on every try; enqueue again")


def _has_history(error: Exception) -> bool:
    """On Postgres: retention pruned the job that had the id after the check. The next try refuses the id.

    Not by the constraint, which has another name on each partition of the audit log.
    """
    context = getattr(getattr(error, "diag", None), "context", None) or ""
    return getattr(error, "sqlstate", None) == UNIQUE_VIOLATION and "holdfast_audit_insert()" in context


def enqueue_in(transaction: Transaction, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """In a transaction that somebody else ends."""
    ids = new_ids(len(jobs))
    with suppress(_KeyChangedHands):
        if transaction.dialect == POSTGRES and any(map(_may_miss_success, jobs)) and _set_savepoint(transaction):
            return _insert_or_roll_back(transaction, jobs, ids)
        return _insert(transaction, jobs, ids, tries=TRIES)
    raise StoreUnavailable("a unique key changed hands on every try; enqueue again")


def _set_savepoint(transaction: Transaction) -> bool:
    """False on a connection in autocommit: nothing can be undone there."""
    try:
        transaction.run(sql.SAVEPOINT)
    except Exception as error:
        if getattr(getattr(error, "orig", error), "sqlstate", None) != NO_TRANSACTION:
            raise
        return False
    return True


def _insert_or_roll_back(transaction: Transaction, jobs: Sequence[NewJob], ids: list[str]) -> list[Enqueued]:
    for _ in range(TRIES):
        try:
            answers = _insert(transaction, jobs, ids, tries=1)
        except _KeyChangedHands:
            transaction.run(sql.ROLLBACK_TO_SAVEPOINT)
        else:
            transaction.run(sql.RELEASE_SAVEPOINT)
            return answers
    raise _KeyChangedHands


class _KeyChangedHands(Exception):
    """The job that held a key ended before it could be read, or while the insert waited for the key."""


def _insert(transaction: Transaction, jobs: Sequence[NewJob], ids: list[str], tries: int) -> list[Enqueued]:
    if any(_may_conflict(job) for job in jobs):
        return _insert_unique(transaction, jobs, ids, tries)
    chunks = [slice(start, start + CHUNK) for start in range(0, len(jobs), CHUNK)]
    return [answer for chunk in chunks for answer in _insert_plain(transaction, jobs[chunk], ids[chunk])]


def _may_conflict(job: NewJob) -> bool:
    return job.key is not None or job.id is not None or job.reuse_seconds is not None


def _may_miss_success(job: NewJob) -> bool:
    """An insert that waits for the end of its key's holder continues when the holder has succeeded."""
    return job.key is not None and job.reuse_seconds is not None


def _is_plain(job: NewJob) -> bool:
    return not _may_conflict(job) and job.delay is None and job.run_after is None and job.replay_of is None


def _insert_plain(transaction: Transaction, jobs: Sequence[NewJob], ids: list[str]) -> list[Enqueued]:
    transaction.rows(sql.INSERT, {"rows": _encode(zip(ids, jobs, strict=True), transaction.dialect)})
    return [Enqueued(job_id, True, State.PENDING) for job_id in ids]


def _insert_one(transaction: CursorTransaction, job: NewJob, job_id: str) -> Enqueued:
    """With what the table does not say by itself, and no more: for a single job, to take a list of rows apart costs as
    much as to insert it."""
    statement, common = _single(_common(job))
    own = {"id": job_id, "payload": job.payload_json, "spec_hash": job.spec_hash}
    transaction.run(statement, own | common)
    return Enqueued(job_id, True, State.PENDING)


@lru_cache(1_000)
def _single(common: tuple[Any, ...]) -> tuple[Statement, dict[str, Any]]:
    """The statement for a job like that, and what is always the same in it."""
    given = _unusual(common)
    return sql.insert_one((*sql.OWN_COLUMNS, *given)), given


def _unusual(common: tuple[Any, ...]) -> dict[str, Any]:
    """What the table does not say by itself."""
    values = zip(sql.COMMON_COLUMNS, _stored(common), strict=True)
    return {name: value for name, value in values if value != sql.DEFAULTS.get(name)}


def _copy(transaction: CursorTransaction, jobs: Sequence[NewJob], ids: list[str]) -> list[Enqueued]:
    from holdfast.stores.postgres import copy_lines

    times = _times(transaction) if len(jobs) >= BY_THE_PAGE_FROM else {}
    if isinstance(jobs, AlikeJobs):
        common = _unusual(_common(jobs.like))
        columns, lines = tuple(common), _alike_lines(ids, jobs, _rest_of_line([*common.values(), *times.values()]))
    else:
        columns, lines = sql.COMMON_COLUMNS, _lines(ids, jobs, list(times.values()))
    copy_lines(transaction, sql.copy((*sql.OWN_COLUMNS, *columns, *times)), lines)
    return [Enqueued(job_id, True, State.PENDING) for job_id in ids]


def _times(transaction: CursorTransaction) -> dict[str, str]:
    """The store's, asked for: worth a round trip where there is much to insert."""
    [[now]] = transaction.rows(sql.NOW)
    return dict.fromkeys(sql.TIMES, str(now))


def _alike_lines(ids: Sequence[str], jobs: AlikeJobs, rest: str) -> Iterator[str]:
    """Jobs as COPY reads them; what they have in common is written once."""
    for job_id, (spec_hash, payload) in zip(ids, jobs.identified(), strict=True):
        escaped = payload if "\\" not in payload else _escaped(payload)
        yield f"{job_id}\t{escaped}\t{spec_hash}\t{rest}"


def _lines(ids: Sequence[str], jobs: Sequence[NewJob], times: Sequence[str]) -> Iterator[str]:
    known: dict[tuple[Any, ...], str] = {}
    for job_id, job in zip(ids, jobs, strict=True):
        common = _common(job)
        rest = known.get(common)
        if rest is None:
            rest = known[common] = _rest_of_line([*_stored(common), *times])
        yield f"{job_id}\t{_escaped(job.payload_json)}\t{job.spec_hash}\t{rest}"


def _escaped(payload: str) -> str:
    """JSON has no control characters, but what stands for them."""
    return payload.replace("\\", "\\\\")


def _rest_of_line(values: Iterable[Any]) -> str:
    return "\t".join(map(_copied, values)) + "\n"


_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def _copied(value: Any) -> str:
    return "\\N" if value is None else str(value).translate(_ESCAPES)


def _insert_unique(transaction: Transaction, jobs: Sequence[NewJob], ids: list[str], tries: int) -> list[Enqueued]:
    _refuse_taken_ids(transaction, jobs)
    answers: dict[int, Enqueued] = {}
    ids = [job.id or own for job, own in zip(jobs, ids, strict=True)]
    order = sorted(range(len(jobs)), key=lambda n: (jobs[n].task, jobs[n].key or "", ids[n]))
    for _ in range(tries):
        # On every try: the job that held a key may have ended with a success that can be reused.
        answers |= _reused(transaction, jobs, answers)
        positions = [n for n in order if n not in answers]
        for start in range(0, len(positions), CHUNK):
            _insert_or_find(transaction, jobs, ids, positions[start : start + CHUNK], answers)
        if len(answers) == len(jobs):
            if tries == 1:  # the caller rolls back, and tries again
                _recheck_reuse(transaction, jobs, answers)
            _refuse_retired_ids(transaction, jobs, answers)
            _refuse_hidden_holders(transaction, jobs, answers)
            return [answers[n] for n in range(len(jobs))]
    raise _KeyChangedHands


def _recheck_reuse(transaction: Transaction, jobs: Sequence[NewJob], answers: Mapping[int, Enqueued]) -> None:
    """Postgres only: on SQLite the transaction already holds the write lock."""
    created = {n for n, answer in answers.items() if answer.created and _may_miss_success(jobs[n])}
    if created and transaction.dialect == POSTGRES and _reused(transaction, jobs, answers.keys() - created):
        raise _KeyChangedHands


def _refuse_taken_ids(transaction: Transaction, jobs: Sequence[NewJob]) -> None:
    """Before anything is stored: an id stands for one spec, for ever."""
    specs: dict[str, tuple[str, str | None]] = {}
    for job in jobs:
        if job.id is not None and specs.setdefault(job.id, (job.task, job.spec_hash)) != (job.task, job.spec_hash):
            raise Conflict("id", f"{job.id} is given to two different jobs of this batch")
    if not specs:
        return
    known = _known_ids(transaction, specs)
    for job_id, (task, spec_hash) in known.jobs.items():
        if specs[job_id] != (task, spec_hash):
            raise _taken(job_id, task)
    for job_id in specs.keys() - known.jobs.keys():
        known.refuse_used(job_id)


def _refuse_retired_ids(transaction: Transaction, jobs: Sequence[NewJob], answers: Mapping[int, Enqueued]) -> None:
    """After the insert: retention may have removed the job that had the id between the first check and the insert."""
    ids = [answer.id for n, answer in answers.items() if answer.created and jobs[n].id is not None]
    if ids:
        known = _known_ids(transaction, ids)
        for job_id in ids:
            known.refuse_used(job_id)


@dataclass(frozen=True, slots=True)
class _KnownIds:
    """What the store knows about the ids that a caller gave."""

    jobs: dict[str, tuple[str, str | None]]
    pruned: frozenset[str]
    retired: frozenset[str]
    retired_through: str

    def refuse_used(self, job_id: str) -> None:
        """A second life would number its attempts from 1 again, and (job, attempt) stands for one execution."""
        if job_id in self.pruned:
            raise Conflict("id", f"{job_id} was a job that has since been pruned; use a new one")
        if job_id in self.retired:
            raise Conflict("id", f"{job_id} was a job whose history has since been retired; use a new one")
        if is_uuid7(job_id) and job_id <= self.retired_through:
            raise Conflict(
                "id",
                f"{job_id} is a UUIDv7 older than histories that retention has removed: the store cannot rule out that"
                " it was a job; use a new one",
            )


def _known_ids(transaction: Transaction, ids: Iterable[str]) -> _KnownIds:
    found = transaction.rows(sql.KNOWN_IDS, {"ids": json.dumps(list(ids))})
    named = {
        kind: frozenset(row[1] for row in found if row[0] == kind) for kind in (sql.ID_OF_PRUNED, sql.ID_OF_RETIRED)
    }
    return _KnownIds(
        {row[1]: (row[2], row[3]) for row in found if row[0] == sql.ID_OF_JOB},
        named[sql.ID_OF_PRUNED],
        named[sql.ID_OF_RETIRED],
        next((row[1] for row in found if row[0] == sql.RETIRED_THROUGH), ""),
    )


def _taken(job_id: str, task: str) -> Conflict:
    return Conflict("id", f"{job_id} is taken by another job ({task}); use a new one")


def _refuse_hidden_holders(transaction: Transaction, jobs: Sequence[NewJob], answers: Mapping[int, Enqueued]) -> None:
    """Within the transaction, so that a batch with such a job stores nothing."""
    held = {n: answer.id for n, answer in answers.items() if not answer.created and jobs[n].answered_by is not None}
    if not held:
        return
    found = transaction.rows(sql.QUEUES, {"ids": json.dumps(sorted(set(held.values())))})
    queues = {str(row[0]): str(row[1]) for row in found}
    for n, job_id in held.items():
        # One that is gone by now was somebody's, too.
        if queues.get(job_id) not in (jobs[n].answered_by or ()):
            raise Conflict("unique_key", "a job of another queue has it, or the id, or is a success of the same spec")


def _insert_or_find(
    transaction: Transaction, jobs: Sequence[NewJob], ids: list[str], positions: list[int], answers: dict[int, Enqueued]
) -> None:
    first = _first_of_each(jobs, ids, positions)
    rows = _encode(((ids[n], jobs[n]) for n in first), transaction.dialect)
    inserted = {row[0] for row in transaction.rows(sql.INSERT, {"rows": rows})}
    answers |= {n: Enqueued(ids[n], True, State.PENDING) for n in first if ids[n] in inserted}
    _find_holders(transaction, jobs, [n for n in positions if n not in answers], answers)


def _first_of_each(jobs: Sequence[NewJob], ids: list[str], positions: list[int]) -> list[int]:
    """A batch may ask for one key or id several times: the first is inserted, the others find it."""
    seen: set[tuple[str, ...]] = set()
    first = []
    for n in positions:
        names = [("id", ids[n]), *([] if jobs[n].key is None else [("key", jobs[n].task, str(jobs[n].key))])]
        if seen.isdisjoint(names):
            first.append(n)
        seen.update(names)
    return first


def _find_holders(
    transaction: Transaction, jobs: Sequence[NewJob], positions: list[int], answers: dict[int, Enqueued]
) -> None:
    if not positions:
        return
    wanted = [{"position": n, "id": jobs[n].id, "task": jobs[n].task, "unique_key": jobs[n].key} for n in positions]
    for n, job_id, state, task, spec_hash in transaction.rows(sql.EXISTING, {"rows": json.dumps(wanted)}):
        if job_id == jobs[n].id and (task, spec_hash) != (jobs[n].task, jobs[n].spec_hash):
            raise _taken(job_id, task)
        answers.setdefault(n, Enqueued(job_id, False, State(state)))


def _reused(transaction: Transaction, jobs: Sequence[NewJob], answered: Collection[int]) -> dict[int, Enqueued]:
    wanted = [
        {"position": n, "spec_hash": job.spec_hash, "seconds": job.reuse_seconds}
        for n, job in enumerate(jobs)
        if job.reuse_seconds is not None and n not in answered
    ]
    if not wanted:
        return {}
    found = transaction.rows(sql.REUSABLE, {"rows": json.dumps(wanted)})
    return {n: Enqueued(job_id, False, State.SUCCEEDED) for n, job_id, _finished in found}


def _encode(rows: Any, dialect: str) -> str:
    return "[" + ",".join(_object(job_id, job, dialect) for job_id, job in rows) + "]"


def _object(job_id: str, job: NewJob, dialect: str) -> str:
    """One JSON object; the payload's text goes in as it is."""
    moment = job.run_after
    fields = {
        "id": job_id,
        "task": job.task,
        "task_version": job.version,
        "queue": job.queue,
        "priority": job.priority,
        "spec_hash": job.spec_hash,
        "unique_key": job.key,
        "source": job.source,
        "max_attempts": job.max_attempts,
        "max_crashes": job.max_crashes,
        "retry": job.retry.to_json() if job.retry else None,
        "timeout_seconds": job.timeout_seconds,
        "lease_seconds": job.lease_seconds,
        "traceparent": job.traceparent,
        "replay_of": job.replay_of,
        "run_after": None if moment is None else to_text(moment) if dialect == SQLITE else moment.isoformat(),
        "delay": job.delay,
    }
    if job.webhook is not None:
        fields["webhook"] = job.webhook
    return f'{encode_json(fields)[:-1]},"payload":{job.payload_json}}}'


def _common(job: NewJob) -> tuple[Any, ...]:
    """Of a plain job, in the order of `sql.COMMON_COLUMNS`; what is JSON as it was given."""
    return (
        job.task,
        job.version,
        job.queue,
        job.priority,
        job.source,
        job.max_attempts,
        job.max_crashes,
        job.retry,
        job.timeout_seconds,
        job.lease_seconds,
        job.traceparent,
        None if job.webhook is None else encode_json(job.webhook),
    )


def _stored(common: tuple[Any, ...]) -> list[Any]:
    return [encode_json(value.to_json()) if isinstance(value, RetryPolicy) else value for value in common]
