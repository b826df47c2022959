"""What operators do to jobs: cancel and requeue, each tested per row inside the statement."""

from __future__ import annotations

from holdfast.domain.lifecycle import ACTIVE, State
from holdfast.stores.schema import in_states, still_in
from holdfast.stores.statements.words import Statement, Words


def _cancel(words: Words) -> str:
    return f"""
        WITH held AS MATERIALIZED (
          SELECT j.id FROM holdfast_jobs j
          WHERE j.id {words.is_one_of()} AND {still_in(*ACTIVE)}
            AND (j.state <> 'running' OR j.cancel_requested_at IS NULL)
          ORDER BY j.id {words.skip_locked})
        UPDATE holdfast_jobs AS j
        SET state = CASE WHEN j.state = 'running' THEN 'running' ELSE 'cancelled' END,
            transition = CASE WHEN j.state = 'running' THEN 'cancel_requested' ELSE 'cancelled' END,
            transition_detail = {"CAST(:detail AS json)" if words.postgres else ":detail"},
            cancel_requested_at = CASE WHEN j.state = 'running' THEN {words.now} ELSE j.cancel_requested_at END,
            finished_at = CASE WHEN j.state = 'running' THEN j.finished_at ELSE {words.transition_time} END,
            seq = j.seq + 1, updated_at = {words.transition_time}
        FROM held WHERE j.id = held.id
        RETURNING {words.returning("transition", "state")}"""


_REQUEUEABLE = (State.FAILED, State.CANCELLED)


def _requeue(words: Words) -> str:
    """The unique key must still be free. At most one job of a batch has one: see `verbs/operating.requeue`."""
    return f"""
        WITH held AS MATERIALIZED (
          SELECT j.id, j.task, j.unique_key FROM holdfast_jobs j
          WHERE j.id {words.is_one_of()} AND {still_in(*_REQUEUEABLE)}
          ORDER BY j.id {words.skip_locked}),
        free AS MATERIALIZED (
          SELECT held.id FROM held WHERE held.unique_key IS NULL OR NOT EXISTS (
            SELECT 1 FROM holdfast_jobs other
            WHERE other.task = held.task AND other.unique_key = held.unique_key
              AND {in_states(ACTIVE, "other.state")}))
        UPDATE holdfast_jobs AS j
        SET state = 'pending', transition = 'requeued',
            transition_detail = {"CAST(:detail AS json)" if words.postgres else ":detail"},
            failures = 0, crashes = 0, cancel_requested_at = NULL, finished_at = NULL, run_after = {words.now},
            seq = j.seq + 1, updated_at = {words.transition_time}
        FROM free WHERE j.id = free.id
        RETURNING {words.returning("transition", "state")}"""


def _present(words: Words) -> str:
    """What cancel and requeue found: the state, and what may have kept them from changing it."""
    return f"""
        SELECT {words.as_text("j.id")}, j.state, j.cancel_requested_at IS NOT NULL,
               j.unique_key IS NOT NULL AND EXISTS (
                 SELECT 1 FROM holdfast_jobs other
                 WHERE other.task = j.task AND other.unique_key = j.unique_key
                   AND {in_states(ACTIVE, "other.state")} AND other.id <> j.id)
        FROM holdfast_jobs j WHERE j.id {words.is_one_of()}"""


def _with_keys(words: Words) -> str:
    return f"""
        SELECT {words.as_text("j.id")} FROM holdfast_jobs j
        WHERE j.id {words.is_one_of()} AND j.unique_key IS NOT NULL"""


PRESENT = Statement("operate.present", _present)
WITH_KEYS = Statement("operate.with_keys", _with_keys)
CANCEL = Statement("operate.cancel", _cancel)
REQUEUE = Statement("operate.requeue", _requeue)
