"""To lock sources, and then to count what they run: two statements, because a count must see what was committed up to
the moment of the lock; one function, because each round trip is felt in every claim under limits."""

from __future__ import annotations

from holdfast.stores.statements import admission
from holdfast.stores.statements.steady import function_settings
from holdfast.stores.statements.words import POSTGRES, Words

_WORDS = Words(POSTGRES)

FUNCTION = f"""
CREATE OR REPLACE FUNCTION holdfast_lock_sources(names json)
RETURNS TABLE (
  name text, max_concurrent integer, rate_limit_per_minute float8, burst integer, bucket_level float8,
  seconds_since float8, half_open boolean, in_use bigint, probes bigint) LANGUAGE plpgsql
{function_settings()} AS $$
DECLARE
  locked text[];
BEGIN
  locked := ARRAY(
    SELECT s.name FROM holdfast_sources s
    WHERE s.name = ANY (ARRAY(SELECT value FROM json_array_elements_text(names)))
      AND {admission.is_open(_WORDS)}
    ORDER BY s.name FOR NO KEY UPDATE OF s SKIP LOCKED);
  RETURN QUERY SELECT {admission.counted_standing(_WORDS)} FROM holdfast_sources s WHERE s.name = ANY (locked);
END $$"""
