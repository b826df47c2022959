"""What became of the leases whose verb changed no row; and the evidence of those that were refused."""

from __future__ import annotations

from holdfast.stores.statements.words import Statement, Words


def _present(words: Words) -> str:
    return f"""
        SELECT {words.as_text("j.id")}, j.state, j.attempt, j.lease_token
        FROM holdfast_jobs j WHERE j.id {words.is_one_of()}"""


def _past(words: Words) -> str:
    report = "e.detail ->> 'report'" if words.postgres else "e.detail ->> '$.report'"
    return f"""
        SELECT {words.as_text("e.job_id")}, e.attempt, e.event, e.to_state, e.lease, {report}
        FROM holdfast_events e
        WHERE e.job_id {words.is_one_of()}
          AND (e.event = 'claimed' OR (e.from_state = 'running' AND e.to_state <> 'running'))
        ORDER BY e.job_id, e.seq"""


def _refuse(words: Words) -> str:
    rows = words.rows({"job_id": "uuid", "attempt": "integer", "verb": "text", "reason": "text", "worker": "text"})
    return f"""
        INSERT INTO holdfast_refusals AS f (job_id, attempt, verb, reason, worker, first_at, last_at, count)
        SELECT r.job_id, r.attempt, r.verb, r.reason, coalesce(r.worker, ''), {words.now}, {words.now}, count(*)
        FROM {rows} {words.true_filter}
        GROUP BY r.job_id, r.attempt, r.verb, r.reason, coalesce(r.worker, '')
        ORDER BY 1, 2, 3, 4, 5
        ON CONFLICT (job_id, attempt, verb, reason, worker)
        DO UPDATE SET last_at = excluded.last_at, count = f.count + excluded.count"""


PRESENT = Statement("lost.present", _present)
PAST = Statement("lost.past", _past)
REFUSE = Statement("lost.refuse", _refuse)
