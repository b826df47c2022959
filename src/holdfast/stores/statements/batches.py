"""A batch of rows that goes away."""

from __future__ import annotations


def delete_batch(table: str, keys: str, chosen: str) -> str:
    """Delete what `chosen` selects: the `keys` of no more rows than its LIMIT says.

    It is asked once. Inside `IN (…)` Postgres may ask it anew for every row of the table; it then skips what it has
    just deleted, finds others, and so deletes all of them, whatever the LIMIT.
    """
    return f"""
        WITH chosen AS MATERIALIZED ({chosen})
        DELETE FROM {table} WHERE ({keys}) IN (SELECT {keys} FROM chosen)
        RETURNING 1"""
