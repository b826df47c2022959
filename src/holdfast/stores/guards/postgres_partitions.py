"""An audit log in partitions: Postgres only, and only where an operator has made it so (docs/scale.md).

The log is then partitioned by range of the job's id, which begins with the time. A history lies in one partition as a
whole, and a partition whose jobs have all been pruned can go as a whole. What has to hold for as long as there are
partitions is here: the guards of the log on each of them, because a statement trigger of the parent does not fire for a
statement that names a partition; a partition for a span of time; and the door through which one goes. Where the log is
one table, nothing in here does anything.

Locks are taken in the order of the verbs: the watermark, then the log. Nobody waits behind us for long: what needs the
whole log to itself gives up after less than a second.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.stores.postgres_names import SCHEMA_PATH
from holdfast.stores.schema import events

Trigger = tuple[str, str, str, str, str]  # name, table, timing, level and condition, function

_LOG = events.name
_STORAGE = ", ".join(f"{name} = {value}" for name, value in events.dialect_options["postgresql"]["with"].items())

FUNCTIONS = (
    # The smallest id of a moment: less than any that is made at it, more than any that was made before.
    """
CREATE OR REPLACE FUNCTION holdfast_first_id(moment timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE STRICT AS $$
  SELECT (lpad(to_hex(floor(extract(epoch FROM moment) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
$$""",
    # The ids from `first` on and before `beyond`; of the default partition both are null. A bound that is none
    # (MINVALUE) counts as the smallest id there can be.
    f"""
CREATE OR REPLACE FUNCTION holdfast_partitions()
RETURNS TABLE (name regclass, first uuid, beyond uuid, since timestamptz, until timestamptz) LANGUAGE sql STABLE
{SCHEMA_PATH} AS $$
  SELECT found.name, found.first, found.beyond,
         to_timestamp(('x' || left(replace(found.first::text, '-', ''), 12))::bit(48)::bigint / 1000.0),
         to_timestamp(('x' || left(replace(found.beyond::text, '-', ''), 12))::bit(48)::bigint / 1000.0)
  FROM (
    SELECT tree.relid AS name,
           CASE WHEN said.bound LIKE 'FOR VALUES FROM (MINVALUE)%' THEN '00000000-0000-0000-0000-000000000000'
                ELSE substring(said.bound FROM 'FROM \\(''([0-9a-f-]+)''\\)') END::uuid AS first,
           substring(said.bound FROM 'TO \\(''([0-9a-f-]+)''\\)')::uuid AS beyond
    FROM pg_partition_tree('{_LOG}') tree JOIN pg_class ON pg_class.oid = tree.relid
    CROSS JOIN LATERAL (SELECT pg_get_expr(relpartbound, relid) AS bound) said
    WHERE tree.level = 1) found
  ORDER BY found.first NULLS LAST
$$""",
    # Rows that went to the default partition, because nobody had made this one in time, move into it. Writers of those
    # wait meanwhile; nobody else does.
    f"""
CREATE OR REPLACE FUNCTION holdfast_add_partition(since timestamptz, until timestamptz)
RETURNS regclass LANGUAGE plpgsql {SCHEMA_PATH} SET lock_timeout = '2s' SET client_min_messages = warning AS $$
DECLARE
  first_one constant uuid := holdfast_first_id(since);
  beyond_it constant uuid := holdfast_first_id(until);
  made constant text := '{_LOG}_' || to_char(since AT TIME ZONE 'UTC', 'YYYYMMDD_HH24MI');
  rest constant regclass := (SELECT p.name FROM holdfast_partitions() p WHERE p.first IS NULL AND p.beyond IS NULL);
  moved bigint;
BEGIN
  IF EXISTS (SELECT FROM holdfast_partitions() p WHERE p.first <= first_one AND p.beyond >= beyond_it) THEN
    RETURN NULL;
  END IF;
  EXECUTE format('CREATE TABLE %I (LIKE {_LOG} INCLUDING DEFAULTS INCLUDING STORAGE) WITH ({_STORAGE})', made);
  LOCK TABLE ONLY {_LOG} IN SHARE UPDATE EXCLUSIVE MODE;
  IF rest IS NOT NULL THEN
    EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', rest);
    EXECUTE format('INSERT INTO %I SELECT * FROM %s WHERE job_id >= $1 AND job_id < $2', made, rest)
      USING first_one, beyond_it;
    GET DIAGNOSTICS moved = ROW_COUNT;
    IF moved > 0 THEN
      EXECUTE format('ALTER TABLE %s DISABLE TRIGGER holdfast_delete, DISABLE TRIGGER holdfast_deleted', rest);
      EXECUTE format('DELETE FROM %s WHERE job_id >= $1 AND job_id < $2', rest) USING first_one, beyond_it;
      EXECUTE format('ALTER TABLE %s ENABLE TRIGGER holdfast_delete, ENABLE TRIGGER holdfast_deleted', rest);
    END IF;
  END IF;
  EXECUTE format('ALTER TABLE {_LOG} ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', made, first_one, beyond_it);
  PERFORM holdfast_guard_partitions();
  RETURN made::regclass;
END $$""",
    # The share lock keeps writers of this partition out while its rows are counted, and nobody else: there is no job
    # left that could write to it, unless somebody makes up an old id. The drop then needs the whole log for a moment.
    f"""
CREATE OR REPLACE FUNCTION holdfast_drop_partition(partition_name regclass, keep interval)
RETURNS bigint LANGUAGE plpgsql {SCHEMA_PATH} SET lock_timeout = '10s' AS $$
DECLARE
  ids record;
  job_left uuid;
  last_event timestamptz;
  event_count bigint;
  begun bigint;
  pruned bigint;
  rest bigint;
  newest text;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'holdfast: a partition is dropped in a READ COMMITTED transaction';
  END IF;
  SELECT p.first, p.beyond INTO ids FROM holdfast_partitions() p WHERE p.name = partition_name;
  IF ids.first IS NULL OR ids.beyond IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'holdfast: ' || partition_name
      || ' is no partition of {_LOG} for a range of ids';
  END IF;
  PERFORM FROM holdfast_meta WHERE key = 'histories_retired' FOR UPDATE;
  EXECUTE format('LOCK TABLE %s IN SHARE MODE', partition_name);
  SELECT j.id INTO job_left FROM holdfast_jobs j WHERE j.id >= ids.first AND j.id < ids.beyond ORDER BY j.id LIMIT 1;
  IF job_left IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'holdfast: ' || partition_name
      || ' has the history of job ' || job_left || ', which has not been pruned';
  END IF;
  EXECUTE format('SELECT max(at), count(*), count(*) FILTER (WHERE seq = 1),'
    ' count(*) FILTER (WHERE event = ''pruned'') FROM %s', partition_name)
    INTO last_event, event_count, begun, pruned;
  IF begun <> pruned THEN
    RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'holdfast: ' || partition_name || ' has ' || begun
      || ' histories, of which ' || pruned || ' end in pruned: holdfast verify shows the others';
  END IF;
  IF last_event > holdfast_now() - keep THEN
    RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'holdfast: the last job of ' || partition_name
      || ' was pruned at ' || last_event || ', which is not ' || keep || ' ago';
  END IF;
  DELETE FROM holdfast_refusals f WHERE f.job_id >= ids.first AND f.job_id < ids.beyond;
  DELETE FROM holdfast_logs l WHERE l.job_id >= ids.first AND l.job_id < ids.beyond;
  DELETE FROM holdfast_artifacts a WHERE a.job_id >= ids.first AND a.job_id < ids.beyond;
  -- The ids stay refused: UUIDv7s up to the newest of them, the others one by one.
  EXECUTE format($ids$INSERT INTO holdfast_retired_histories (job_id) SELECT job_id FROM %s
    WHERE event = 'pruned' AND (substr(job_id::text, 15, 1) <> '7' OR job_id >= holdfast_first_id(holdfast_now()))
    ON CONFLICT DO NOTHING$ids$, partition_name);
  EXECUTE format('SELECT max(job_id::text), max(at), count(*), count(DISTINCT job_id) FROM %s', partition_name)
    INTO newest, last_event, event_count, rest;
  IF newest IS NOT NULL THEN
    INSERT INTO holdfast_meta AS m (key, value) VALUES ('retired_ids_through', newest)
    ON CONFLICT (key) DO UPDATE SET value = greatest(m.value, excluded.value);
  END IF;
  PERFORM holdfast_note_retired(last_event, rest, event_count);
  PERFORM set_config('lock_timeout', '500ms', true);
  FOR attempt IN 1..10 LOOP
    BEGIN
      EXECUTE format('DROP TABLE %s', partition_name);
      RETURN pruned;
    EXCEPTION WHEN lock_not_available THEN
      IF attempt = 10 THEN
        RAISE;
      END IF;
      PERFORM pg_sleep(1 + random() * 2);  -- whoever waited behind us goes first
    END;
  END LOOP;
END $$""",
)


def guarding(guards: Iterable[Trigger]) -> str:
    """The function that puts these guards of the log wherever one is missing: on it, and on each of its partitions."""
    wanted = ",\n    ".join(
        "ARRAY[{}]".format(", ".join(f"$guard${part}$guard$" for part in (name, timing, level, function)))
        for name, table, timing, level, function in guards
        if table == _LOG
    )
    return f"""
CREATE OR REPLACE FUNCTION holdfast_guard_partitions() RETURNS void LANGUAGE plpgsql {SCHEMA_PATH} AS $$
DECLARE
  place regclass;
  guard text[];
  guards constant text[] := ARRAY[
    {wanted}];
BEGIN
  FOR place IN SELECT relid FROM pg_partition_tree('{_LOG}') LOOP
    FOREACH guard SLICE 1 IN ARRAY guards LOOP
      IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = place AND tgname = guard[1]) THEN
        EXECUTE format('CREATE TRIGGER %I %s ON %s %s EXECUTE FUNCTION %s()',
                       guard[1], guard[2], place, guard[3], guard[4]);
      END IF;
    END LOOP;
  END LOOP;
END $$"""
