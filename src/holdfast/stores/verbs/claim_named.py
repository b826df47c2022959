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
from holdfast.stores.verbs.claiming import Admission, Claiming, claim_rows, read_admission, spend
from holdfast.stores.verbs.reaping import reap_these


def _limits_of(words: Words) -> str:
    return f"""
        SELECT {words.as_text("j.id")}, j.task, j.source, j.queue,
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
        admitted, chosen = _admitted(transaction, ids, queues, tasks)
        found = claim_rows(transaction, worker, chosen, secret, credential)
        spend(transaction, admitted, found)
        claimed = [rows.claimed(row, database.dialect, digests.lease_token(secret, row[0])) for row in found]
        return [replace(job, message_id=(messages or {}).get(job.job_id)) for job in claimed]

    if request_id is not None:
        return claim_requests.once(database, credential, request_id, claim)
    if not ids:
        return []
    with claiming.secret(credential) as secret, database.transaction() as transaction:
        return claim(transaction, secret)


def _admitted(
    transaction: CursorTransaction, ids: Sequence[str], queues: Sequence[str] | None, tasks: Sequence[str] | None
) -> tuple[Admission, list[str]]:
    found = transaction.rows(LIMITS_OF, {"ids": json.dumps(ids)})
    limits = {
        job_id: (source, queue, *limited)
        for job_id, task, source, queue, *limited in found
        if (tasks is None or task in tasks) and (queues is None or queue in queues)
    }
    if not any(source_limited or queue_limited for *_, source_limited, queue_limited in limits.values()):
        return Admission({}, {}, {}), [job_id for job_id in ids if job_id in limits]
    admitted = read_admission(transaction, sorted({queue for _source, queue, *_ in limits.values()}))
    return admitted, [job_id for job_id in ids if job_id in limits and _takes(limits[job_id], admitted)]


def _takes(limits: Row, admitted: Admission) -> bool:
    """Whether there is room for one more of its source and queue; if so, that room is taken."""
    source, queue, source_limited, queue_limited = limits
    in_source = admitted.allowances.get(source, 0) if source_limited else None
    in_queue = admitted.queues.get(queue, 0) if queue_limited else None
    if 0 in (in_source, in_queue):
        return False
    if in_source is not None:
        admitted.allowances[source] = in_source - 1
    if in_queue is not None:
        admitted.queues[queue] = in_queue - 1
    return True
