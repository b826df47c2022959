"""What is over goes: jobs by the index `holdfast_jobs_finished`, histories by `holdfast_events_pruned`, oldest first.

Groups are found by a loose scan: the index is asked for the next queue after the last one, and then for the oldest
row of each of its states, so that a million rows cost as many probes as there are queues. A batch reads just its own
rows; without fresh statistics the planner would rather read and sort a whole group for it, so it is told not to.
"""

from __future__ import annotations

from functools import cache

from holdfast.domain.lifecycle import TERMINAL
from holdfast.domain.retention import Kept
from holdfast.stores.schema import PRUNED_QUEUE_POSTGRES, PRUNED_QUEUE_SQLITE, in_states
from holdfast.stores.statements.batches import delete_batch
from holdfast.stores.statements.words import Statement, Words

WATERMARK_KEY = "histories_retired"
RETIRED_IDS_KEY = "retired_ids_through"
_FINISHED = in_states(TERMINAL, "j.state")
_STATES = " UNION ALL ".join(f"SELECT '{state}' AS state" for state in TERMINAL)


def _cutoff(words: Words) -> str:
    keep = "-CAST(:keep AS float8)" if words.postgres else "-:keep"
    return words.after(keep, words.fixed_now)


def _age(words: Words, moment: str) -> str:
    if words.postgres:
        return f"CAST(extract(epoch FROM {words.now} - {moment}) AS float8)"
    return f"(julianday(:now) - julianday({moment})) * 86400"


def _pruned_queue(words: Words) -> str:
    plain = PRUNED_QUEUE_POSTGRES if words.postgres else PRUNED_QUEUE_SQLITE
    return plain.replace("detail", "e.detail")


def _found(words: Words, queue: str, table: str, where: str, state: str, moment: str) -> str:
    """Queue, state and age of the oldest of every group there is."""
    return f"""
        WITH RECURSIVE queues (queue) AS (
          SELECT (SELECT {queue} FROM {table} WHERE {where} ORDER BY {queue} LIMIT 1)
          UNION ALL
          SELECT (SELECT {queue} FROM {table} WHERE {where} AND {queue} > queues.queue ORDER BY {queue} LIMIT 1)
          FROM queues WHERE queues.queue IS NOT NULL),
        groups AS (
          SELECT queues.queue, states.state,
                 (SELECT {moment} FROM {table} WHERE {where} AND {queue} = queues.queue AND {state} = states.state
                  ORDER BY {moment} LIMIT 1) AS oldest
          FROM queues CROSS JOIN ({_STATES}) states WHERE queues.queue IS NOT NULL)
        SELECT queue, state, {_age(words, "oldest")} FROM groups WHERE oldest IS NOT NULL"""


def _found_jobs(words: Words) -> str:
    return _found(words, "j.queue", "holdfast_jobs j", _FINISHED, "j.state", "j.finished_at")


def _found_histories(words: Words) -> str:
    return _found(words, _pruned_queue(words), "holdfast_events e", "e.event = 'pruned'", "e.from_state", "e.at")


def _old_jobs(words: Words) -> str:
    return f"""{_FINISHED} AND j.queue = :queue AND j.state = :state AND j.finished_at <= {_cutoff(words)}"""


def _old_histories(words: Words) -> str:
    return f"""e.event = 'pruned' AND {_pruned_queue(words)} = :queue AND e.from_state = :state
          AND e.at <= {_cutoff(words)}"""


def _prunable(words: Words) -> str:
    return f"""
        SELECT {words.as_text("j.id")} FROM holdfast_jobs j WHERE {_old_jobs(words)}
        ORDER BY j.finished_at LIMIT :limit {_locked(words)}"""


def _locked(words: Words, alias: str = "j") -> str:
    """A row that is going away is locked as a DELETE locks it, against the foreign keys of users, too."""
    return f"FOR UPDATE OF {alias} SKIP LOCKED" if words.postgres else ""


def _may_go(words: Words) -> str:
    """In a form that no index helps with: the rows are named, and without fresh statistics Postgres would rather read
    all that ended than look them up."""
    return f"CASE WHEN j.state = :state THEN j.finished_at <= {_cutoff(words)} END"


def _still(words: Words) -> str:
    """Of the jobs that are named those that may go; the others are locked, or have been requeued meanwhile."""
    return f"""
        SELECT {words.as_text("j.id")} FROM holdfast_jobs j
        WHERE j.id {words.is_one_of()} AND {_may_go(words)} {_locked(words)}"""


def _delete_jobs(words: Words) -> str:
    return f"""
        DELETE FROM holdfast_jobs AS j
        WHERE j.id {words.is_one_of()} AND {_may_go(words)}
        RETURNING {words.as_text("id")}"""


def _retirable(words: Words) -> str:
    """A history has as many events as its last one is numbered."""
    return f"""
        SELECT {words.as_text("e.job_id")}, e.seq FROM holdfast_events e WHERE {_old_histories(words)}
        ORDER BY e.at LIMIT :limit"""


def _retire(words: Words) -> str:
    """While there is no watermark to lock, two processes may retire the same histories; one of them gets none."""
    if words.postgres:
        return """
            INSERT INTO holdfast_retired_histories (job_id)
            SELECT id FROM unnest(ARRAY(SELECT CAST(value AS uuid)
              FROM json_array_elements_text(CAST(:ids AS json)))) AS ids (id)
            ON CONFLICT DO NOTHING RETURNING job_id::text"""
    return "INSERT INTO holdfast_retired_histories (job_id) SELECT value FROM json_each(:ids) RETURNING job_id"


def _fold_retired_ids(words: Words) -> str:
    """Delete all but the newest UUIDv7s. One made later than `before`, by a wrong clock, would refuse all new ids."""
    offset = "OFFSET :keep" if words.postgres else "LIMIT -1 OFFSET :keep"
    # A guard refuses later ones, by the store's clock.
    past = f"AND r.job_id < holdfast_first_id({words.now} + interval '1 day')" if words.postgres else ""
    return f"""
        WITH chosen AS MATERIALIZED (
          SELECT r.job_id FROM holdfast_retired_histories r
          WHERE r.job_id < {words.id("before")} AND substr({words.as_text("r.job_id")}, 15, 1) = '7' {past}
          ORDER BY r.job_id DESC {offset})
        DELETE FROM holdfast_retired_histories WHERE job_id IN (SELECT job_id FROM chosen)
        RETURNING {words.as_text("job_id")}"""


def _raise_retired_ids(words: Words) -> str:
    greatest = "greatest" if words.postgres else "max"
    return f"""
        INSERT INTO holdfast_meta AS m (key, value) VALUES ('{RETIRED_IDS_KEY}', :id)
        ON CONFLICT (key) DO UPDATE SET value = {greatest}(m.value, excluded.value)"""


@cache
def forget(table: str) -> Statement:
    """The rows that jobs have in another table."""
    return Statement(
        f"retention.forget.{table}", lambda words: f"DELETE FROM {table} WHERE job_id {words.is_one_of()}", replan=True
    )


def _count_lines(words: Words) -> str:
    """How many log lines these jobs have together, counted no further than `most`."""
    return f"""
        SELECT count(*) FROM (
          SELECT 1 FROM holdfast_logs WHERE job_id {words.is_one_of()} LIMIT :most) lines"""


def _preview_jobs(words: Words) -> str:
    return f"""
        SELECT count(*), 0, min(finished_at) FROM (
          SELECT j.finished_at FROM holdfast_jobs j WHERE {_old_jobs(words)}
          ORDER BY j.finished_at LIMIT :most) found"""


def _preview_histories(words: Words) -> str:
    return f"""
        SELECT count(*), coalesce(sum(seq), 0), min(at) FROM (
          SELECT e.seq, e.at FROM holdfast_events e WHERE {_old_histories(words)}
          ORDER BY e.at LIMIT :most) found"""


def _take_watermark(words: Words) -> str:
    """Whoever retires histories has it; a second one comes back later."""
    lock = "FOR UPDATE SKIP LOCKED" if words.postgres else ""
    return f"SELECT value FROM holdfast_meta WHERE key = '{WATERMARK_KEY}' {lock}"


def _watermark(_words: Words) -> str:
    return f"SELECT value FROM holdfast_meta WHERE key = '{WATERMARK_KEY}'"


def _old_ticks(words: Words) -> str:
    chosen = f"""
          SELECT o.schedule, o.planned_at FROM holdfast_schedule_ticks o WHERE o.fired_at <= {_cutoff(words)}
          ORDER BY o.fired_at LIMIT :limit {_locked(words, "o")}"""
    return delete_batch("holdfast_schedule_ticks", "schedule, planned_at", chosen)


def _old_source_events(words: Words) -> str:
    """Ids are in order of time: it is enough to look at the first few, and nothing need be indexed for it."""
    chosen = f"""
          SELECT o.id FROM (SELECT id, at FROM holdfast_source_events ORDER BY id LIMIT :limit) o
          WHERE o.at <= {_cutoff(words)}"""
    return delete_batch("holdfast_source_events", "id", chosen)


def _refused_jobs(words: Words) -> str:
    """The next jobs that something was refused of, in order of id."""
    after = words.id("after")
    return f"""
        SELECT DISTINCT {words.as_text("f.job_id")}, f.job_id FROM (
          SELECT job_id FROM holdfast_refusals WHERE job_id > {after} ORDER BY job_id LIMIT :limit) f
        ORDER BY f.job_id"""


def _forget_refusals(words: Words) -> str:
    """Old refusals of jobs that nobody knows any more, or that there never were."""
    return f"""
        DELETE FROM holdfast_refusals AS f WHERE (f.job_id, f.attempt, f.verb, f.reason, f.worker) IN (
          SELECT o.job_id, o.attempt, o.verb, o.reason, o.worker FROM holdfast_refusals o
          WHERE o.job_id {words.is_one_of()} AND o.last_at <= {_cutoff(words)}
            AND NOT EXISTS (SELECT 1 FROM holdfast_jobs j WHERE j.id = o.job_id)
            AND NOT EXISTS (SELECT 1 FROM holdfast_events e WHERE e.job_id = o.job_id) {_locked(words, "o")})
        RETURNING 1"""


def _rules(_words: Words) -> str:
    return "SELECT what, queue, state, keep_seconds, updated_at FROM holdfast_retention"


def _set_rule(words: Words) -> str:
    keep = "CAST(:keep AS float8)" if words.postgres else ":keep"
    return f"""
        INSERT INTO holdfast_retention (what, queue, state, keep_seconds, updated_at)
        VALUES (:what, :queue, :state, {keep}, {words.now})
        ON CONFLICT (what, queue, state) DO UPDATE
        SET keep_seconds = excluded.keep_seconds, updated_at = excluded.updated_at"""


def _unset_rule(_words: Words) -> str:
    return "DELETE FROM holdfast_retention WHERE what = :what AND queue = :queue AND state = :state RETURNING what"


def _plain_plans(_words: Words) -> str:
    """For the transaction. Without fresh statistics the planner takes a group for a handful of rows."""
    return """
        SELECT set_config('enable_sort', 'off', true), set_config('enable_seqscan', 'off', true),
               set_config('enable_bitmapscan', 'off', true)"""


PLAIN_PLANS = Statement("retention.plain_plans", _plain_plans)
FOUND = {
    Kept.JOBS: Statement("retention.found_jobs", _found_jobs, replan=True),
    Kept.HISTORIES: Statement("retention.found_histories", _found_histories, replan=True),
}
PRUNABLE = Statement("retention.prunable", _prunable, replan=True)
STILL = Statement("retention.still", _still, replan=True)
DELETE_JOBS = Statement("retention.delete_jobs", _delete_jobs, replan=True)
COUNT_LINES = Statement("retention.count_lines", _count_lines, replan=True)
RETIRABLE = Statement("retention.retirable", _retirable, replan=True)
RETIRE = Statement("retention.retire", _retire)
FOLD_RETIRED_IDS = Statement("retention.fold_retired_ids", _fold_retired_ids, replan=True)
RAISE_RETIRED_IDS = Statement("retention.raise_retired_ids", _raise_retired_ids)
PREVIEW = {
    Kept.JOBS: Statement("retention.preview_jobs", _preview_jobs, replan=True),
    Kept.HISTORIES: Statement("retention.preview_histories", _preview_histories, replan=True),
}
TAKE_WATERMARK = Statement("retention.take_watermark", _take_watermark)
WATERMARK = Statement("retention.watermark", _watermark)
OLD_TICKS = Statement("retention.old_ticks", _old_ticks, replan=True)
OLD_SOURCE_EVENTS = Statement("retention.old_source_events", _old_source_events, replan=True)
REFUSED_JOBS = Statement("retention.refused_jobs", _refused_jobs, replan=True)
FORGET_REFUSALS = Statement("retention.forget_refusals", _forget_refusals, replan=True)
RULES = Statement("retention.rules", _rules)
SET_RULE = Statement("retention.set_rule", _set_rule)
UNSET_RULE = Statement("retention.unset_rule", _unset_rule)
