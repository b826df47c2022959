"""Claim jobs by their ids, as messages name them. There is no steal: an expired lease is reaped first.

Two steps and two audit rows a job in one transaction, under the same guards, budgets and grace as the reaper's, and
the same admission as a batch claim. A limit that somebody else has locked is free again in a moment; who was told an id
is told it once, so a claim by id is more patient than one that comes round again by itself: half a second.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from holdfast.domain import digests
from holdfast.domain.job import Claimed, ClaimedJobs
from holdfast.domain.names import check_id, check_name
from holdfast.stores import rows
from holdfast.stores.database import CursorTransaction, Database, Row
from holdfast.stores.statements import admission
from holdfast.stores.statements.words import Statement, Words
from holdfast.stores.verbs import claim_requests
from holdfast.stores.verbs.admitting import Admission, take_admitted
from holdfast.stores.verbs.claiming import Claiming, claim_rows
from holdfast.stores.verbs.looking import Candidate
from holdfast.stores.verbs.reaping import reap_these

PAUSES = (0.002, 0.004, 0.008, *[0.016] * 31)  # half a second in all
BUSY_AGAIN_SECONDS = 0.05


def _limits_of(words: Words) -> str:
    """Those of them whose source and queue are not plainly closed, with what limits them."""
    return f"""
        SELECT {words.as_text("j.id")}, j.task, coalesce(j.source, ''), j.queue,
               s.name IS NOT NULL AND {admission.LIMITED}, q.max_running IS NOT NULL
        FROM holdfast_jobs j
        LEFT JOIN holdfast_sources s ON s.name = j.source LEFT JOIN holdfast_queues q ON q.name = j.queue
        WHERE j.id {words.is_one_of()} AND (s.name IS NULL OR {admission.is_open(words)})
          AND q.paused_at IS NULL AND coalesce(q.max_running, 1) > 0"""


LIMITS_OF = Statement("claim_named.limits_of", _limits_of)


def claim_jobs(
    database: Database,
    claiming: Claiming,
    worker: str,
    job_ids: Sequence[str],
    gap: float,
    credential: str = "",
    request_id: str | None = None,
    messages: Mapping[str, str] | None = None,
    queues: Sequence[str] | None = None,
    tasks: Sequence[str] | None = None,
) -> ClaimedJobs:
    """Those of them that could be claimed, under fresh leases, in the given order; the others are held, not due,
    finished, not admitted, or of other queues and tasks than these. `messages`: the message that named a job, to be
    handed out with it. `again_in` is set when somebody else had a limit locked all the while: to ask again may help."""
    check_name(worker, "worker")
    ids = list(dict.fromkeys(check_id(job_id, "job_id") for job_id in job_ids))
    if not ids and request_id is None:
        return ClaimedJobs()
    claim = Named(worker, ids, gap, credential, messages or {}, queues, tasks)
    found: list[Claimed] = []
    for seconds in (*PAUSES, None):
        claim.is_last = seconds is None
        if request_id is not None:
            found = claim_requests.once(database, credential, request_id, claim)
        else:
            with claiming.secret(credential) as secret, database.transaction() as transaction:
                found = claim(transaction, secret)
        if found or not claim.was_busy or seconds is None:
            break
        pause(seconds)
    jobs = ClaimedJobs(found)
    jobs.again_in = BUSY_AGAIN_SECONDS if claim.was_busy else None
    return jobs


def pause(seconds: float) -> None:
    """More or less: those who wait for the same row must not come back all at once."""
    time.sleep(seconds * random.uniform(0.5, 1.5))


@dataclass
class Named:
    """One claim of given jobs. Unless it is the last try, it takes nothing at all while somebody else has one of the
    limits: what is once taken cannot wait for the rest."""

    worker: str
    ids: Sequence[str]
    gap: float
    credential: str
    messages: Mapping[str, str]
    queues: Sequence[str] | None
    tasks: Sequence[str] | None
    is_last: bool = False
    was_busy: bool = False

    def __call__(self, transaction: CursorTransaction, secret: bytes) -> list[Claimed]:
        reap_these(transaction, self.ids, self.gap)
        named = _candidates(transaction, self.ids, self.queues, self.tasks)
        admitted = Admission()
        admitted.lock(transaction, named)
        self.was_busy = admitted.busy
        if admitted.busy and not self.is_last:
            return []

        def take(chosen: Sequence[str], admitted: Admission) -> list[Row]:
            return claim_rows(transaction, self.worker, chosen, secret, self.credential, admitted)

        found = take_admitted(transaction, named, len(self.ids), admitted, take)
        claimed = [rows.claimed(row, digests.lease_token(secret, row[0])) for row in found]
        return [replace(job, message_id=self.messages.get(job.job_id)) for job in claimed]


def _candidates(
    transaction: CursorTransaction, ids: Sequence[str], queues: Sequence[str] | None, tasks: Sequence[str] | None
) -> list[Candidate]:
    found = {row[0]: Candidate(*row) for row in transaction.rows(LIMITS_OF, {"ids": json.dumps(ids)})}
    named = [found[job_id] for job_id in ids if job_id in found]
    return [job for job in named if (tasks is None or job.task in tasks) and (queues is None or job.queue in queues)]
