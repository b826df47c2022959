"""How functions in Postgres find their tables, and with whose rights they run.

A function that depends on the caller's `search_path` fails in a session with a default path if the tables are in a
schema of their own, and reads a temporary table of the same name before the real one. So triggers and what an operator
calls have a fixed path. (The routines of the verbs have the path and the rights of their caller: a path of their own
took a fifth of a claim.) The functions that run with the rights of the owner name each table and function with its
schema: on their path is only `pg_catalog`, because an overloaded function or operator would run as the owner.
"""

from __future__ import annotations

# Stands for the quoted schema of the tables in the text of a function.
SCHEMA = "@schema@"

# Without pg_temp in it, temporary tables come first. Functions and operators are never looked for there.
FIXED_PATH = "SET search_path = pg_catalog, pg_temp"
SCHEMA_PATH = f"SET search_path = {SCHEMA}, pg_temp"
WITH_OWNERS_RIGHTS = f"SECURITY DEFINER {FIXED_PATH}"

_SCHEMA_OF_TABLES = "(SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = 'holdfast_jobs'::regclass)"

# For the transaction of the installation. Whatever the path was, functions come to be where the tables are.
ENTER_SCHEMA = f"SELECT set_config('search_path', {_SCHEMA_OF_TABLES} || ', pg_temp', true)"


def in_schema(function: str) -> str:
    """The statement that creates a function, with the schema of the tables in its text."""
    return f"""DO $install$
BEGIN
  EXECUTE replace($function${function}$function$, '{SCHEMA}', {_SCHEMA_OF_TABLES});
END $install$"""


def is_called_from(table: str) -> str:
    """The first lines of a trigger function that has the owner's rights: a trigger on another table gains nothing."""
    return f"""  IF TG_RELID <> '{SCHEMA}.{table}'::regclass THEN
    RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
      MESSAGE = 'holdfast: ' || TG_NAME || ' on ' || TG_TABLE_NAME || ' is refused: this function serves {table} alone';
  END IF;"""


# The functions belong to the owner of the tables, also if a superuser upgraded. An upgrade by a member of the owner's
# role may not give them away; then they run with the rights of that member.
OWNERSHIP = f"""DO $ownership$
DECLARE
  owner constant name := (SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'holdfast_jobs'::regclass);
  one record;
BEGIN
  FOR one IN
    SELECT oid::regprocedure::text AS function, pg_get_userbyid(proowner) AS owned_by FROM pg_proc
    WHERE prosecdef AND starts_with(proname, 'holdfast_') AND pronamespace::regnamespace::text = {_SCHEMA_OF_TABLES}
  LOOP
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', one.function);
    IF one.owned_by <> owner THEN
      BEGIN
        EXECUTE format('ALTER FUNCTION %s OWNER TO %I', one.function, owner);
      EXCEPTION WHEN insufficient_privilege THEN
        NULL;
      END;
    END IF;
  END LOOP;
END $ownership$"""
