"""Settle plain successes, which nearly all reports are: no file, no progress, nothing that a source has to learn.

The rows are named by one array, in their order, and their other values looked up by position: a join with a list of
rows would make Postgres carry a copy of each of them through the update, which costs as much as the update itself. The
position is found by halves: `array_position` goes through the array from its beginning, for every value of every row.

Others' locks are waited for, in the order of the ids, but not for long: then the whole call fails, and the caller does
it in the careful way, past what is locked (`statements/settle.py`).

The answer is which of them were applied; nothing where all of them were, as nearly always.
"""

from __future__ import annotations

from holdfast.domain.lifecycle import State
from holdfast.stores.schema import still_in
from holdfast.stores.statements.settle import calm
from holdfast.stores.statements.steady import function_settings
from holdfast.stores.statements.words import POSTGRES, Words

_WORDS = Words(POSTGRES)
LOCK_WAIT_MILLISECONDS = 20


def _given(array: str) -> str:
    return f"{array}[width_bucket(j.id, ids)]"


FUNCTION = f"""
CREATE OR REPLACE FUNCTION holdfast_succeed(
  ids uuid[], attempts integer[], tokens text[], details json[], results json[])
RETURNS text[] LANGUAGE plpgsql
{function_settings(lock_timeout=f"{LOCK_WAIT_MILLISECONDS}ms")} AS $$
DECLARE
  applied uuid[];
BEGIN
  WITH succeeded AS (
    UPDATE holdfast_jobs AS j
    SET state = 'succeeded', transition = 'succeeded', seq = j.seq + 1,
        transition_detail = {_given("details")}, result = {_given("results")},
        updated_at = {_WORDS.transition_time}, finished_at = {_WORDS.transition_time},
        lease_owner = NULL, lease_token = NULL, lease_expires_at = NULL
    WHERE j.id = ANY (ids) AND {still_in(State.RUNNING)}
      AND j.lease_token = {_given("tokens")} AND j.attempt = {_given("attempts")} {calm(_WORDS)}
    RETURNING j.id)
  SELECT array_agg(succeeded.id) INTO applied FROM succeeded;
  RETURN CASE WHEN cardinality(applied) = cardinality(ids) THEN NULL ELSE coalesce(applied, '{{}}')::text[] END;
END $$"""
