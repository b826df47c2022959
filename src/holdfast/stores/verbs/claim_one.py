"""Claim one job by id, as a message names it. There is no steal: an expired lease is reaped first.

Two steps and two audit rows in one transaction, under the same guards, budgets and grace as the reaper's, and the same
admission as a batch claim.
"""

from __future__ import annotations

import os

from holdfast.domain import digests
from holdfast.domain.job import Claimed
from holdfast.domain.names import check_id, check_name
from holdfast.stores import rows
from holdfast.stores.database import Database, Row
from holdfast.stores.statements.words import Statement, Words
from holdfast.stores.verbs.claiming import Admission, claim_rows, read_admission, spend
from holdfast.stores.verbs.reaping import reap_one


def _limits_of(words: Words) -> str:
    job_id = "CAST(:id AS uuid)" if words.postgres else ":id"
    return f"""
        SELECT j.source, j.queue, EXISTS (SELECT 1 FROM holdfast_sources s WHERE s.name = j.source),
               EXISTS (SELECT 1 FROM holdfast_queues q WHERE q.name = j.queue AND q.max_running IS NOT NULL)
        FROM holdfast_jobs j WHERE j.id = {job_id}"""


LIMITS_OF = Statement("claim_one.limits_of", _limits_of)


def claim_job(database: Database, worker: str, job_id: str, gap: float) -> Claimed | None:
    """The job under a fresh lease; None when it is not claimable now (held, not due, finished, not admitted)."""
    check_name(worker, "worker")
    job_id = check_id(job_id, "job_id")
    with database.transaction() as transaction:
        reap_one(transaction, job_id, gap)
        limits = transaction.rows(LIMITS_OF, {"id": job_id})
        if not limits:
            return None
        admitted = read_admission(transaction, [limits[0][1]])
        if not _admits(limits[0], admitted):
            return None
        secret = os.urandom(32)
        found = claim_rows(transaction, worker, [job_id], secret)
        spend(transaction, admitted, found)
    return rows.claimed(found[0], database.dialect, digests.lease_token(secret, job_id)) if found else None


def _admits(limits: Row, admitted: Admission) -> bool:
    source, queue, source_limited, queue_limited = limits
    if source_limited and admitted.allowances.get(source, 0) == 0:
        return False
    return not queue_limited or admitted.queues.get(queue, 0) > 0
