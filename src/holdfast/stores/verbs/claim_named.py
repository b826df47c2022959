"""Claim jobs by their ids, as messages name them. There is no steal: an expired lease is reaped first.

Two steps and two audit rows a job in one transaction, under the same guards, budgets and grace as the reaper's, and
the same admission as a batch claim.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from holdfast.domain import digests
from holdfast.domain.job import Claimed
from holdfast.domain.names import check_id, check_name
from holdfast.stores import rows
from holdfast.stores.database import CursorTransaction, Database, Row
from holdfast.stores.statements.words import Statement, Words
from holdfast.stores.verbs import claim_requests
from holdfast.stores.verbs.admitting import Admission, spend, take_admitted
from holdfast.stores.verbs.claiming import Claiming, claim_rows
from holdfast.stores.verbs.reaping import reap_these
from holdfast.stores.verbs.sqlite_walk import Candidate


def _limits_of(words: Words) -> str:
    return f"""
        SELECT {words.as_text("j.id")}, j.task, coalesce(j.source, ''), j.queue,
               EXISTS (SELECT 1 FROM holdfast_sources s WHERE s.name = j.source),
               EXISTS (SELECT 1 FROM holdfast_queues q WHERE q.name = j.queue AND q.max_running IS NOT NULL)
        FROM holdfast_jobs j WHERE j.id {words.is_one_of()}"""


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
) -> list[Claimed]:
    """Those of them that could be claimed, under fresh leases, in the given order; the others are held, not due,
    finished, not admitted, or of other queues and tasks than these. `messages`: the message that named a job, to be
    handed out with it."""
    check_name(worker, "worker")
    ids = list(dict.fromkeys(check_id(job_id, "job_id") for job_id in job_ids))

    def claim(transaction: CursorTransaction, secret: bytes) -> list[Claimed]:
        reap_these(transaction, ids, gap)
        named = _candidates(transaction, ids, queues, tasks)

        def take(chosen: Sequence[str]) -> list[Row]:
            return claim_rows(transaction, worker, chosen, secret, credential)

        admitted = Admission()
        found = take_admitted(transaction, named, len(ids), admitted, take)
        spend(transaction, found, admitted)
        claimed = [rows.claimed(row, database.dialect, digests.lease_token(secret, row[0])) for row in found]
        return [replace(job, message_id=(messages or {}).get(job.job_id)) for job in claimed]

    if request_id is not None:
        return claim_requests.once(database, credential, request_id, claim)
    if not ids:
        return []
    with claiming.secret(credential) as secret, database.transaction() as transaction:
        return claim(transaction, secret)


def _candidates(
    transaction: CursorTransaction, ids: Sequence[str], queues: Sequence[str] | None, tasks: Sequence[str] | None
) -> list[Candidate]:
    found = {row[0]: Candidate(*row) for row in transaction.rows(LIMITS_OF, {"ids": json.dumps(ids)})}
    named = [found[job_id] for job_id in ids if job_id in found]
    return [job for job in named if (tasks is None or job.task in tasks) and (queues is None or job.queue in queues)]
